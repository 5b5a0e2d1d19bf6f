//! The same is told whatever comes first.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_engine::headroom::MARK;

use super::Passage;
use crate::follow::Change;
use crate::migration::table::table;
use crate::table::Style;

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn read<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn quota<K: DeserializeOwned>(spec: &str, hard: Option<&str>) -> Change<K> {
    let status = hard.map(|hard| json!({"hard": {"pods": hard}, "used": {"pods": "1"}}));
    Change::Is(read(json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": spec}}, "status": status})))
}

fn locked<K: DeserializeOwned>(end: &str) -> Change<K> {
    let hard = json!({"pods": "2", MARK: end});
    let status = json!({"hard": hard, "used": {"pods": "1", MARK: end}});
    Change::Is(read(json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}, "status": status})))
}

fn pod<K: DeserializeOwned>(uid: &str, target: bool, phase: &str, node: Option<&str>) -> K {
    let labels = if target { json!({"kubevirt.io/migrationJobUID": "m"}) } else { json!({}) };
    read(json!({
        "metadata": {"name": format!("pod-{uid}"), "uid": uid, "labels": labels},
        "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase},
    }))
}

#[test]
fn a_quota_is_told_when_something_of_it_is_new() {
    let mut passage = Passage::default();
    assert_eq!(passage.quotas(at(0), quota("1", None)), Vec::<String>::new(), "not counted yet");
    assert!(!passage.is_clear());
    assert_eq!(passage.quotas(at(0), quota("1", Some("1"))), ["quota q                  pods 1/1"]);
    assert_eq!(passage.quotas(at(0), quota("1", Some("1"))), Vec::<String>::new());
    assert!(passage.is_clear());
    assert_eq!(
        passage.quotas(at(0), quota("1", Some("2"))),
        ["quota q                  pods 1/2 (spec.hard 1)"]
    );
    assert!(!passage.is_clear());
    passage.quotas(at(0), quota("1", Some("1")));
    assert_eq!(passage.raised.as_ref().unwrap().hard["pods"], "2");
    assert_eq!(passage.spec_changes, 0);
    passage.quotas(at(0), quota("2", Some("2")));
    assert_eq!(passage.spec_changes, 1, "and it counts if it is changed back");
    passage.quotas(at(0), quota("1", Some("1")));
    assert_eq!((passage.spec_changes, passage.first.as_ref().unwrap().spec["pods"].as_str()), (2, "1"));
}

#[test]
fn a_lock_is_told_with_its_end_and_lasts_until_the_mark_is_gone() {
    let mut passage = Passage::default();
    assert_eq!(passage.quotas(at(1), quota("1", Some("1"))).len(), 1);
    assert_eq!(
        passage.quotas(at(10), locked("1767268807421")),
        ["quota q                  pods 1/2 (spec.hard 1), locked until 12:00:07.421 UTC"]
    );
    assert!(!passage.is_clear());
    passage.quotas(at(12), locked("1767268809421"));
    assert_eq!(passage.quotas(at(30), quota("1", Some("1"))), ["quota q                  pods 1/1"]);
    assert_eq!((passage.locked_since, passage.locked_for), (None, Some(at(20))));
    assert!(passage.is_clear());
    passage.quotas(at(40), locked("no time"));
    assert!(!passage.is_clear(), "a mark is a mark");
}

#[test]
fn what_sluice_says_of_the_migration_is_told_once() {
    let event = |controller: &str, kind: &str| {
        Change::Is(read(json!({
            "eventTime": null, "metadata": {}, "reason": "HeadroomGranted", "note": "let in",
            "reportingController": controller,
            "regarding": {"kind": kind, "name": "move"},
        })))
    };
    let mut passage = Passage::default();
    let (sluice, kind) = (names::EVENT_COMPONENT, "VirtualMachineInstanceMigration");
    assert_eq!(passage.events(at(0), event("another", kind)), Vec::<String>::new());
    assert_eq!(passage.events(at(0), event(sluice, "Pod")), Vec::<String>::new());
    assert_eq!(
        passage.events(at(0), event(sluice, kind)),
        ["migration move           HeadroomGranted: let in"]
    );
    assert_eq!(passage.events(at(0), event(sluice, kind)), Vec::<String>::new());
}

