//! A tenant who creates and deletes migrations, and pods, in a loop: how much of the time the namespace is locked, and how
//! often room is taken by a pod that it was not made for.

use std::sync::Arc;

use sluice_window::protocol::Rests;

const HOUR_MS: u64 = 3_600_000;
/// How long virt-controller waits at least before it tries again; milliseconds.
const PAUSE_MS: u64 = 5;
/// How long an session looks for its target after the room was taken; milliseconds.
const CONFIRM_MS: u64 = 2_000;

/// What the watches show of one lock, whose migration is aborted if it got its target.
fn lock(rests: &mut Rests, namespace: &Arc<str>, (begin, length): (u64, u64), charged: bool) {
    rests.see(namespace, Some(4), 7, begin);
    rests.see(namespace, Some(if charged { 6 } else { 4 }), 7, begin + length);
    rests.see(namespace, None, 7, begin + length);
    rests.see_migrations(namespace, vec![], |_| false, begin + length);
}

/// Openings of which each locks for so long and is charged or not, in turn. The share of an hour that is locked, in percent.
fn locked_share(locks: &[(u64, bool)], with_rests: bool) -> u64 {
    let (mut rests, namespace) = (Rests::default(), Arc::from("tenant"));
    let (mut now, mut locked) = (0, 0);
    for (lock_ms, charged) in locks.iter().cycle() {
        while with_rests && rests.is_resting(&namespace, 7, now) && now < HOUR_MS {
            now += PAUSE_MS;
        }
        if now >= HOUR_MS {
            break;
        }
        lock(&mut rests, &namespace, (now, *lock_ms), *charged);
        locked += lock_ms;
        now += lock_ms + PAUSE_MS;
    }
    locked * 100 / now
}

#[test]
fn a_tenant_locks_a_tenth_of_the_time_at_most() {
    // Longer ones are those of dead processes and of webhooks that do not answer.
    for lock_ms in [1, 20, 75, 100, 500, 1_000, 7_000, 8_900] {
        let patterns: [&[(u64, bool)]; 3] =
            [&[(lock_ms, false)], &[(lock_ms.min(250), true)], &[(lock_ms, false), (20, true), (20, true)]];
        for locks in patterns {
            let share = locked_share(locks, true);
            eprintln!(
                "{locks:?}: locked {share} % of the time, {} % without rests",
                locked_share(locks, false)
            );
            assert!(share < 10, "{locks:?}: {share} %");
        }
    }
}

#[test]
fn without_rests_a_tenant_locks_most_of_the_time() {
    assert!(locked_share(&[(500, false)], false) > 90);
}

/// Each session makes room that a pod of the same size takes. How often that works in an hour.
fn thefts(pause_ms: u64) -> u64 {
    let (mut rests, namespace) = (Rests::default(), Arc::from("tenant"));
    let (mut now, mut count) = (0, 0);
    while now < HOUR_MS {
        if rests.is_resting(&namespace, 7, now) {
            now += PAUSE_MS;
            continue;
        }
        lock(&mut rests, &namespace, (now, 25), true);
        rests.taken(&namespace, 7, now + 25 + pause_ms);
        count += 1;
        now += 25 + pause_ms;
    }
    count
}

/// Rests double up to a minute, so that an hour has room for some seventy.
#[test]
fn thefts_become_rare() {
    let count = thefts(CONFIRM_MS);
    eprintln!("{count} thefts in an hour");
    assert!(count < 100, "{count} thefts in an hour");
}
