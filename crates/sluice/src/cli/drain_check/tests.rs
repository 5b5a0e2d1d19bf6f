#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_engine::headroom::NativeQuota;
use sluice_engine::{Quantity, Uid};
use sluice_index::Watched as _;

use super::plan::plan;
use super::predicted::{Machine, Observed, Predicted};

const NOW: i64 = 1_767_225_600;

fn wire<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A drain in the making: each VM takes a pod, and 300Mi of memory or what is said.
struct Drain(Observed);

impl Drain {
    fn new() -> Self {
        let mut observed = Observed { now: NOW, ..Observed::default() };
        let kubevirt =
            json!({ "metadata": { "name": "kubevirt", "namespace": "kubevirt", "uid": "kubevirt" } });
        observed.cluster.kubevirts.upsert(&wire(kubevirt));
        Self(observed)
    }

    fn namespace(mut self, name: &str) -> Self {
        let labels = json!({ "kubernetes.io/metadata.name": name });
        let namespace = json!({ "metadata": { "name": name, "uid": name, "labels": labels } });
        self.0.cluster.namespaces.upsert(&wire(namespace));
        self
    }

    fn vm(mut self, namespace: &str, name: &str, memory: &str) -> Self {
        let vmi = json!({
            "metadata": { "name": name, "namespace": namespace, "uid": name, "creationTimestamp": "2025-01-01T00:00:00Z" },
            "spec": { "domain": { "memory": { "guest": "100Mi" } } },
            "status": { "phase": "Running", "nodeName": "node-1" },
        });
        self.0.cluster.vmis.upsert(&wire(vmi));
        let pod = pod(namespace, name, name, memory);
        self.0.cluster.launchers.upsert(&wire(pod.clone()));
        self.0.pods.push(wire(pod));
        self.0.machines.push(Machine {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            can_migrate: true,
        });
        self
    }

    /// `used` beside what is wanted.
    fn quota(mut self, namespace: &str, hard: &str, used: &str) -> Self {
        self.0.quotas.push(wire(json!({
            "metadata": { "name": "rq", "namespace": namespace, "uid": format!("rq-{namespace}") },
            "spec": { "hard": { "requests.memory": hard } },
            "status": { "hard": { "requests.memory": hard }, "used": { "requests.memory": used } },
        })));
        self
    }

    fn policy(mut self, budget: Value) -> Self {
        let policy = json!({
            "metadata": { "name": "tenants", "uid": "tenants" },
            "spec": { "namespaceSelector": {}, "budget": budget },
        });
        self.0.cluster.policies.upsert(&wire(policy));
        self
    }

    /// `vm: result, head-room` of each.
    fn rows(self) -> Vec<String> {
        let rows = plan(&mut Predicted::new(self.0));
        rows.iter().map(|row| format!("{}: {}, {}", row.vm, row.result, row.headroom)).collect()
    }

    fn results(self) -> Vec<&'static str> {
        plan(&mut Predicted::new(self.0)).iter().map(|row| row.result).collect()
    }
}

fn pod(namespace: &str, name: &str, machine: &str, memory: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("virt-launcher-{name}"), "namespace": namespace, "uid": format!("pod-{name}"),
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": machine, "uid": machine,
                "controller": true,
            }],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{ "name": "compute", "resources": { "requests": { "memory": memory } } }],
        },
        "status": { "phase": "Running" },
    })
}

#[test]
fn room_for_one_of_two_is_in_turn_and_room_for_both_is_now() {
    let two = || Drain::new().namespace("a").vm("a", "one", "300Mi").vm("a", "two", "300Mi");
    assert_eq!(two().quota("a", "1200Mi", "600Mi").rows(), ["one: now, -", "two: now, -"]);
    assert_eq!(two().results(), ["now", "now"], "no quota is about them");
    assert_eq!(two().quota("a", "1199Mi", "600Mi").results(), ["in turn", "in turn"]);
    assert_eq!(two().quota("a", "899Mi", "600Mi").results(), ["STUCK", "STUCK"]);
    let rows = plan(&mut Predicted::new(two().quota("a", "1199Mi", "600Mi").0));
    assert!(rows[0].message.starts_with("waits for 1 other of this node: "), "{}", rows[0].message);
    assert_eq!((rows[0].native, rows[0].reason), ("full", "HeadroomExhausted"));
}

