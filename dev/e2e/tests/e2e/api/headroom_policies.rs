//! HeadroomPolicies: which are accepted, and what a refusal tells to do.

use serde_json::{Value, json};
use sluice_e2e::call::post;

use super::headroom::{OWN, many, refused};
use crate::context::{kubectl, shared};

fn policy(spec: Value) -> Value {
    json!({"apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomPolicy", "metadata": {"name": "p"}, "spec": spec})
}

fn with_budget(budget: Value) -> Value {
    json!({"namespaceSelector": {}, "budget": budget})
}

#[tokio::test]
async fn policies_that_make_sense_are_accepted_and_kept() {
    let client = shared().await.bed.admin().unwrap();
    let path = format!("{OWN}/headroompolicies?dryRun=All");
    let keys = json!({
        "cpu": 1, "memory": "1Gi", "ephemeral-storage": "1Gi", "pods": 1, "count/pods": "1",
        "requests.cpu": "500m", "requests.memory": "1.5Gi", "requests.ephemeral-storage": 0,
        "limits.cpu": 4, "limits.memory": "8Gi", "limits.ephemeral-storage": "1Gi",
        "hugepages-2Mi": "4Mi", "requests.hugepages-1Gi": "1Gi", "requests.nvidia.com/gpu": 1,
    });
    for spec in [
        json!({"namespaceSelector": {}, "budget": {"mode": "Unlimited"}}),
        json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "budget": {"mode": "Pool", "resources": keys}}),
        json!({
            "namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
                {"key": "a", "operator": "Exists"},
            ]},
            "budget": {"mode": "PerNamespace", "resources": {"requests.memory": "4Gi"}},
            "optOut": {
                "namespaces": ["quiet", "still"],
                "resourceQuotaSelector": {"matchLabels": {"fixed": "true"}},
            },
        }),
        with_budget(json!({"mode": "PerNamespace", "percent": 1})),
        with_budget(json!({"mode": "PerNamespace", "resources": {"pods": 1}, "percent": 1000})),
        with_budget(json!({
            "mode": "Pool",
            "resources": {"requests.memory": "64Gi", "cpu": 16, "pods": 9},
            "perNamespace": {"memory": "8Gi", "requests.cpu": 2, "pods": 1},
        })),
    ] {
        let answer = post(&client, &path, &policy(spec.clone())).await.unwrap();
        assert_eq!((answer.code, &answer.body["spec"]), (201, &spec), "{answer:?}");
    }
}

