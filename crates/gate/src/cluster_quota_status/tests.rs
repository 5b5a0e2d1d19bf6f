#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_engine::vm::Calculator;
use sluice_engine::{Quantity, QuotaId, StatusTarget, Uid, Unenforced};
use sluice_index::{AcrqWire, Source};

use super::planner::{MirrorNamespaces, Planner, Write};
use crate::explain::HeldTold;
use crate::{ClusterView, Moment};

fn wire<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn quantity(amount: usize) -> Quantity {
    Quantity::parse(&amount.to_string()).unwrap()
}

/// An API server that does what it is asked for, and a planner that sees it.
struct World {
    planner: Planner,
    quota: Value,
    mirrors: BTreeMap<String, Value>,
    now: i64,
    machines: Option<Calculator>,
    unenforced: Option<Unenforced>,
    unevaluated: Option<String>,
    /// How many pods wait, and what is told of the oldest.
    held: (usize, Option<HeldTold>),
    /// Refuses mirrors.
    terminating: Option<&'static str>,
    refused: usize,
}

impl World {
    fn new(shows: MirrorNamespaces) -> Self {
        let quota = json!({
            "metadata": { "name": "q", "uid": "u", "resourceVersion": "1" },
            "spec": { "quota": { "hard": { "pods": "100000" } }, "selector": { "labels": {} } },
        });
        let mut planner = Planner::new(shows, 1);
        planner.apply_quota(&wire::<AcrqWire>(quota.clone()), Source::Watch);
        Self {
            planner,
            quota,
            mirrors: BTreeMap::new(),
            now: 0,
            machines: None,
            unenforced: None,
            unevaluated: None,
            held: (0, None),
            terminating: None,
            refused: 0,
        }
    }

    /// The gate says that these namespaces use so many pods; `None`: they are selected no more.
    fn see(&mut self, total: usize, namespaces: &[(usize, Option<usize>)], all: bool) {
        let used = |pods: usize| vec![("pods".to_owned(), quantity(pods))];
        let target = StatusTarget {
            hard: vec![("pods".to_owned(), quantity(100_000))],
            used: used(total),
            requests: format!("pods: {total}/100000"),
            limits: String::new(),
            uncounted: String::new(),
            machines: self.machines,
            unenforced: self.unenforced.clone(),
        };
        let namespaces =
            namespaces.iter().map(|(number, pods)| (Arc::from(format!("n{number:05}")), pods.map(used)));
        let (id, name, uid) = (QuotaId(0), "q".into(), Uid::parse("u"));
        self.planner.show(
            ClusterView {
                id,
                name,
                uid,
                total: Ok(target),
                held: self.held.0,
                held_told: self.held.1.clone(),
                unevaluated: self.unevaluated.clone(),
                namespaces: namespaces.collect(),
            },
            all,
        );
    }

    /// One second's writes; returns how many there were of quotas and of mirrors.
    fn tick(&mut self, mirrors: usize) -> (usize, usize) {
        self.now += 1;
        let writes = self.planner.plan(mirrors, self.moment());
        let statuses = writes.iter().filter(|write| matches!(write, Write::Status(..))).count();
        let many = writes.len();
        for write in writes {
            if matches!(&write, Write::Create((_, namespace), _) if Some(&**namespace) == self.terminating) {
                self.refused += 1;
                self.planner.failed(&write, self.moment());
                continue;
            }
            self.planner.done(&write);
            match write {
                Write::Status(_, object) => {
                    self.quota["status"] = object["status"].clone();
                    self.planner.apply_quota(&wire(self.quota.clone()), Source::Watch);
                }
                Write::Create((_, namespace), mut object) => {
                    assert!(!self.mirrors.contains_key(&*namespace), "{namespace} has one");
                    object["metadata"]["uid"] = json!(format!("m-{namespace}"));
                    self.put(&namespace, object);
                }
                Write::Replace((_, namespace), object) => {
                    assert_ne!(self.mirrors.get(&*namespace), Some(&object), "it says so already");
                    self.put(&namespace, object);
                }
                Write::Delete((_, namespace), uid) => {
                    let gone = self.mirrors.remove(&*namespace).unwrap();
                    assert_eq!(gone["metadata"]["uid"], uid);
                    self.planner.delete_mirror(&wire(gone));
                }
            }
        }
        (statuses, many - statuses)
    }

