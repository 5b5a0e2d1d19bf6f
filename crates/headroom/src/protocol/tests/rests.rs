//! How long a namespace is left alone.

use std::collections::BTreeMap;

use super::*;

const HOUR_MS: u64 = 3_600_000;

fn used(amount: i128) -> Option<BTreeMap<Uid, i128>> {
    Some(BTreeMap::from([(Uid::parse("rq"), amount)]))
}

/// Locks and unlocks a namespace.
fn lock(rests: &mut Rests, at: u64, for_ms: u64, helped: bool) {
    rests.see(&"ns".into(), used(8), 1, at);
    rests.see(&"ns".into(), used(if helped { 13 } else { 8 }), 1, at + for_ms);
    rests.see(&"ns".into(), None, 1, at + for_ms);
}

/// Lets the targets of `count` machines in, as KubeVirt makes them when five migrations at a time take seven seconds each.
/// Each has a lock of `for_ms`, in which another webhook is asked too.
fn migrate(rests: &mut Rests, (at, for_ms): (u64, u64), count: u64) -> u64 {
    let mut now = at;
    for _ in 0..count {
        lock(rests, now, for_ms, true);
        now += for_ms.max(1_400);
    }
    now
}

#[test]
fn a_lock_in_vain_rests_its_namespace_longer_each_time() {
    let mut rests = Rests::default();
    lock(&mut rests, 0, 10, false);
    assert!(rests.is_resting("ns", 1, 1_009) && !rests.is_resting("ns", 1, 1_011));
    assert!(!rests.is_resting("ns", 2, 20), "an administrator has changed what the outcome depends on");
    assert!(!rests.is_resting("other", 1, 20));
    lock(&mut rests, 2_000, 10, false);
    assert!(rests.is_resting("ns", 1, 4_009) && !rests.is_resting("ns", 1, 4_011));
    lock(&mut rests, 5_000, 10, true);
    assert!(!rests.is_resting("ns", 1, 5_011));
    lock(&mut rests, 6_000, 10, false);
    assert!(
        rests.is_resting("ns", 1, 10_009) && !rests.is_resting("ns", 1, 10_011),
        "one that helped ends no count"
    );
    let mut rests = Rests::default();
    lock(&mut rests, 6_000, 300, false);
    assert!(
        rests.is_resting("ns", 1, 9_299) && !rests.is_resting("ns", 1, 9_400),
        "ten times as long as it was locked"
    );
}

/// Quota admission that a tenant keeps busy does not answer in time, again and again, for each lock of a second.
#[test]
fn a_busy_namespace_gets_a_try_every_few_seconds() {
    let (mut rests, mut now, mut tries) = (Rests::default(), 0, 0);
    while now < 120_000 {
        if !rests.is_resting("ns", 1, now) {
            lock(&mut rests, now, 900, false);
            tries += 1;
            now += 900;
        }
        now += 100;
    }
    assert!(tries >= 9, "{tries} in two minutes");
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
            [&[(length, false)], &[(length.min(80), true)], &[(length, false), (12, true), (80, true)]];
        for locks in patterns {
            let locked = locked_ms(locks);
            assert!(locked * 10 < HOUR_MS, "{locks:?}: {locked} ms of an hour");
        }
    }
}

/// Only a target makes the usage of a marked quota grow.
#[test]
fn a_second_quota_that_is_marked_and_a_pod_that_goes_are_no_help() {
    let mut rests = Rests::default();
    let both = BTreeMap::from([(Uid::parse("rq"), 8), (Uid::parse("other"), 3)]);
    rests.see(&"ns".into(), used(8), 1, 0);
    rests.see(&"ns".into(), Some(both), 1, 2);
    rests.see(&"ns".into(), used(7), 1, 5);
    rests.see(&"ns".into(), None, 1, 10);
    assert!(rests.is_resting("ns", 1, 1_009));
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
        // An honest migration in between ends no count.
        lock(&mut rests, now + 2_001, 9, true);
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
fn drains_go_on_beside_slow_webhooks() {
    for for_ms in [11, 200, 3_000] {
        let (mut rests, mut now) = (Rests::default(), 0);
        for _ in 0..10 {
            now = migrate(&mut rests, (now, for_ms), 20);
            assert!(!rests.is_resting("ns", 1, now), "{for_ms} ms each");
        }
    }
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

#[test]
fn how_long_a_namespace_rests_is_told() {
    let mut rests = Rests::default();
    assert_eq!(rests.left("ns", 1, 0), 0);
    lock(&mut rests, 0, 300, false);
    assert_eq!(rests.left("ns", 1, 1_000), 2_300, "ten times as long as it was locked, from its end");
    assert_eq!(rests.left("ns", 2, 1_000), 0, "an administrator has changed what the outcome depends on");
    assert_eq!(rests.left("ns", 1, 3_300), 0);
    lock(&mut rests, 4_000, 1_000, false);
    let left = rests.left("ns", 2, 5_000);
    assert!(left > 0, "it was locked for too long in all");
    assert!(rests.is_resting("ns", 2, 5_000 + left - 1) && !rests.is_resting("ns", 2, 5_000 + left));
}
