//! What is seen, and what is done.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use sluice_engine::headroom::{Amounts, Budget, Grant, MARK, NativeQuota, Need};
use sluice_engine::{Amount, Charge, Format, Quantity, Resource, ScopeFacts, Uid};
use sluice_index::Version;
use sluice_window::MigrationRef;

use super::namespace::{Facts, Look, Namespace};
use super::sources::Sources;

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

/// A namespace with a quota of 10 and a migration of a machine that takes 5.
struct Scene {
    namespace: Namespace,
    facts: Facts,
}

impl Scene {
    fn new(used: i64, granted: Option<i64>) -> Self {
        let quota = NativeQuota {
            spec_hard: amounts(10),
            status_hard: amounts(10),
            used: amounts(used),
            ..NativeQuota::new("rq", Uid::parse("rq"))
        };
        let grant = |amount| Grant::Amounts { source: "grant".into(), additional: amounts(amount) };
        let facts = Facts {
            quotas: vec![quota],
            budget: Budget { grants: granted.map(grant).into_iter().collect() },
            blocked: vec![(migration("m"), Some(need(5)))],
            limit_ranges: 0,
        };
        Self { namespace: Namespace::new(7), facts }
    }

    fn look(&mut self, now: u64) -> Look {
        self.namespace.look(&self.facts, now)
    }

    /// What is done: `nudge`, or the reasons of what is told.
    fn done(&mut self, now: u64) -> Vec<String> {
        let Look { tell, nudge, .. } = self.look(now);
        let nudge = nudge.map(|quota| format!("nudge {}", quota.name));
        tell.into_iter().map(|report| report.reason).chain(nudge).collect()
    }

    fn refused(&mut self, said: &str, now: u64) -> Option<Arc<str>> {
        self.namespace.nudged(Err(said.into()), now)
    }
}

const TOLD: [&str; 3] = ["NotEnoughHeadroom", "NotEnoughHeadroom", "NotEnoughResourceToRelease"];
const NONE: [&str; 0] = [];

#[test]
fn a_migration_that_would_be_let_in_is_woken_at_once_and_ever_more_rarely() {
    let mut scene = Scene::new(8, Some(3));
    assert_eq!(scene.done(0), ["nudge rq"]);
    scene.namespace.nudged(Ok(()), 5);
    let look = scene.look(6);
    assert_eq!((look.nudge, look.summary.blocked), (None, 1));
    let due = look.due.unwrap();
    assert!((500..=1_000).contains(&due), "{due}");
    assert_eq!(scene.done(1_001), ["nudge rq"]);
    let later = scene.look(1_006).due.unwrap();
    assert!(later >= 2_000, "{later}");
    scene.facts.blocked.clear();
    let look = scene.look(1_010);
    assert_eq!((look.due, look.nudge, look.summary), (None, None, super::Summary::default()));
}

#[test]
fn room_that_appears_is_left_to_kubevirts_controller_for_a_second() {
    let mut scene = Scene::new(8, None);
    assert_eq!(scene.done(0), TOLD);
    scene.facts.quotas[0].used = amounts(5);
    assert_eq!(scene.done(100), NONE);
    assert_eq!(scene.done(1_100), ["nudge rq"]);
}

#[test]
fn what_is_missing_is_told_once_and_then_nothing_is_done() {
    let mut scene = Scene::new(8, Some(1));
    let look = scene.look(0);
    assert!(look.tell[0].note.ends_with("missing 2"), "{look:?}");
    assert_eq!(look.counts, [1, 1]);
    let look = scene.look(10);
    assert_eq!((look.tell.len(), look.due), (0, None), "quiet until something changes");
    let (text, count) = look.summary.not_enough.unwrap();
    assert!(text.ends_with("missing 2") && count == 1 && look.counts == [0, 0], "{text}");
    scene.facts.quotas[0].used = amounts(9);
    assert_eq!(scene.done(20), NONE, "other words of the same are told later");
    assert_eq!(scene.done(5_000), TOLD);
}

#[test]
fn a_target_that_is_larger_than_its_source_is_told_and_left_alone() {
    let mut scene = Scene::new(5, None);
    let done: Vec<String> = (0..200).flat_map(|second| scene.done(second * 1_000)).collect();
    assert_eq!(done, ["nudge rq", "nudge rq", "nudge rq", "NoHeadroom", "NoHeadroom"]);
    assert_eq!(scene.look(200_000).due, None);
    scene.facts.quotas[0].used = amounts(4);
    assert!(scene.look(200_001).due.is_some(), "tried again when something changes");
}

