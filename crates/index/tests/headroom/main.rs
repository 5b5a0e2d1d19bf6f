//! Questions to a cluster that need several kinds, and what each kind keeps.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod accounts;
mod holders;
mod launchers;
mod migrations;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_engine::headroom::{Budget, Grant, MARK, Need, Plan, plan};
use sluice_engine::{Charge, Quantity, Resource, ScopeFacts, Uid};
use sluice_index::{
    Change, Cluster, MigrationPriority, Mode, Phase, PodWire, RawAmounts, ResourceQuotaRecord,
    ResourceQuotaWire, VmiRecord, VmimRecord, VmimWire, Watched,
};

/// Feeds objects as a watch delivers them.
fn see<K: Watched<Wire: DeserializeOwned>>(kind: &mut K, object: Value) -> Change {
    kind.upsert(&serde_json::from_value(object).unwrap())
}

fn lose<K: Watched<Wire: DeserializeOwned>>(kind: &mut K, object: Value) -> bool {
    kind.remove(&serde_json::from_value(object).unwrap())
}

fn meta(namespace: &str, name: &str, version: u32) -> Value {
    json!({
        "namespace": namespace, "name": name, "uid": format!("{namespace}/{name}"),
        "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
    })
}

fn quota(namespace: &str, version: u32, hard: &str, enforced: &str, used: &str) -> Value {
    json!({
        "metadata": meta(namespace, "rq", version),
        "spec": {"hard": {"requests.memory": hard}},
        "status": {"hard": {"requests.memory": enforced}, "used": {"requests.memory": used}},
    })
}

fn namespace(name: &str, labels: Value, annotations: Value) -> Value {
    json!({"metadata": {"name": name, "uid": name, "labels": labels, "annotations": annotations}})
}

fn policy(name: &str, selector: Value, mode: &str, memory: &str, opt_out: Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": name},
        "spec": {
            "namespaceSelector": selector, "budget": {"mode": mode, "resources": {"memory": memory}}, "optOut": opt_out,
        },
    })
}

/// 2026-01-01T01:00:00Z, an hour after everything here was created.
const NOW: i64 = 1_767_229_200;

/// Two namespaces that share a pool, one outside of it.
fn pool() -> Cluster {
    let mut index = Cluster::default();
    for (name, labels) in
        [("a", json!({"tier": "gold"})), ("b", json!({"tier": "silver"})), ("out", json!({}))]
    {
        see(&mut index.namespaces, namespace(name, labels, json!({})));
        see(&mut index.resource_quotas, quota(name, 1, "1Gi", "1Gi", "1Gi"));
    }
    let selector =
        json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "silver"]}]});
    see(&mut index.policies, policy("shared", selector, "Pool", "2Gi", json!(null)));
    index
}

/// A quota of 1Gi that is raised.
fn marked(namespace: &str, version: u32, enforced: &str, used: &str) -> Value {
    let mut quota = quota(namespace, version, "1Gi", enforced, used);
    quota["status"]["hard"][MARK] = json!("1795294869123");
    quota
}

fn taken(budget: &Budget) -> Option<String> {
    match &budget.grants[..] {
        [Grant::Pool { taken_elsewhere, .. }] => taken_elsewhere.get("memory").map(ToString::to_string),
        other => panic!("one pool was expected: {other:?}"),
    }
}

fn memory(text: &str) -> Need {
    let amount = Quantity::parse(text).unwrap();
    Need::new(Charge::from_pairs([(Resource::Memory, amount.into())]), ScopeFacts::default())
}