#[test]
fn whatever_the_order_what_goes_now_has_room() {
    // The smaller one has room beside the larger one, and the larger one none beside the smaller ones.
    let drain = Drain::new().namespace("a").vm("a", "large", "400Mi").vm("a", "small", "200Mi");
    let drain = drain.vm("a", "tiny", "100Mi").quota("a", "1350Mi", "700Mi");
    assert_eq!(drain.results(), ["in turn", "in turn", "in turn"]);
    let drain = Drain::new().namespace("a").vm("a", "large", "400Mi").vm("a", "small", "200Mi");
    assert_eq!(drain.quota("a", "950Mi", "600Mi").results(), ["STUCK", "now"]);
}

#[test]
fn a_grant_is_taken_by_all_that_move() {
    let two = || {
        let drain = Drain::new().namespace("a").vm("a", "one", "300Mi").vm("a", "two", "300Mi");
        drain.quota("a", "600Mi", "600Mi")
    };
    let grant = |amount: &str| json!({ "mode": "PerNamespace", "resources": { "requests.memory": amount } });
    assert_eq!(two().policy(grant("299Mi")).results(), ["STUCK", "STUCK"]);
    assert_eq!(two().policy(grant("300Mi")).results(), ["in turn", "in turn"]);
    let rows = two().policy(grant("600Mi")).rows();
    assert_eq!(rows[0], "one: now, HeadroomPolicy tenants: requests.memory 600Mi");
    assert_eq!(two().policy(json!({ "mode": "Unlimited" })).results(), ["now", "now"]);
    // Tables have whole mebibytes.
    let rows = two().policy(grant("313524225")).rows();
    assert_eq!(rows[0], "one: STUCK, HeadroomPolicy tenants: requests.memory short by 1048575");
    let rows = two().policy(grant("313000000")).rows();
    assert_eq!(rows[0], "one: STUCK, HeadroomPolicy tenants: requests.memory short by 2Mi");
}

#[test]
fn a_pool_is_shared_by_the_namespaces_of_a_drain() {
    let two = |amount: &str| {
        let drain =
            Drain::new().namespace("a").namespace("b").vm("a", "one", "300Mi").vm("b", "two", "200Mi");
        let drain = drain.quota("a", "300Mi", "300Mi").quota("b", "200Mi", "200Mi");
        drain.policy(json!({ "mode": "Pool", "resources": { "requests.memory": amount } }))
    };
    assert_eq!(two("500Mi").results(), ["now", "now"]);
    assert_eq!(two("499Mi").results(), ["in turn", "in turn"]);
    assert_eq!(two("299Mi").results(), ["STUCK", "now"], "one never takes of it");
    assert_eq!(two("199Mi").results(), ["STUCK", "STUCK"]);
}

#[test]
fn where_nothing_is_raised_only_those_go_that_need_no_raise() {
    let mut drain =
        Drain::new().namespace("a").namespace("b").vm("a", "one", "300Mi").vm("b", "two", "300Mi");
    drain = drain
        .quota("a", "300Mi", "300Mi")
        .quota("b", "600Mi", "300Mi")
        .policy(json!({ "mode": "Unlimited" }));
    for namespace in ["a", "b"] {
        drain.0.unproven.insert(namespace.to_owned(), "set --balancer-proofs".to_owned());
    }
    let rows = plan(&mut Predicted::new(drain.0));
    assert_eq!(
        (rows[0].result, rows[0].reason, &*rows[0].headroom),
        ("STUCK", "HeadroomNotProven", "not proven")
    );
    assert!(rows[0].message.contains("set --balancer-proofs"), "{}", rows[0].message);
    assert_eq!((rows[1].result, &*rows[1].headroom), ("now", "-"));
}

