//! Quotas with scopes: a pod is charged to the one that it is under, and not to its opposite.

use futures::future::join_all;
use serde_json::{Value, json};

use super::spec::{Amounts, Spec, amounts, pod};

const REQUESTS: Amounts<'_> = &[("cpu", "500m"), ("memory", "200Mi")];
const LIMITS: Amounts<'_> = &[("cpu", "1"), ("memory", "400Mi")];
const ONE_POD: Amounts<'_> = &[("pods", "1")];
const NO_POD: Amounts<'_> = &[("pods", "0")];
const ALL_OF_ONE: Amounts<'_> = &[
    ("pods", "1"),
    ("requests.cpu", "500m"),
    ("requests.memory", "200Mi"),
    ("limits.cpu", "1"),
    ("limits.memory", "400Mi"),
];
const ALL_OF_NONE: Amounts<'_> = &[
    ("pods", "0"),
    ("requests.cpu", "0"),
    ("requests.memory", "0"),
    ("limits.cpu", "0"),
    ("limits.memory", "0"),
];

/// How a quota says which scope it has.
type Saying = fn(&str) -> Value;

fn by_scopes(scope: &str) -> Value {
    json!({ "scopes": [scope] })
}

fn by_selector(scope: &str) -> Value {
    json!({ "scopeSelector": { "matchExpressions": [{ "scopeName": scope, "operator": "Exists" }] } })
}

/// Two scopes that exclude each other, a pod under each, and what a quota counts of one and of none.
struct Pair<'a> {
    scopes: [&'a str; 2],
    hard: Amounts<'a>,
    pods: [Value; 2],
    one: Amounts<'a>,
    none: Amounts<'a>,
}

fn terminating() -> Pair<'static> {
    let mut ends = pod("terminating-pod", REQUESTS, LIMITS);
    ends["spec"]["activeDeadlineSeconds"] = json!(3600);
    Pair {
        scopes: ["Terminating", "NotTerminating"],
        hard: &[
            ("pods", "5"),
            ("requests.cpu", "1"),
            ("requests.memory", "500Mi"),
            ("limits.cpu", "2"),
            ("limits.memory", "1Gi"),
        ],
        pods: [ends, pod("test-pod", REQUESTS, LIMITS)],
        one: ALL_OF_ONE,
        none: ALL_OF_NONE,
    }
}

fn best_effort() -> Pair<'static> {
    Pair {
        scopes: ["BestEffort", "NotBestEffort"],
        hard: &[("pods", "5")],
        pods: [pod("pfpod", &[], &[]), pod("burstable-pod", REQUESTS, LIMITS)],
        one: ONE_POD,
        none: NO_POD,
    }
}

impl Pair<'_> {
    async fn passes(&self, says: Saying) {
        let spec = Spec::new("scopes").await;
        let names = self.scopes.map(|scope| format!("quota-{}", scope.to_lowercase()));
        for (name, scope) in names.iter().zip(self.scopes) {
            let mut quota = says(scope);
            quota["hard"] = amounts(self.hard);
            spec.quota(name, quota).await;
        }
        for (at, pod) in self.pods.iter().enumerate() {
            let (name, own, other) = (pod["metadata"]["name"].as_str().unwrap(), &names[at], &names[1 - at]);
            spec.pod(pod).await;
            spec.until_not_gated(name).await;
            spec.assert_used(own, self.one).await;
            spec.assert_used(other, self.none).await;
            spec.delete_pod(name).await;
            spec.until_used(own, self.none).await;
            spec.assert_used(other, self.none).await;
        }
    }
}

#[tokio::test]
async fn terminating_scopes() {
    terminating().passes(by_scopes).await;
}

#[tokio::test]
async fn terminating_scopes_by_selector() {
    terminating().passes(by_selector).await;
}

#[tokio::test]
async fn best_effort_scope() {
    best_effort().passes(by_scopes).await;
}

#[tokio::test]
async fn best_effort_scope_by_selector() {
    best_effort().passes(by_selector).await;
}

#[tokio::test]
async fn cross_namespace_pod_affinity_scope() {
    let spec = Spec::new("affinity").await;
    let mut quota = by_selector("CrossNamespacePodAffinity");
    quota["hard"] = json!({ "pods": "5" });
    spec.quota("quota", quota).await;
    let of_ads = json!({ "matchExpressions": [{ "key": "team", "operator": "In", "values": ["ads"] }] });
    let terms = [
        ("own", json!({}), "0"),
        ("namespaces", json!({ "namespaces": ["ns1"] }), "1"),
        ("selector", json!({ "namespaceSelector": of_ads }), "2"),
    ];
    for (name, mut term, counted) in terms.clone() {
        let mut pod = pod(name, &[], &[]);
        term["topologyKey"] = json!("region");
        pod["spec"]["affinity"] =
            json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
        spec.pod(&pod).await;
        spec.until_not_gated(name).await;
        spec.assert_used("quota", &[("pods", counted)]).await;
    }
    join_all(terms.iter().map(|(name, ..)| spec.delete_pod(name))).await;
    spec.until_used("quota", &[("pods", "0")]).await;
}
