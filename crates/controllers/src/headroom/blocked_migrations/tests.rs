//! What is seen, and what is done.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use sluice_engine::headroom::{Amounts, Budget, Grant, MARK, NativeQuota, Need};
use sluice_engine::{Amount, Charge, Format, Quantity, Resource, ScopeFacts, Uid};
use sluice_window::MigrationRef;

use super::messages::BlockedFacts;
use super::*;
use crate::gate::Moment;

fn at(mono_ms: u64) -> Moment {
    Moment { mono_ms, unix_ms: 0 }
}

fn units(units: i64) -> Quantity {
    Quantity::from_units(units, Format::DecimalSi)
}

fn amounts(amount: i64) -> Amounts {
    Amounts::from([(Arc::from("memory"), units(amount))])
}

fn need(amount: i64) -> Need {
    let charge = Charge::from_pairs([(Resource::Memory, Amount::from(units(amount)))]);
    Need::new(charge, ScopeFacts::default())
}

fn migration(name: &str) -> MigrationRef {
    MigrationRef {
        namespace: "ns".into(),
        name: name.into(),
        uid: Uid::parse(name),
        machine: "web".into(),
        machine_uid: Uid::parse("vm"),
    }
}

/// A namespace with a quota of 10 and blocked migrations.
fn facts(used: i64, granted: Option<i64>, blocked: &[&str]) -> NamespaceFacts {
    let quota = NativeQuota {
        spec_hard: amounts(10),
        status_hard: amounts(10),
        used: amounts(used),
        ..NativeQuota::new("rq", Uid::parse("rq"))
    };
    let grant = |amount| Grant::Amounts { source: "grant".into(), additional: amounts(amount) };
    let blocked = blocked.iter().map(|name| BlockedFacts { migration: migration(name), version: "1".into() });
    NamespaceFacts {
        quotas: vec![quota],
        budget: Budget { grants: granted.map(grant).into_iter().collect() },
        blocked: blocked.collect(),
        ..NamespaceFacts::default()
    }
}

struct Scene {
    state: State,
    facts: NamespaceFacts,
}

impl Scene {
    fn new(facts: NamespaceFacts) -> Self {
        let mut state = State::new(BlockedConfig::default(), 7);
        state.lead(["ns".into()]);
        Self { state, facts }
    }

    /// What is done when something changed.
    fn see(&mut self, now: u64) -> Vec<Action> {
        self.state.see(["ns".into()]);
        self.plan(now)
    }

    fn plan(&mut self, now: u64) -> Vec<Action> {
        self.state.plan(at(now), |_| self.facts.clone())
    }

    fn on_done(&mut self, done: Done, now: u64) -> Vec<Action> {
        self.state.on_done(&"ns".into(), done, &self.facts.clone(), at(now))
    }

    /// A scene in which the source of migration `m` was looked for and takes 5.
    fn looked(facts: NamespaceFacts) -> Self {
        let mut scene = Self::new(facts);
        assert!(matches!(&scene.see(0)[..], [Action::Look(blocked)] if *blocked.name == *"m"));
        scene.on_done(Done::Looked(Uid::parse("m"), Some(need(5))), 0);
        scene
    }
}

#[test]
fn a_migration_that_would_be_let_in_is_woken_at_once_and_ever_more_rarely() {
    let mut scene = Scene::looked(facts(8, Some(3), &["m"]));
    assert!(matches!(&scene.plan(0)[..], [Action::Nudge(quota)] if *quota.name == *"rq"));
    scene.on_done(Done::Nudged, 5);
    assert_eq!(scene.see(6), []);
    let due = scene.state.next_due_ms(at(6)).unwrap();
    assert!((490..=1_000).contains(&due), "{due}");
    assert!(matches!(&scene.plan(1_001)[..], [Action::Nudge(_)]));
    scene.on_done(Done::Nudged, 1_005);
    scene.plan(1_006);
    let later = scene.state.next_due_ms(at(1_006)).unwrap();
    assert!(later >= 990, "{later}");
    scene.facts.blocked.clear();
    assert_eq!(scene.see(1_010), []);
    assert_eq!(scene.state.next_due_ms(at(1_010)), None, "nothing is remembered");
    assert_eq!(scene.state.counts(), [0, 0, 0]);
}

#[test]
fn room_that_appears_is_left_to_kubevirts_controller_for_a_second() {
    let mut scene = Scene::looked(facts(8, None, &["m"]));
    assert!(matches!(&scene.plan(0)[..], [Action::Publish(BlockedEvent::NotEnough { .. })]));
    scene.facts.quotas[0].used = amounts(5);
    assert_eq!(scene.see(100), []);
    assert!(matches!(&scene.plan(1_100)[..], [Action::Nudge(_)]));
}

#[test]
fn what_is_missing_is_told_once_and_then_nothing_is_done() {
    let mut scene = Scene::looked(facts(8, Some(1), &["m"]));
    let [Action::Publish(BlockedEvent::NotEnough { sentence, .. })] = &scene.plan(0)[..] else {
        panic!("not told")
    };
    assert!(sentence.ends_with("missing 2"), "{sentence}");
    assert_eq!(scene.see(10), []);
    assert_eq!(scene.state.next_due_ms(at(10)), None, "quiet until something changes");
    assert_eq!(scene.state.counts(), [1, 1, 0]);
    scene.facts.quotas[0].used = amounts(9);
    assert_eq!(scene.see(20), [], "other words of the same are told later");
    assert!(matches!(&scene.plan(5_000)[..], [Action::Publish(_)]));
}