#[test]
fn a_pool_knows_what_is_taken_elsewhere() {
    let mut index = pool();
    accounts::kubevirt(&mut index);
    accounts::running(&mut index, "b", "web", "1Gi");
    assert_eq!(taken(&index.budget("a", NOW)), None);
    assert_eq!(index.budget("out", NOW), Budget::default());
    // What has grown for good, and in a namespace that the pool does not cover.
    see(&mut index.resource_quotas, quota("b", 2, "1Gi", "1Gi", "1536Mi"));
    see(&mut index.resource_quotas, quota("out", 2, "1Gi", "1Gi", "9Gi"));
    assert_eq!(
        taken(&index.budget("a", NOW)).as_deref(),
        Some("236Mi"),
        "its overhead: the machine is as old as the quota"
    );
    // A raise counts as soon as it is seen, and once only when it is taken up.
    see(&mut index.resource_quotas, marked("b", 3, "2Gi", "1Gi"));
    assert_eq!(taken(&index.budget("a", NOW)).as_deref(), Some("1Gi"));
    assert_eq!(taken(&index.budget("b", NOW)), None, "its own is not taken elsewhere");
    see(&mut index.resource_quotas, marked("b", 4, "2Gi", "2Gi"));
    assert_eq!(taken(&index.budget("a", NOW)).as_deref(), Some("1Gi"));
    accounts::migrating(&mut index, "b", "web", "1Gi");
    see(&mut index.resource_quotas, quota("b", 5, "1Gi", "1Gi", "2Gi"));
    assert_eq!(taken(&index.budget("a", NOW)).as_deref(), Some("1Gi"), "until the source has ended");
    let decided = plan(&memory("1Gi"), &index.quotas_in("a"), &index.budget("a", NOW));
    assert!(matches!(decided, Plan::Raise(_)), "{decided:?}");
    let decided = plan(&memory("1025Mi"), &index.quotas_in("a"), &index.budget("a", NOW));
    assert!(matches!(decided, Plan::NotEnough(_)));
    // The process that starts now knows the same.
    accounts::ended(&mut index, "b", "web");
    assert_eq!(taken(&index.budget("a", NOW)).as_deref(), Some("236Mi"), "what stays above");
    see(&mut index.resource_quotas, quota("b", 6, "1Gi", "1Gi", "1Gi"));
    assert_eq!(taken(&index.budget("a", NOW)), None);
}

#[test]
fn a_pool_counts_all_that_machines_take_which_are_younger_than_the_limit() {
    let mut index = pool();
    accounts::kubevirt(&mut index);
    accounts::running(&mut index, "b", "web", "1Gi");
    let mut older = quota("b", 2, "1Gi", "1Gi", "1536Mi");
    older["metadata"]["creationTimestamp"] = json!("2025-12-31T00:00:00Z");
    see(&mut index.resource_quotas, older);
    assert_eq!(taken(&index.budget("a", NOW)).as_deref(), Some("512Mi"));
}

#[test]
fn the_most_overdrawn_quota_of_a_namespace_counts() {
    let mut index = pool();
    see(&mut index.resource_quotas, marked("b", 2, "1280Mi", "1280Mi"));
    let mut second = quota("b", 3, "1Gi", "1Gi", "1792Mi");
    second["metadata"]["name"] = json!("second");
    second["spec"]["hard"] = json!({"memory": "1Gi", "requests.memory": "2Gi"});
    second["status"]["hard"] = json!({"memory": "1792Mi", "requests.memory": "2Gi", MARK: "1795294869123"});
    second["status"]["used"] = json!({"memory": "1792Mi", "requests.memory": "1792Mi"});
    see(&mut index.resource_quotas, second.clone());
    assert_eq!(taken(&index.budget("a", NOW)).as_deref(), Some("768Mi"));
    assert_eq!(index.resource_quotas.above().count(), 2);
    assert!(lose(&mut index.resource_quotas, second));
    assert_eq!(taken(&index.budget("a", NOW)).as_deref(), Some("256Mi"));
}

#[test]
fn namespaces_and_quotas_can_be_left_alone() {
    let mut index = pool();
    let opt_out = json!({"namespaces": ["b"], "resourceQuotaSelector": {"matchLabels": {"keep": "me"}}});
    see(&mut index.policies, policy("all", json!({}), "Unlimited", "0", opt_out));
    assert_eq!(index.budget("a", NOW).grants.len(), 2);
    assert_eq!(index.budget("b", NOW).grants.len(), 1, "only the pool");
    let mut kept = quota("a", 2, "1Gi", "1Gi", "1Gi");
    kept["metadata"]["labels"] = json!({"keep": "me"});
    see(&mut index.resource_quotas, kept);
    let decided = plan(&memory("3Gi"), &index.quotas_in("a"), &index.budget("a", NOW));
    assert!(matches!(decided, Plan::NotEnough(_)), "the unlimited grant is not for this quota: {decided:?}");
    // By annotation, of the quota or of the namespace.
    let mut index = pool();
    let annotated = |version: u32, annotations: Value| {
        let mut quota = quota("a", version, "1Gi", "1Gi", "1Gi");
        quota["metadata"]["annotations"] = annotations;
        quota
    };
    // Harvester's annotation speaks to Harvester's own scaler.
    let harvester = json!({"harvesterhci.io/skipResourceQuotaAutoScaling": "true"});
    see(&mut index.resource_quotas, annotated(3, harvester.clone()));
    let decided = plan(&memory("1Gi"), &index.quotas_in("a"), &index.budget("a", NOW));
    assert!(matches!(decided, Plan::Raise(_)), "{decided:?}");
    see(&mut index.namespaces, namespace("b", json!({"tier": "gold"}), harvester));
    assert!(!index.opted_out("b"));
    let skip = |value: &str| json!({names::OWN_OPT_OUT: value, "other": "x"});
    see(&mut index.resource_quotas, annotated(4, skip("true")));
    let decided = plan(&memory("1Gi"), &index.quotas_in("a"), &index.budget("a", NOW));
    assert!(matches!(decided, Plan::Refused(_)), "{decided:?}");
    see(&mut index.namespaces, namespace("b", json!({"tier": "gold"}), skip("true")));
    assert!(index.opted_out("b"));
    assert_eq!(index.budget("b", NOW), Budget::default());
    assert!(index.quotas_in("b").iter().all(|quota| quota.opted_out));
    assert!(index.quota("b", "rq").unwrap().opted_out);
    see(&mut index.namespaces, namespace("b", json!({"tier": "gold"}), skip("false")));
    assert!(!index.opted_out("b"));
}

