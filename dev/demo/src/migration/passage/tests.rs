//! The same is told whatever comes first.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Passage;
use crate::migration::listing::Change;

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

fn window<K: DeserializeOwned>(uid: &str) -> K {
    read(json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "MigrationWindow",
        "metadata": {"name": "window", "uid": uid},
        "spec": {
            "holder": "h", "nonce": "n", "creator": "c", "until": "2026-01-01T00:00:00Z",
            "migration": {"name": "move", "uid": "m", "vmi": "web"},
        },
    }))
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
    assert_eq!(passage.quotas(quota("1", None)), Vec::<String>::new(), "not counted yet");
    assert!(!passage.is_clear());
    assert_eq!(passage.quotas(quota("1", Some("1"))), ["quota q                  pods 1/1"]);
    assert_eq!(passage.quotas(quota("1", Some("1"))), Vec::<String>::new());
    assert!(passage.is_clear());
    assert_eq!(passage.quotas(quota("1", Some("2"))), ["quota q                  pods 1/2 (spec.hard 1)"]);
    assert!(!passage.is_clear());
    passage.quotas(quota("1", Some("1")));
    assert_eq!(passage.raised.as_ref().unwrap().hard["pods"], "2");
    assert_eq!(passage.spec_changes, 0);
    passage.quotas(quota("2", Some("2")));
    assert_eq!(passage.spec_changes, 1, "and it counts if it is changed back");
    passage.quotas(quota("1", Some("1")));
    assert_eq!((passage.spec_changes, passage.first.as_ref().unwrap().spec["pods"].as_str()), (2, "1"));
}

#[test]
fn a_window_ends_when_it_is_deleted_or_missing_or_followed() {
    let mut passage = Passage::default();
    let open = "window                   open for migration move of VM web";
    assert_eq!(passage.windows(at(10), Change::Is(window("a"))), [open]);
    assert_eq!(passage.windows(at(11), Change::Is(window("a"))), Vec::<String>::new());
    assert_eq!(passage.windows(at(20), Change::Gone(window("other"))), Vec::<String>::new());
    assert_eq!(
        passage.windows(at(40), Change::Gone(window("a"))),
        ["window                   gone after 30 ms"]
    );
    assert_eq!(passage.windows(at(41), Change::Gone(window("a"))), Vec::<String>::new());

    passage.windows(at(50), Change::Is(window("b")));
    assert_eq!(
        passage.windows(at(55), Change::All(Vec::new())),
        ["window                   gone after 5 ms"]
    );

    passage.windows(at(60), Change::All(vec![window("c")]));
    assert_eq!(
        passage.windows(at(67), Change::Is(window("d"))),
        ["window                   gone after 7 ms".to_owned(), open.to_owned()]
    );
    assert!(passage.open.is_some());
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
    assert_eq!(passage.migrations(object(json!({}))), ["migration web            Pending"]);
    assert_eq!(passage.migrations(object(json!({"phase": "Pending"}))), Vec::<String>::new());
    assert_eq!(
        passage.migrations(object(json!({"phase": "Succeeded"}))),
        ["migration web            Succeeded"]
    );
    let running = json!({"phase": "Running", "nodeName": "n1"});
    assert_eq!(passage.vms(object(running.clone())), ["VM web                   Running on n1"]);
    assert_eq!(passage.vms(object(running)), Vec::<String>::new());
}