    fn moment(&self) -> Moment {
        Moment { mono_ms: u64::try_from(self.now).unwrap() * 1_000, unix_ms: self.now * 1_000 }
    }

    fn put(&mut self, namespace: &str, mut object: Value) {
        object["metadata"]["resourceVersion"] = json!(self.now.to_string());
        self.planner.apply_mirror(&wire(object.clone()), Source::Watch);
        self.mirrors.insert(namespace.to_owned(), object);
    }

    /// Ticks until there is nothing to do. Returns how often.
    fn settle(&mut self, mirrors: usize) -> usize {
        let mut ticks = 0;
        while self.planner.has_more() {
            let (statuses, written) = self.tick(mirrors);
            assert!(
                statuses <= 1 && written <= mirrors,
                "{statuses} statuses, {written} mirrors in a second"
            );
            ticks += 1;
            assert!(ticks < 10_000, "it never ends");
        }
        ticks
    }

    fn own(&self, number: usize) -> (Value, Value) {
        let status = &self.mirrors[&format!("n{number:05}")]["status"];
        assert_eq!(status["namespaces"].as_array().unwrap().len(), 1, "only its own");
        (status["namespaces"][0]["status"]["used"]["pods"].clone(), status["total"]["used"]["pods"].clone())
    }
}

#[test]
fn each_namespace_has_a_mirror_with_its_own_part_and_the_total() {
    let mut world = World::new(MirrorNamespaces::Own);
    world.see(3, &[(0, Some(1)), (1, Some(2)), (2, Some(0))], true);
    world.settle(50);
    let listed: Vec<_> = world.quota["status"]["namespaces"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 3);
    assert_eq!(world.own(1), (json!("2"), json!("3")));
    world.see(4, &[(0, Some(2)), (2, None)], false);
    world.settle(50);
    assert_eq!((world.own(0), world.own(1)), ((json!("2"), json!("4")), (json!("2"), json!("4"))));
    assert_eq!(world.mirrors.len(), 2, "the one that left has none");
    assert_eq!(world.settle(50), 0, "nothing is written that is there");
}

#[test]
fn upstreams_full_copy_is_a_setting() {
    let mut world = World::new(MirrorNamespaces::All);
    world.see(3, &[(0, Some(1)), (1, Some(2))], true);
    world.settle(50);
    for mirror in world.mirrors.values() {
        assert_eq!(mirror["status"]["namespaces"], world.quota["status"]["namespaces"]);
    }
}

/// Its absence from the list tells, whatever is answered meanwhile.
#[test]
fn a_mirror_that_ends_during_a_list_is_made_anew_although_a_write_is_answered_then() {
    let mut world = World::new(MirrorNamespaces::Own);
    world.see(1, &[(0, Some(1))], true);
    world.settle(50);
    let gone = world.mirrors.remove("n00000").unwrap();
    world.planner.begin_mirrors();
    world.planner.apply_mirror(&wire(gone), Source::Answer);
    world.planner.end_mirrors();
    world.settle(50);
    assert_eq!(world.mirrors.len(), 1);
}

