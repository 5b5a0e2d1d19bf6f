//! What is seen, and what is done.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use sluice_engine::headroom::{Amounts, Budget, Grant, MARK, NUDGE_KEY, NativeQuota};
use sluice_engine::{Format, Quantity, Uid};

use super::namespace::{Blocked, Facts, Look, Namespace};
use crate::target::MigrationRef;

fn units(units: i64) -> Quantity {
    Quantity::from_units(units, Format::DecimalSi)
}

fn amounts(key: &str, amount: i64) -> Amounts {
    Amounts::from([(Arc::from(key), units(amount))])
}

fn blocked(name: &str) -> Blocked {
    let migration = MigrationRef {
        namespace: "ns".into(),
        name: name.into(),
        uid: Uid::parse(name),
        machine: "web".into(),
        machine_uid: Uid::parse("vm"),
    };
    Blocked { migration, keeps_state: false }
}

fn quota(name: &str, key: &str, hard: i64, used: i64) -> NativeQuota {
    NativeQuota {
        spec_hard: amounts(key, hard),
        status_hard: amounts(key, hard),
        used: amounts(key, used),
        ..NativeQuota::new(name, Uid::parse(name))
    }
}

fn granted(amount: i64) -> Budget {
    let (source, additional) = ("grant".into(), amounts("memory", amount));
    Budget { grants: vec![Grant::Amounts { source, additional, percent: None }] }
}

/// A namespace with a full quota and a migration that it rejected.
struct Scene {
    namespace: Namespace,
    facts: Facts,
}

impl Scene {
    fn new() -> Self {
        let facts = Facts {
            quotas: vec![quota("rq", "memory", 10, 10)],
            budget: granted(5),
            blocked: vec![blocked("m")],
            ..Facts::default()
        };
        Self { namespace: Namespace::new(7), facts }
    }

    fn look(&mut self, now: u64) -> Look {
        let look = self.namespace.look(&self.facts, now);
        assert!(
            look.nudge.is_some() || look.due.is_none_or(|due| due > now),
            "it would look again at once, for ever"
        );
        look
    }

    /// What is done: `nudge`, or the reasons of what is told.
    fn done(&mut self, now: u64) -> Vec<String> {
        let Look { tell, nudge, .. } = self.look(now);
        let nudge = nudge.map(|quota| format!("nudge {}", quota.name));
        tell.into_iter().map(|report| report.reason).chain(nudge).collect()
    }

    /// At which times it nudges until then, each of them written.
    fn nudges(&mut self, from: u64, until: u64) -> Vec<u64> {
        let (mut now, mut nudges) = (from, Vec::new());
        while now <= until {
            let look = self.look(now);
            if look.nudge.is_some() {
                nudges.push(now);
                assert!(self.namespace.nudged(Ok(()), now).is_none());
                continue;
            }
            now = look.due.filter(|due| *due > now).unwrap_or(u64::MAX);
        }
        nudges
    }
}

const NONE: [&str; 0] = [];

#[test]
fn it_is_woken_a_few_times_and_then_left_to_its_own_tries() {
    let mut scene = Scene::new();
    let nudges = scene.nudges(0, 10_000_000);
    assert_eq!(nudges.len(), 3, "{nudges:?}");
    assert_eq!(nudges[0], 1_000);
    assert!(nudges[2] < 60_000, "{nudges:?}");
    assert_eq!(scene.look(10_000_000).due, None, "no timer, until something changes");
}

#[test]
fn what_administrators_change_wakes_it_at_once() {
    type Change = fn(&mut Facts);
    let changes: [(&str, Change); 4] = [
        ("grant", |facts| facts.budget = granted(6)),
        ("LimitRange", |facts| facts.limit_ranges = 1),
        ("annotation", |facts| facts.quotas[0].opted_out = true),
        ("percentage", |facts| {
            let (source, additional) = ("grant".into(), amounts("memory", 5));
            facts.budget.grants = vec![Grant::Amounts { source, additional, percent: Some(30) }];
        }),
    ];
    for (what, change) in changes {
        let mut scene = Scene::new();
        scene.nudges(0, 500_000);
        change(&mut scene.facts);
        assert_eq!(scene.nudges(500_000, 900_000).first(), Some(&500_000), "{what}");
    }
}