#[test]
fn pods_are_told_by_role_and_place() {
    let mut passage = Passage::default();
    assert_eq!(
        passage.pods(at(1), Change::All(vec![pod("a", false, "Running", Some("n1"))])),
        ["pod-a                    source Running on n1"]
    );
    assert_eq!(
        passage.pods(at(2), Change::Is(pod("b", true, "Pending", None))),
        ["pod-b                    target Pending"]
    );
    assert_eq!(passage.pods(at(3), Change::Is(pod("b", true, "Pending", None))), Vec::<String>::new());
    assert_eq!(
        passage.pods(at(4), Change::Is(pod("b", true, "Pending", Some("n2")))),
        ["pod-b                    target Pending on n2"]
    );
    passage.pods(at(5), Change::Is(pod("b", true, "Running", Some("n2"))));
    let lines = passage.pods(at(6), Change::All(vec![pod("b", true, "Running", Some("n2"))]));
    assert_eq!(lines, ["pod-a                    source Deleted on n1"]);
    let gone = passage.pods(at(7), Change::Gone(pod("a", false, "Running", Some("n1"))));
    assert_eq!(gone, Vec::<String>::new(), "told before");
    let phases: Vec<&str> = passage.launchers().iter().map(|launcher| launcher.phase.as_str()).collect();
    assert_eq!(phases, ["Deleted", "Running"]);
}

#[test]
fn vm_and_migration_are_told_once_per_phase() {
    let mut passage = Passage::default();
    let object = |status: Value| {
        Change::Is(read(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "K", "metadata": {"name": "web"}, "status": status,
        })))
    };
    assert_eq!(passage.migrations(at(0), object(json!({}))), ["migration web            Pending"]);
    assert_eq!(passage.migrations(at(0), object(json!({"phase": "Pending"}))), Vec::<String>::new());
    assert_eq!(
        passage.migrations(at(0), object(json!({"phase": "Succeeded"}))),
        ["migration web            Succeeded"]
    );
    let running = json!({"phase": "Running", "nodeName": "n1"});
    assert_eq!(passage.vms(at(0), object(running.clone())), ["VM web                   Running on n1"]);
    assert_eq!(passage.vms(at(0), object(running)), Vec::<String>::new());
}

#[test]
fn the_table_shows_quota_lock_and_pods() {
    let printed =
        |passage: &Passage| table(passage, at(3_500), Style { width: 60, colour: false }).join("\n");
    let mut passage = Passage::default();
    insta::assert_snapshot!(printed(&passage), @"
    quota: not there yet
    lock           none
    VM              
    migration      
    POD                          ROLE    STATE        SINCE  NO…
    ");
    passage.quotas(at(1), quota("1", Some("1")));
    passage.pods(at(1), Change::All(vec![pod("a", false, "Running", Some("n1"))]));
    passage.quotas(at(10), locked("1767268807421"));
    passage.pods(at(2_000), Change::Is(pod("b", true, "Pending", None)));
    insta::assert_snapshot!(printed(&passage), @"
    quota q                    pods
    spec.hard                     1
    status.hard                   2
    used                          1
    lock           until 12:00:07.421 UTC
    VM              
    migration      
    POD                          ROLE    STATE        SINCE  NO…
    pod-a                        source  Running      3.5 s  n1
    pod-b                        target  Pending      1.5 s
    ");
    passage.quotas(at(30), quota("1", Some("1")));
    passage.pods(at(3_000), Change::Is(pod("b", true, "Running", Some("n2"))));
    insta::assert_snapshot!(printed(&passage), @"
    quota q                    pods
    spec.hard                     1
    status.hard                   1
    used                          1
    was raised to                 2
    lock           gone; was seen for 20 ms
    VM              
    migration      
    POD                          ROLE    STATE        SINCE  NO…
    pod-a                        source  Running      3.5 s  n1
    pod-b                        target  Running      0.5 s  n2
    ");
}