#[tokio::test]
async fn policies_that_make_no_sense_are_refused_with_a_remedy() {
    let client = shared().await.bed.admin().unwrap();
    let path = format!("{OWN}/headroompolicies?dryRun=All");
    let budget = |mode: &str, resources: Value| with_budget(json!({"mode": mode, "resources": resources}));
    let percent = |mode: &str, percent: Value| {
        let resources = if mode == "Unlimited" { json!({}) } else { json!({"pods": 1}) };
        with_budget(json!({"mode": mode, "resources": resources, "percent": percent}))
    };
    let bounded = |mode: &str, most: Value| {
        with_budget(json!({"mode": mode, "resources": {"memory": "1Gi"}, "perNamespace": most}))
    };
    let everywhere =
        |selector: Value| json!({"namespaceSelector": selector, "budget": {"mode": "Unlimited"}});
    let opt_out =
        |opt_out: Value| json!({"namespaceSelector": {}, "budget": {"mode": "Unlimited"}, "optOut": opt_out});
    let missing = "such as requests.memory, give a percent with mode PerNamespace, or choose mode Unlimited";
    let long: Vec<String> = (0..1001).map(|number| format!("n{number}")).collect();
    for (spec, text) in [
        (json!({"budget": {"mode": "Unlimited"}}), "spec.namespaceSelector: Required value"),
        (json!({"namespaceSelector": {}}), "spec.budget: Required value"),
        (json!({"namespaceSelector": {}, "budget": {}}), "spec.budget.mode: Required value"),
        (budget("Some", json!({"pods": 1})), "spec.budget.mode: Unsupported value"),
        (json!({"namespaceSelector": {}, "budget": {"mode": "Pool"}}), missing),
        (budget("PerNamespace", json!({})), missing),
        (budget("Unlimited", json!({"pods": 1})), "mode Unlimited has no resources: remove them"),
        (budget("Pool", json!({"pods": -1})), "an amount must not be negative"),
        (budget("Pool", json!({"cpu": "-1m"})), "an amount must not be negative"),
        (budget("Pool", json!({"requests.storage": "1Gi"})), "only keys that pods consume"),
        (budget("Pool", json!({"services": 1})), "only keys that pods consume"),
        (budget("Pool", json!({"count/secrets": 1})), "only keys that pods consume"),
        (
            budget("Pool", json!({"gold.storageclass.storage.k8s.io/requests.storage": 1})),
            "only keys that pods consume",
        ),
        (budget("Pool", json!({"nvidia.com/gpu": 1})), "only keys that pods consume"),
        (budget("Pool", json!({"limits.nvidia.com/gpu": 1})), "only keys that pods consume"),
        (budget("Pool", json!({"": 1})), "only keys that pods consume"),
        (budget("Pool", many(65)), "must have at most 64 items"),
        (with_budget(json!({"mode": "Pool", "percent": 10})), missing),
        (percent("Pool", json!(10)), "percent is of the quotas of one namespace"),
        (percent("Unlimited", json!(10)), "percent is of the quotas of one namespace"),
        (percent("PerNamespace", json!(0)), "spec.budget.percent"),
        (percent("PerNamespace", json!(1001)), "spec.budget.percent"),
        (percent("PerNamespace", json!(-5)), "spec.budget.percent"),
        (percent("PerNamespace", json!(1.5)), "spec.budget.percent"),
        (percent("PerNamespace", json!("10")), "spec.budget.percent"),
        (
            bounded("PerNamespace", json!({"memory": "1Gi"})),
            "perNamespace bounds what one namespace takes of a pool",
        ),
        (bounded("Pool", json!({"memory": "-1Gi"})), "an amount must not be negative"),
        (bounded("Pool", json!({"services": 1})), "only keys that pods consume"),
        (bounded("Pool", json!({"pods": 1})), "a key of perNamespace is not in resources"),
        (bounded("Pool", json!({"limits.memory": "1Gi"})), "a key of perNamespace is not in resources"),
        (bounded("Pool", many(65)), "must have at most 64 items"),
        (
            everywhere(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
            "operators In and NotIn need values",
        ),
        (
            everywhere(json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]})),
            "Exists and DoesNotExist have none",
        ),
        (everywhere(json!({"matchExpressions": [{"key": "a", "operator": "Like"}]})), "Unsupported value"),
        (opt_out(json!({"namespaces": ["a", "a"]})), "Duplicate value"),
        (opt_out(json!({"namespaces": [""]})), "spec.optOut.namespaces[0]"),
        (opt_out(json!({"namespaces": long})), "must have at most 1000 items"),
        (
            opt_out(
                json!({"resourceQuotaSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": []}]}}),
            ),
            "need values",
        ),
    ] {
        refused(&post(&client, &path, &policy(spec)).await.unwrap(), text);
    }
}

#[tokio::test]
async fn kubectl_shows_whether_a_policy_works() {
    let bed = shared().await.bed;
    let client = bed.admin().unwrap();
    // Selects nothing: other tests share the cluster.
    let spec = json!({
        "namespaceSelector": {"matchLabels": {"no": "namespace"}},
        "budget": {"mode": "Pool", "resources": {"pods": 1}},
    });
    let mut object = policy(spec);
    object["metadata"]["name"] = json!("shown");
    let path = format!("{OWN}/headroompolicies");
    assert_eq!(post(&client, &path, &object).await.unwrap().code, 201);
    let table = kubectl(bed, &["get", "headroompolicy", "shown"]).await;
    let (head, row) = table.trim_end().split_once('\n').unwrap();
    let columns = ["NAME", "BUDGET", "NAMESPACES", "READY", "REASON", "AGE"];
    assert_eq!(head.split_whitespace().collect::<Vec<_>>(), columns);
    assert!(row.starts_with("shown ") && row.contains(" Pool "), "{table}");
    kubectl(bed, &["delete", "headroompolicy", "shown"]).await;
}