/// Another leader showed more than this one's quota selects, and a stranger edits.
#[test]
fn what_is_not_as_it_should_be_is_put_right() {
    let mut world = World::new(MirrorNamespaces::Own);
    world.see(1, &[(0, Some(1)), (1, Some(0))], true);
    world.settle(50);
    let (mut planner, quota) = (Planner::new(MirrorNamespaces::Own, 1), world.quota.clone());
    planner.begin_mirrors();
    world.mirrors.values().for_each(|mirror| planner.apply_mirror(&wire(mirror.clone()), Source::Watch));
    planner.end_mirrors();
    planner.apply_quota(&wire(quota), Source::Watch);
    world.planner = planner;
    assert_eq!(world.settle(50), 1, "before the gate is known, nothing is deleted");
    assert_eq!(world.mirrors.len(), 2);
    world.see(1, &[(0, Some(1))], true);
    world.settle(50);
    assert_eq!(world.mirrors.keys().collect::<Vec<_>>(), ["n00000"]);
    let mut edited = world.mirrors["n00000"].clone();
    edited["status"]["namespaces"] = json!([]);
    world.planner.apply_mirror(&wire(edited), Source::Watch);
    world.settle(50);
    assert_eq!(world.own(0).0, json!("1"));
    world.quota["spec"]["quota"]["hard"]["pods"] = json!("7");
    world.planner.apply_quota(&wire(world.quota.clone()), Source::Watch);
    world.settle(50);
    assert_eq!(world.mirrors["n00000"]["spec"], world.quota["spec"]);
}

#[test]
fn ten_thousand_namespaces_fit_in_one_object_and_share_a_budget() {
    const MANY: usize = 10_000;
    let mut world = World::new(MirrorNamespaces::Own);
    let all: Vec<_> = (0..MANY).map(|number| (number, Some(usize::from(number % 100 == 0)))).collect();
    world.see(100, &all, true);
    assert!(world.settle(50) >= MANY / 50);
    assert_eq!(world.mirrors.len(), MANY);
    let status = &world.quota["status"];
    assert!(status.to_string().len() < 600_000, "{} bytes", status.to_string().len());
    let listed = status["namespaces"].as_array().unwrap();
    let taking = listed.iter().filter(|entry| entry["status"]["used"]["pods"] != "0").count();
    assert_eq!(taking, 100, "those that take something come first");
    assert_eq!(status["omittedNamespaces"], MANY - listed.len());
    // One namespace changes: its own mirror is right at once, the totals of the others follow.
    world.see(101, &[(9_999, Some(1))], false);
    assert_eq!(world.tick(50).1, 50);
    assert_eq!(world.own(9_999), (json!("1"), json!("101")));
    let late =
        world.mirrors.values().filter(|mirror| mirror["status"]["total"]["used"]["pods"] == "100").count();
    assert!(late > MANY / 2);
    world.settle(50);
    assert!(world.mirrors.values().all(|mirror| mirror["status"]["total"]["used"]["pods"] == "101"));
}

/// For as long as it takes, which its tenant may make long.
#[test]
fn a_namespace_that_is_being_deleted_is_tried_ever_more_seldom_and_delays_no_other() {
    let mut world = World::new(MirrorNamespaces::Own);
    world.terminating = Some("n00001");
    world.see(0, &[(0, Some(0)), (1, Some(0))], true);
    for second in 1..=600 {
        world.see(second, &[(0, Some(second)), (1, Some(second))], false);
        world.tick(50);
        assert_eq!(world.own(0).0, json!(second.to_string()), "at second {second}");
    }
    assert!((5..=15).contains(&world.refused), "{} attempts in ten minutes", world.refused);
    world.terminating = None;
    let due = world.planner.next_due_ms().unwrap();
    world.now = i64::try_from(due / 1_000).unwrap();
    world.tick(50);
    assert_eq!(world.own(1).0, json!("600"));
    assert_eq!(world.planner.next_due_ms(), None);
}

