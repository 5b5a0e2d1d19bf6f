//! How long a namespace is left alone.

use super::*;

const HOUR_MS: u64 = 3_600_000;

/// Locks and unlocks a namespace.
fn lock(rests: &mut Rests, at: u64, for_ms: u64, helped: bool) {
    rests.see(&"ns".into(), Some(8), 1, at);
    rests.see(&"ns".into(), Some(if helped { 13 } else { 8 }), 1, at + for_ms);
    rests.see(&"ns".into(), None, 1, at + for_ms);
    rests.see_migrations("ns", vec![], |_| false, at + for_ms);
}

/// Migrates `count` machines at the same time, each with a lock of `for_ms`; all end then.
fn migrate(rests: &mut Rests, (at, for_ms): (u64, u64), count: u64, succeeded: bool) -> u64 {
    let all: Vec<Uid> = (0..count).map(|n| Uid::parse(&format!("migration-{at}-{n}"))).collect();
    let mut now = at;
    rests.see(&"ns".into(), Some(8), 1, now);
    rests.see_migrations("ns", all.clone(), |_| false, now);
    for _ in &all {
        rests.see(&"ns".into(), Some(8), 1, now);
        rests.see(&"ns".into(), Some(13), 1, now + for_ms);
        rests.see(&"ns".into(), None, 1, now + for_ms);
        rests.see_migrations("ns", all.clone(), |_| false, now + for_ms);
        now += for_ms + 1;
    }
    rests.see_migrations("ns", vec![], |_| succeeded, now);
    now
}

#[test]
fn a_lock_in_vain_rests_its_namespace_longer_each_time_until_one_helps() {
    let mut rests = Rests::default();
    lock(&mut rests, 0, 10, false);
    assert!(rests.is_resting("ns", 1, 1_009) && !rests.is_resting("ns", 1, 1_011));
    assert!(!rests.is_resting("ns", 2, 20), "an administrator has changed what the outcome depends on");
    assert!(!rests.is_resting("other", 1, 20));
    lock(&mut rests, 2_000, 10, false);
    assert!(rests.is_resting("ns", 1, 4_009) && !rests.is_resting("ns", 1, 4_011));
    lock(&mut rests, 5_000, 10, true);
    assert!(!rests.is_resting("ns", 1, 5_011));
    lock(&mut rests, 6_000, 300, false);
    assert!(
        rests.is_resting("ns", 1, 9_299) && !rests.is_resting("ns", 1, 9_400),
        "ten times as long as it was locked"
    );
}

/// Of an hour in which a tenant creates and deletes migrations in a loop: locks of so many milliseconds that help or not, in
/// turn, as often as they are allowed. Each migration is aborted.
fn locked_ms(locks: &[(u64, bool)]) -> u64 {
    let (mut rests, mut now, mut locked) = (Rests::default(), 0, 0);
    for (length, helps) in locks.iter().cycle() {
        while rests.is_resting("ns", 1, now) && now < HOUR_MS {
            now += 1;
        }
        if now >= HOUR_MS {
            break;
        }
        lock(&mut rests, now, *length, *helps);
        locked += length;
        now += length + 1;
    }
    locked
}

#[test]
fn a_namespace_is_locked_for_a_tenth_of_the_time_at_most() {
    // Longer ones are those of dead processes and of webhooks that do not answer.
    for length in [1, 20, 75, 100, 500, 1_000, 7_000, 8_900] {
        let patterns: [&[(u64, bool)]; 3] =
            [&[(length, false)], &[(length.min(250), true)], &[(length, false), (20, true), (20, true)]];
        for locks in patterns {
            let locked = locked_ms(locks);
            assert!(locked * 10 < HOUR_MS, "{locks:?}: {locked} ms of an hour");
        }
    }
}

#[test]
fn thefts_rest_a_namespace_longer_each_time() {
    let (mut rests, mut now, mut thefts) = (Rests::default(), 0, 0);
    while now < HOUR_MS {
        if rests.is_resting("ns", 1, now) {
            now += 10;
            continue;
        }
        // The room is charged, so the lock seems to help; only later is it known that the target did not come.
        lock(&mut rests, now, 25, true);
        rests.taken(&"ns".into(), 1, now + 2_000);
        now += 2_010;
        thefts += 1;
    }
    assert!(thefts < 80, "{thefts} in an hour");
}

#[test]
fn a_lock_that_a_dead_process_left_costs_its_namespace_a_second() {
    let mut rests = Rests::default();
    lock(&mut rests, 0, 10_000, false);
    assert!(rests.is_resting("ns", 1, 10_900) && !rests.is_resting("ns", 1, 11_001));
}

#[test]
fn migrations_that_succeed_cost_their_namespace_nothing() {
    let (mut rests, mut now) = (Rests::default(), 0);
    for _ in 0..5 {
        now = migrate(&mut rests, (now, 200), 20, true);
        assert!(!rests.is_resting("ns", 1, now), "drains go on");
    }
    now = migrate(&mut rests, (now, 200), 20, false);
    assert!(rests.is_resting("ns", 1, now + 30_000), "4 s in vain are a minute of rest");
}

#[test]
fn a_lock_that_waits_for_another_webhook_counts_little() {
    let mut rests = Rests::default();
    let now = migrate(&mut rests, (0, 3_000), 2, false);
    assert!(!rests.is_resting("ns", 1, now));
}

#[test]
fn refused_writes_rest_a_namespace_longer_each_time_whatever_an_administrator_changes() {
    let mut rests = Rests::default();
    for (at, until) in [(0, 1_000), (1_000, 3_000), (3_000, 7_000)] {
        rests.refused(&"ns".into(), at);
        assert!(rests.is_resting("ns", at, until - 1) && !rests.is_resting("ns", at, until));
    }
    lock(&mut rests, 7_000, 10, true);
    rests.refused(&"ns".into(), 8_000);
    assert!(rests.is_resting("ns", 1, 8_999) && !rests.is_resting("ns", 1, 9_000), "a write in between");
}