#[test]
fn a_policy_that_cannot_be_understood_grants_nothing() {
    let mut index = pool();
    let broken = json!({"matchExpressions": [{"key": "tier", "operator": "Near", "values": ["gold"]}]});
    see(&mut index.policies, policy("selector", broken.clone(), "Unlimited", "0", json!(null)));
    see(&mut index.policies, policy("mode", json!({}), "Sometimes", "0", json!(null)));
    see(
        &mut index.policies,
        policy("exception", json!({}), "Unlimited", "0", json!({"resourceQuotaSelector": broken})),
    );
    assert_eq!(index.budget("a", NOW).grants.len(), 1, "only the pool");
    for name in ["selector", "mode", "exception"] {
        assert_eq!(index.policies.get(name).unwrap().errors.len(), 1, "{name}");
    }
    see(&mut index.policies, policy("amount", json!({}), "PerNamespace", "much", json!(null)));
    let grants = index.budget("out", NOW).grants;
    assert!(
        matches!(&grants[..], [Grant::Amounts { additional, .. }] if additional.is_empty()),
        "{grants:?}"
    );
}

#[test]
fn a_percentage_and_a_bound_of_each_namespace_are_read() {
    let mut index = Cluster::default();
    let with = |name: &str, budget: Value| {
        json!({
            "metadata": {"name": name, "uid": name}, "spec": {"namespaceSelector": {}, "budget": budget},
        })
    };
    see(&mut index.policies, with("percent", json!({"mode": "PerNamespace", "percent": 10})));
    let read = index.policies.get("percent").unwrap();
    assert_eq!((read.mode, read.percent, read.errors.len()), (Mode::PerNamespace, Some(10), 0));
    let pool = |most: &str| json!({"mode": "Pool", "resources": {"memory": "64Gi"}, "perNamespace": {"memory": most}});
    see(&mut index.policies, with("bound", pool("8Gi")));
    let read = index.policies.get("bound").unwrap();
    assert_eq!((read.mode, read.percent, read.errors.len()), (Mode::Pool, None, 0));
    assert_eq!(read.per_namespace["memory"].to_string(), "8Gi");
    // The CRD lets neither through: nothing is granted that may be more than was meant.
    see(&mut index.policies, with("bound", pool("much")));
    let read = index.policies.get("bound").unwrap();
    assert_eq!((read.mode, read.errors.len()), (Mode::Unknown, 1), "{:?}", read.errors);
    assert!(read.errors[0].starts_with("spec.budget.perNamespace: memory: "), "{:?}", read.errors);
    for percent in [-1, 0, 1001, i64::MAX] {
        see(&mut index.policies, with("odd", json!({"mode": "PerNamespace", "percent": percent})));
        let read = index.policies.get("odd").unwrap();
        assert_eq!((read.percent, read.errors.len()), (None, 1), "{percent}");
    }
}

