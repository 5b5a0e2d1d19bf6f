//! Objects the suites create.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{AAQ, ApplicationAwareResourceQuota, names};

/// The label that makes a namespace targeted by default.
pub const TARGETED: &[(&str, &str)] = &[(names::TARGET_LABEL, "true")];

/// A pod of one container with these requests, to be run by a simulated node.
#[must_use]
pub fn pod(name: &str, requests: &[(&str, &str)]) -> Pod {
    let requests: serde_json::Map<String, Value> =
        requests.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    from_json(json!({
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
        },
    }))
}

/// As [`pod`], but no node takes it: it waits for one when it is released. Nodes that are simulated do not resize pods, and
/// with many pods they are what a test would measure.
#[must_use]
pub fn pod_without_node(name: &str, requests: &[(&str, &str)]) -> Pod {
    let mut pod = pod(name, requests);
    if let Some(spec) = pod.spec.as_mut() {
        spec.node_selector = Some([("no".to_owned(), "node".to_owned())].into());
    }
    pod
}

/// A quota with these limits.
#[must_use]
pub fn quota(name: &str, hard: &[(&str, &str)]) -> ApplicationAwareResourceQuota {
    let hard: serde_json::Map<String, Value> =
        hard.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    from_json(json!({
        "apiVersion": names::API_VERSION,
        "kind": "ApplicationAwareResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard},
    }))
}

/// Any object from JSON that is known to be right.
///
/// # Panics
/// When it is not.
#[must_use]
#[allow(clippy::panic)]
pub fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap_or_else(|error| panic!("the object is wrong: {error}"))
}

/// Creates an object.
///
/// # Errors
/// What the API server says.
pub async fn create<K>(client: &Client, namespace: &str, object: &K) -> kube::Result<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    Api::<K>::namespaced(client.clone(), namespace).create(&PostParams::default(), object).await
}

/// The `AAQ` with this specification, whether there is one of its name or not: the operator makes one without fields.
///
/// # Errors
/// What the API server says. The webhook may know still of another one that is gone already.
pub async fn apply_aaq(client: &Client, spec: Value) -> kube::Result<AAQ> {
    let aaq = json!({
        "apiVersion": names::API_VERSION, "kind": "AAQ", "metadata": { "name": names::AAQ_NAME }, "spec": spec,
    });
    let aaqs = Api::<AAQ>::all(client.clone());
    aaqs.patch(names::AAQ_NAME, &PatchParams::apply("test").force(), &Patch::Apply(aaq)).await
}

/// Whether our gate holds the pod.
#[must_use]
pub fn is_held(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_ref())
        .is_some_and(|gates| gates.iter().any(|gate| gate.name == names::GATE))
}