#[test]
fn usage_that_nothing_explains_is_not_raised_further() {
    let drain = Drain::new().namespace("a").vm("a", "one", "300Mi").policy(json!({ "mode": "Unlimited" }));
    // A pod that belongs to no VM holds what is above the quota.
    let mut drain = drain.quota("a", "300Mi", "8492Mi");
    let mut other = pod("a", "other", "other", "8Gi");
    other["metadata"]["ownerReferences"] = json!([]);
    other["metadata"]["creationTimestamp"] = json!("2025-06-01T00:00:00Z");
    drain.0.pods.push(wire(other));
    let rows = plan(&mut Predicted::new(drain.0));
    assert_eq!(
        (rows[0].result, rows[0].reason, &*rows[0].headroom),
        ("STUCK", "HeadroomRefused", "of no help")
    );
}

#[test]
fn what_moves_already_leaves_room_behind() {
    let mut drain = Drain::new().namespace("a").vm("a", "moves", "300Mi").vm("a", "waits", "300Mi");
    drain = drain.quota("a", "900Mi", "900Mi");
    let migration = json!({
        "metadata": { "name": "move", "namespace": "a", "uid": "move" }, "spec": { "vmiName": "moves" },
        "status": { "phase": "Running" },
    });
    drain.0.cluster.vmims.upsert(&wire(migration));
    let mut target = pod("a", "target", "moves", "300Mi");
    target["metadata"]["labels"] = json!({ "kubevirt.io/migrationJobUID": "move" });
    target["spec"]["nodeName"] = json!("node-2");
    drain.0.cluster.launchers.upsert(&wire(target.clone()));
    drain.0.pods.push(wire(target));
    assert_eq!(drain.results(), ["now", "in turn"]);
}

#[test]
fn a_namespace_and_a_machine_that_are_left_alone_are_told() {
    let mut drain = Drain::new().vm("a", "one", "300Mi").vm("a", "two", "300Mi").quota("a", "600Mi", "600Mi");
    drain.0.machines[1].can_migrate = false;
    let namespace = json!({ "metadata": {
        "name": "a", "uid": "a", "annotations": { "quota.sluice.dev/skip-headroom": "true" },
    } });
    drain.0.cluster.namespaces.upsert(&wire(namespace));
    let rows = plan(&mut Predicted::new(drain.policy(json!({ "mode": "Unlimited" })).0));
    assert_eq!((rows[0].result, rows[0].reason), ("STUCK", "HeadroomOptedOut"));
    assert_eq!((rows[1].result, rows[1].reason), ("not migratable", "NotMigratable"));
}

#[test]
fn quotas_of_sluice_hold_the_pods_that_they_count() {
    let own = |hard: &str, used: &str| {
        let mut quota = NativeQuota::new("cluster tenants", Uid::parse("tenants"));
        let amount = |text: &str| Quantity::parse(text).unwrap();
        quota.spec_hard.insert("pods".into(), amount(hard));
        quota.status_hard = quota.spec_hard.clone();
        quota.used.insert("pods".into(), amount(used));
        Arc::new(quota)
    };
    let two = |hard: &str| {
        let mut drain =
            Drain::new().namespace("a").namespace("b").vm("a", "one", "300Mi").vm("b", "two", "300Mi");
        for namespace in ["a", "b"] {
            drain.0.own.insert(namespace.to_owned(), vec![own(hard, "2")]);
        }
        drain
    };
    assert_eq!(two("4").results(), ["now", "now"]);
    assert_eq!(two("3").results(), ["in turn", "in turn"], "it is one quota of both");
    let rows = plan(&mut Predicted::new(two("2").0));
    assert_eq!((rows[0].result, rows[0].sluice, rows[0].native), ("STUCK", "full", "none"));
    assert_eq!((rows[0].reason, rows[0].message.contains("cluster tenants")), ("QuotaExceeded", true));
    // A VM that is charged itself moves for nothing.
    let mut drain = two("2");
    drain.0.own.clear();
    drain.0.counting_machines.insert("a".to_owned());
    let rows = plan(&mut Predicted::new(drain.0));
    assert_eq!((rows[0].result, rows[0].sluice, rows[1].sluice), ("now", "not charged", "-"));
}