#[test]
fn nudges_are_spaced_however_often_the_outcome_changes() {
    let mut scene = Scene::new(8, Some(3));
    let mut nudges = 0;
    for step in 0..1_000_u64 {
        scene.facts.quotas[0].used = amounts(if step % 2 == 0 { 8 } else { 9 });
        nudges += usize::from(scene.look(step * 10).nudge.is_some());
    }
    assert!((2..=21).contains(&nudges), "{nudges} in 10 s");
}

#[test]
fn a_limit_range_that_changes_wakes_whatever_is_known() {
    let mut scene = Scene::new(8, None);
    scene.look(0);
    scene.facts.limit_ranges = 1;
    assert_eq!(scene.done(600), ["nudge rq"]);
}

#[test]
fn a_marked_quota_is_not_written() {
    let mut scene = Scene::new(8, Some(3));
    scene.facts.quotas[0].status_hard.insert(MARK.into(), units(1_795_294_869_123));
    assert_eq!(scene.done(0), NONE);
}

#[test]
fn a_write_that_is_refused_for_a_moment_is_tried_again_soon_and_not_told() {
    let mut scene = Scene::new(8, Some(3));
    scene.look(0);
    for (now, due) in [(0, 1_000), (1_000, 3_000)] {
        assert_eq!(scene.refused("RBAC: clusterrole not found", now), None);
        assert_eq!(scene.done(now + 10), NONE);
        assert_eq!(scene.done(due), ["nudge rq"], "at {due}");
    }
    assert_eq!(scene.namespace.nudged(Ok(()), 3_000), None);
    assert_eq!(scene.look(3_010).summary.forbidden, None);
}

#[test]
fn refused_nudges_do_not_count_as_attempts_of_kubevirts_controller() {
    let mut scene = Scene::new(5, None);
    for now in (0..60_000).step_by(100) {
        for done in scene.done(now) {
            assert_eq!(done, "nudge rq", "it was never tried");
            scene.refused("no", now);
        }
    }
}

#[test]
fn writes_that_are_refused_for_long_are_told_once_and_backed_off() {
    let mut scene = Scene::new(8, Some(3));
    let (mut nudges, mut told) = (Vec::new(), Vec::new());
    for now in (0..3_600_000).step_by(100) {
        if scene.look(now).nudge.is_some() {
            nudges.push(now);
            told.extend(scene.refused("status is immutable", now));
        }
    }
    assert_eq!(told, ["status is immutable".into()]);
    assert_eq!(scene.look(3_600_000).summary.forbidden.as_deref(), Some("status is immutable"));
    assert!(nudges[2] <= 3_000 && nudges.len() <= 20, "soon at first, then ever more rarely: {nudges:?}");
}

#[test]
fn a_source_that_cannot_be_listed_is_looked_for_later_and_others_when_they_change() {
    let mut blocked = ["m", "n", "o"].map(|name| (migration(name), Version::default()));
    let mut sources = Sources::new(7);
    // Which sources are looked for, and which needs are known then.
    let mut look = |now, blocked: &[(MigrationRef, Version)], m_fails: bool| {
        let missing = sources.missing(blocked.to_vec(), now);
        let asked: String = missing.iter().map(|(one, _)| &*one.name).collect();
        for one in missing {
            let source = match &*one.0.name {
                "m" if m_fails => None,
                "n" => Some(None),
                _ => Some(Some(need(5))),
            };
            sources.found(one, source, now);
        }
        let known: String =
            blocked.iter().filter(|(one, _)| sources.of(one).is_some()).map(|(one, _)| &*one.name).collect();
        (asked, known, sources.due(now).is_some())
    };
    assert_eq!(look(0, &blocked, true), ("mno".to_owned(), "o".to_owned(), true));
    assert_eq!(look(10, &blocked, true), (String::new(), "o".to_owned(), true));
    assert_eq!(look(1_001, &blocked, false), ("m".to_owned(), "mo".to_owned(), false));
    blocked[1].1 = Version::parse(Some("2"));
    assert_eq!(look(1_002, &blocked, false), ("n".to_owned(), "mo".to_owned(), false));
}