#[test]
fn usage_wakes_it_after_a_moment_and_ever_more_rarely() {
    let mut scene = Scene::new();
    scene.nudges(0, 500_000);
    scene.facts.quotas[0].used = amounts("memory", 9);
    let again = scene.nudges(500_000, 900_000);
    assert_eq!((again.len(), again[0]), (3, 501_000));
    // Other pods of the namespace come and go all the time.
    let mut nudges = 0;
    for second in 0..600_u64 {
        scene.facts.quotas[0].used = amounts("memory", i64::try_from(second % 7).unwrap());
        nudges += scene.nudges(1_000_000 + second * 1_000, 1_000_900 + second * 1_000).len();
    }
    assert!(nudges < 20, "{nudges} in ten minutes");
    // Raises and nudges themselves are no change.
    let mut scene = Scene::new();
    scene.nudges(0, 500_000);
    scene.facts.quotas[0].used.extend([(NUDGE_KEY.into(), units(3)), (MARK.into(), units(9))]);
    scene.facts.quotas[0].status_hard = amounts("memory", 15);
    assert_eq!(scene.nudges(500_000, 900_000), [0; 0]);
}

#[test]
fn what_another_namespace_gives_back_to_a_pool_wakes_it() {
    let pool = |taken| Budget {
        grants: vec![Grant::Pool {
            source: "pool".into(),
            additional: amounts("memory", 20),
            taken_elsewhere: amounts("memory", taken),
            per_namespace: Amounts::new(),
        }],
    };
    let mut scene = Scene::new();
    scene.facts.budget = pool(20);
    scene.nudges(0, 500_000);
    scene.facts.budget = pool(5);
    assert_eq!(scene.nudges(500_000, 900_000).first(), Some(&501_000));
}

#[test]
fn without_a_grant_nothing_is_written() {
    let mut scene = Scene::new();
    scene.facts.budget = Budget::default();
    let look = scene.look(0);
    assert_eq!((look.nudge, look.due, look.summary.blocked, look.summary.not_enough), (None, None, 1, None));
    scene.facts.quotas[0].used = amounts("memory", 9);
    assert_eq!(scene.nudges(0, 900_000), [0; 0], "KubeVirt's controller sees that by itself");
    // What a target takes under other LimitRanges is only known when it is tried.
    scene.facts.limit_ranges = 1;
    assert_eq!(scene.done(900_000), ["nudge rq"]);
    scene.facts.budget = granted(1);
    assert_eq!(scene.done(910_000), ["nudge rq"], "it is granted at last");
}

#[test]
fn a_migration_that_still_waits_is_said_in_the_conditions() {
    let mut scene = Scene::new();
    assert_eq!(scene.look(0).summary.not_enough, None, "KubeVirt's controller gets a second");
    scene.nudges(0, 1_500);
    scene.facts.blocked.push(blocked("n"));
    let (said, count) = {
        scene.nudges(2_000, 30_000);
        scene.look(30_000).summary.not_enough.unwrap()
    };
    assert_eq!(count, 2);
    assert_eq!(
        &*said,
        "migration m of vm web waits although head-room is granted: its events say what is missing"
    );
    scene.facts.blocked.clear();
    assert_eq!(scene.look(31_000).summary, super::Summary::default());
}