#[test]
fn grants_of_a_namespace_add_up() {
    let mut index = Cluster::default();
    let grant = |name: &str, memory: &str| {
        json!({
            "metadata": meta("a", name, 1), "spec": {"additionalMigrationResources": {"requests.memory": memory}},
        })
    };
    see(&mut index.vmmrqs, grant("one", "100Mi"));
    see(&mut index.vmmrqs, grant("two", "28Mi"));
    let budget = index.budget("a", NOW);
    let [Grant::Amounts { source, additional, .. }] = &budget.grants[..] else { panic!("{budget:?}") };
    assert_eq!(&**source, "VirtualMachineMigrationResourceQuota one, two");
    assert_eq!(additional["memory"].to_string(), "128Mi");
    let mut dying = grant("two", "28Mi");
    dying["metadata"]["resourceVersion"] = json!("2");
    dying["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(see(&mut index.vmmrqs, dying), Change::Changed);
    assert!(matches!(
        &index.budget("a", NOW).grants[..],
        [Grant::Amounts { additional, .. }] if additional["memory"].to_string() == "100Mi",
    ));
}

#[test]
fn of_a_grant_so_many_keys_count() {
    let mut index = Cluster::default();
    let resources: serde_json::Map<String, Value> = (0..100).map(|n| (format!("k{n}"), json!("1"))).collect();
    see(
        &mut index.vmmrqs,
        json!({
            "metadata": meta("a", "g", 1),
            "spec": {"additionalMigrationResources": resources},
        }),
    );
    let record = index.vmmrqs.get("a", "g").unwrap();
    assert_eq!((record.additional.len(), record.errors.len()), (64, 1), "bounded");
}

#[test]
fn texts_stay_as_the_server_sent_them() {
    let object = json!({
        "metadata": meta("a", "rq", 7),
        "spec": {"hard": {"limits.cpu": "2000m", "requests.memory": "1024Mi", "odd": "1e99"}},
        "status": {
            "hard": {"limits.cpu": "2000m", "requests.memory": "2147483648", "stray": "3"},
            "used": {"limits.cpu": "0.5", "requests.memory": 7},
        },
    });
    let record = ResourceQuotaRecord::read(&serde_json::from_value::<ResourceQuotaWire>(object).unwrap());
    let raw = record.raw();
    let text = |map: &RawAmounts, key: &str| map.get(key).cloned();
    assert_eq!(text(&raw.spec_hard, "limits.cpu").as_deref(), Some("2000m"));
    assert_eq!(text(&raw.used, "limits.cpu").as_deref(), Some("0.5"));
    assert_eq!(text(&raw.spec_hard, "stray"), None);
    assert_eq!(raw.spec_hard.len() + raw.status_hard.len() + raw.used.len(), 8);
    let quota = record.native();
    assert_eq!(quota.unreadable.iter().map(|key| &**key).collect::<Vec<_>>(), ["odd"]);
    assert!(quota.is_raised());
}

/// The quota that Rancher makes in Harvester has 13 keys.
#[test]
fn a_record_is_small() {
    let keys = [
        "configmaps",
        "limits.cpu",
        "limits.memory",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    ];
    let amounts: serde_json::Map<String, Value> =
        keys.iter().map(|key| ((*key).to_owned(), json!("60Gi"))).collect();
    let object = |keys: Value| {
        json!({
            "metadata": meta("a", "default-gn4d2", 7), "spec": {"hard": keys}, "status": {"hard": keys, "used": keys},
        })
    };
    let bytes =
        |keys: Value| ResourceQuotaRecord::read(&serde_json::from_value(object(keys)).unwrap()).bytes();
    assert!(bytes(Value::Object(amounts)) <= 700);
    assert!(
        bytes(
            json!({"limits.cpu": "30", "limits.memory": "60Gi", "requests.cpu": "30", "requests.memory": "60Gi"})
        ) <= 350
    );
}

#[test]
fn scopes_come_along() {
    let read = |spec: Value| {
        let object = json!({"metadata": meta("a", "rq", 1), "spec": spec, "status": {"hard": {"pods": "1"}}});
        ResourceQuotaRecord::read(&serde_json::from_value(object).unwrap()).native()
    };
    let plain = ScopeFacts::default();
    let high = ScopeFacts { priority_class: Some("high".into()), ..ScopeFacts::default() };
    assert!(read(json!({})).governs(&plain));
    assert!(!read(json!({"scopes": ["BestEffort"]})).governs(&plain));
    assert!(!read(json!({"scopes": ["Unheard"]})).governs(&plain));
    let selector = json!({"scopeSelector": {"matchExpressions": [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}});
    assert!(read(selector.clone()).governs(&high));
    assert!(!read(selector).governs(&plain));
}