#[test]
fn how_vms_are_counted_is_a_condition_of_the_quota_and_no_reason_to_write_mirrors() {
    let mut world = World::new(MirrorNamespaces::Own);
    let mut told = Vec::new();
    for calculator in [Some(Calculator::VmiPodUsage), Some(Calculator::IgnoreVmiCalculator), None] {
        world.machines = calculator;
        world.see(1, &[(0, Some(1))], told.is_empty());
        let (statuses, mirrors) = world.tick(10);
        assert_eq!((statuses, mirrors), (1, usize::from(told.is_empty())), "{calculator:?}");
        assert_eq!(world.tick(10), (0, 0), "it says so already");
        let conditions = world.quota["status"].get("conditions").cloned();
        let condition = conditions.map(|conditions| {
            let of = |field: &str| conditions[0][field].as_str().unwrap().to_owned();
            format!("{} {} {} {}", of("type"), of("status"), of("reason"), of("lastTransitionTime"))
        });
        told.push(condition.unwrap_or_default());
    }
    assert_eq!(
        told,
        [
            "VirtualMachines True VmiPodUsage 1970-01-01T00:00:01Z",
            "VirtualMachines False IgnoreVmiCalculator 1970-01-01T00:00:03Z",
            "",
        ]
    );
}

#[test]
fn which_namespaces_are_not_gated_is_said_by_the_quota_and_by_no_mirror() {
    for shows in [MirrorNamespaces::Own, MirrorNamespaces::All] {
        let mut world = World::new(shows);
        world.unenforced =
            Some(Unenforced { reason: "NamespacesNotGated", message: "not enforced: secret".to_owned() });
        world.see(1, &[(0, Some(1))], true);
        assert_eq!(world.tick(10), (1, 1));
        assert_eq!(world.tick(10), (0, 0), "it says so already");
        let condition = &world.quota["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("Enforced"), &json!("False")));
        let mirrors = json!(world.mirrors).to_string();
        assert!(!mirrors.contains("secret"), "{mirrors}");
        world.unenforced = None;
        world.see(1, &[(0, Some(1))], false);
        assert_eq!(world.tick(10), (1, 0));
        assert_eq!(world.quota["status"].get("conditions"), None);
    }
}

/// It may be another pod each second.
#[test]
fn what_is_told_of_pods_without_an_answer_is_written_once_in_ten_seconds() {
    let mut world = World::new(MirrorNamespaces::Own);
    let mut statuses = 0;
    for second in 0..40 {
        world.unevaluated = Some(format!("1 pod that runs (secret/{second})"));
        world.see(1, &[(0, Some(1))], second == 0);
        statuses += world.tick(10).0;
    }
    assert_eq!(statuses, 4);
    let condition = &world.quota["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Evaluated"), &json!("False")));
    assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:01Z");
    assert!(!json!(world.mirrors).to_string().contains("secret"), "tenants do not see others");
    world.unevaluated = None;
    world.see(1, &[(0, Some(1))], false);
    let statuses: usize = (0..20).map(|_| world.tick(10).0).sum();
    assert_eq!((statuses, world.quota["status"].get("conditions")), (1, None));
}

/// Who looks after the quota reads which pod is the oldest, of whatever namespace. Tenants, who see mirrors, do not.
#[test]
fn what_waits_is_told_once_in_ten_seconds_and_in_no_mirror() {
    let mut world = World::new(MirrorNamespaces::All);
    let mut statuses = 0;
    for second in 0..40 {
        let told = HeldTold { since: second, message: format!("2 pods wait, the oldest is secret/{second}") };
        world.held = (2, Some(told));
        world.see(1, &[(0, Some(1)), (1, Some(0))], second == 0);
        statuses += world.tick(10).0;
    }
    assert_eq!(statuses, 4);
    let status = &world.quota["status"];
    let condition = &status["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodsHeld"), &json!("True")));
    assert!(condition["message"].as_str().unwrap().contains("secret/"), "{condition}");
    assert_eq!((&status["held"], &status["heldSince"]), (&json!(2), &json!("1970-01-01T00:00:30Z")));
    assert_eq!(world.mirrors.len(), 2);
    assert!(!json!(world.mirrors).to_string().contains("secret"), "tenants do not see others");
    world.held = (0, None);
    world.see(1, &[(0, Some(1)), (1, Some(0))], false);
    let statuses: usize = (0..20).map(|_| world.tick(10).0).sum();
    assert_eq!((statuses, world.quota["status"].get("conditions")), (1, None));
}