#[test]
fn while_nothing_is_proven_it_is_told_once_and_nobody_is_woken() {
    let mut scene = Scene::new();
    scene.facts.unproven = Some("2 API servers, but only 1 can be addressed".into());
    assert_eq!(scene.done(0), ["HeadroomNotProven", "HeadroomNotProven"]);
    assert_eq!(scene.done(1_000), NONE);
    assert_eq!(scene.nudges(2_000, 900_000), [0; 0]);
    scene.facts.blocked.push(blocked("n"));
    assert_eq!(scene.done(900_000), ["HeadroomNotProven", "HeadroomNotProven"], "each is told");
    scene.facts.unproven = None;
    assert_eq!(scene.done(950_000), ["nudge rq"]);
}

#[test]
fn nobody_is_woken_while_the_namespace_rests() {
    let mut scene = Scene::new();
    scene.done(0);
    scene.facts.rests_for = Duration::from_secs(9);
    assert_eq!(scene.done(1_000), NONE);
    assert_eq!(scene.look(1_000).due, Some(11_000), "once it is over for all webhooks");
    scene.facts.rests_for = Duration::ZERO;
    assert_eq!(scene.done(11_000), ["nudge rq"]);
}

#[test]
fn a_second_claim_that_a_quota_does_not_allow_is_told() {
    let mut scene = Scene::new();
    scene.facts.blocked[0].keeps_state = true;
    scene.nudges(0, 1_500);
    assert_eq!(scene.done(1_600), NONE, "no quota is about claims");
    let mebibytes = |count: i64| count << 20;
    for (name, key, hard, used) in [
        ("roomy", "persistentvolumeclaims", 75, 0),
        ("of-a-class", "gold.storageclass.storage.k8s.io/requests.storage", mebibytes(30), mebibytes(20)),
    ] {
        scene.facts.quotas.push(quota(name, key, hard, used));
        let told: Vec<_> = (2_000..60_000).step_by(500).flat_map(|now| scene.look(now).tell).collect();
        assert!(told.is_empty(), "{name}: there is room for one more: {told:?}");
    }
    scene.facts.quotas.push(quota("claims", "persistentvolumeclaims", 3, 3));
    let told: Vec<_> = (60_000..120_000).step_by(500).flat_map(|now| scene.look(now).tell).collect();
    assert_eq!(told.len(), 2, "the migration and the machine");
    assert!(
        told[0].note.contains("quota claims limits persistentvolumeclaims (3 of 3 used)"),
        "{}",
        told[0].note
    );
}

#[test]
fn refused_writes_are_told_when_they_last() {
    let mut scene = Scene::new();
    let mut told = Vec::new();
    let mut now = 0;
    while told.is_empty() && now < 60_000 {
        if scene.look(now).nudge.is_some() {
            told.extend(scene.namespace.nudged(Err("webhook says no".into()), now));
        }
        now += 100;
    }
    assert_eq!(told.len(), 1);
    assert!(now > 2_000, "the first ones may be an API server that has just started");
    let look = scene.look(now);
    assert_eq!(look.summary.forbidden.as_deref(), Some("webhook says no"));
    assert_eq!(look.summary.not_enough, None, "that is not what is missing");
    assert!(scene.namespace.nudged(Ok(()), now).is_none());
    assert_eq!(scene.look(now).summary.forbidden, None);
}

#[test]
fn a_quota_that_is_marked_or_not_counted_is_not_written() {
    let mut scene = Scene::new();
    scene.facts.quotas[0].status_hard.insert(MARK.into(), units(9));
    let mut empty = quota("new", "memory", 1, 0);
    empty.used.clear();
    scene.facts.quotas.push(empty);
    scene.look(0);
    assert_eq!(scene.look(1_000).nudge, None);
    scene.facts.quotas.push(quota("still", "pods", 1, 0));
    let due = scene.look(2_500).due.unwrap();
    assert_eq!(scene.done(due), ["nudge still"]);
    scene.facts.quotas.clear();
    scene.facts.budget = granted(9);
    assert!(scene.look(60_000).nudge.is_none(), "without a quota there is nothing to write");
}