#[test]
fn a_target_that_is_larger_than_its_source_is_told_and_left_alone() {
    let mut scene = Scene::looked(facts(5, None, &["m"]));
    let mut nudges = 0;
    for step in 0..200_u64 {
        match &scene.plan(step * 1_000)[..] {
            [Action::Nudge(_)] => {
                nudges += 1;
                scene.on_done(Done::Nudged, step * 1_000);
            }
            [] => {}
            [Action::Publish(BlockedEvent::Refused { sentence, .. })] => {
                assert!(sentence.contains("LimitRange"), "{sentence}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((nudges, scene.state.next_due_ms(at(200_000))), (3, None));
    scene.facts.quotas[0].used = amounts(4);
    scene.see(200_001);
    assert!(scene.state.next_due_ms(at(200_001)).is_some(), "tried again when something changes");
}

#[test]
fn nudges_are_spaced_however_often_the_outcome_changes() {
    let mut scene = Scene::looked(facts(8, Some(3), &["m"]));
    let mut nudges = 0;
    for step in 0..1_000_u64 {
        scene.facts.quotas[0].used = amounts(if step % 2 == 0 { 8 } else { 9 });
        let actions = scene.see(step * 10);
        if actions.iter().any(|action| matches!(action, Action::Nudge(_))) {
            nudges += 1;
            scene.on_done(Done::Nudged, step * 10);
        }
    }
    assert!((2..=21).contains(&nudges), "{nudges} in 10 s");
}

#[test]
fn a_limit_range_that_changes_wakes_whatever_is_known() {
    let mut scene = Scene::looked(facts(8, None, &["m"]));
    scene.plan(0);
    scene.facts.limit_ranges = 1;
    assert!(matches!(&scene.see(600)[..], [Action::Nudge(_)]));
}

#[test]
fn a_marked_quota_is_not_written() {
    let mut scene = Scene::looked(facts(8, Some(3), &["m"]));
    scene.facts.quotas[0].status_hard.insert(MARK.into(), units(1_795_294_869_123));
    assert_eq!(scene.plan(0), []);
}

#[test]
fn a_write_that_is_refused_for_a_moment_is_tried_again_soon_and_not_told() {
    let mut scene = Scene::looked(facts(8, Some(3), &["m"]));
    scene.plan(0);
    for now in [0, 1_000] {
        assert_eq!(scene.on_done(Done::Forbidden("RBAC: clusterrole not found".into()), now), []);
        assert_eq!(scene.plan(now + 10), []);
        let due = now + if now == 0 { 1_000 } else { 2_000 };
        assert!(matches!(&scene.plan(due)[..], [Action::Nudge(_)]), "at {due}");
    }
    assert_eq!(scene.on_done(Done::Nudged, 3_000), []);
    scene.plan(3_010);
    assert_eq!((scene.state.summary("ns").forbidden, scene.state.counts()), (None, [1, 0, 0]));
}

#[test]
fn refused_nudges_do_not_count_as_attempts_of_kubevirts_controller() {
    let mut scene = Scene::looked(facts(5, None, &["m"]));
    for now in (0..60_000).step_by(100) {
        for action in scene.plan(now) {
            assert!(matches!(action, Action::Nudge(_)), "it was never tried: {action:?}");
            scene.on_done(Done::Forbidden("no".into()), now);
        }
    }
}

#[test]
fn writes_that_are_refused_for_long_are_told_once_and_backed_off() {
    let mut scene = Scene::looked(facts(8, Some(3), &["m"]));
    let (mut nudges, mut told) = (Vec::new(), Vec::new());
    for now in (0..3_600_000).step_by(100) {
        for action in scene.plan(now) {
            assert!(matches!(action, Action::Nudge(_)), "{action:?}");
            nudges.push(now);
            told.extend(scene.on_done(Done::Forbidden("status is immutable".into()), now));
        }
    }
    let [Action::Publish(BlockedEvent::Forbidden { quota, blocked, said })] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((&*quota.name, blocked.len(), &**said), ("rq", 1, "status is immutable"));
    assert_eq!(scene.state.summary("ns").forbidden.as_deref(), Some("status is immutable"));
    assert_eq!(scene.state.counts(), [1, 0, 1]);
    assert!(nudges[2] <= 3_000 && nudges.len() <= 20, "soon at first, then ever more rarely: {nudges:?}");
}

#[test]
fn a_source_that_cannot_be_listed_is_looked_for_later() {
    let mut scene = Scene::new(facts(8, None, &["m", "n"]));
    assert!(matches!(&scene.see(0)[..], [Action::Look(_)]), "one at a time");
    scene.on_done(Done::Failed, 0);
    let [Action::Look(next)] = &scene.plan(0)[..] else { panic!("the other one") };
    assert_eq!(&*next.name, "n");
    scene.on_done(Done::Looked(Uid::parse("n"), None), 0);
    assert_eq!(scene.plan(0), [], "a migration without a source is left alone");
    assert!(matches!(&scene.plan(1_001)[..], [Action::Look(blocked)] if *blocked.name == *"m"));
}
