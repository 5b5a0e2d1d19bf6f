//! All objects of an installation.

use serde_json::{Value, json};
use sluice_api::names;

use crate::admission_policies::admission_policies;
use crate::options::InstallOptions;
use crate::{flow, headroom_policies, network, rbac, webhooks, workload};

/// All objects of an installation, in the order they have to be applied.
///
/// What gates comes after what guards, then the webhook configurations: from then on the API server refuses what it cannot
/// have reviewed. The policy that refuses pods without a gate is last.
pub fn render(options: &InstallOptions) -> Vec<Value> {
    let mut objects = vec![namespace(options)];
    objects.extend(crds());
    objects.extend(rbac::objects(options));
    objects.extend(network::objects(options));
    objects.extend(flow::objects(options));
    objects.extend(workload::objects(options));
    objects.push(headroom_policies::proof_quota(options));
    let mut policies = admission_policies(options);
    let last = policies.pop();
    objects.extend(policies.into_iter().flat_map(|each| [each.policy, each.binding]));
    objects.push(webhooks::mutating(options));
    objects.push(webhooks::validating(options));
    objects.extend(last.into_iter().flat_map(|each| [each.policy, each.binding]));
    objects
}

/// The CRDs as they are written to `deploy/crds/`.
fn crds() -> impl Iterator<Item = Value> {
    // A CRD is made of strings, numbers and lists only: it always has a JSON form.
    sluice_api::all_crds().into_iter().filter_map(|crd| serde_json::to_value(crd).ok())
}

fn namespace(options: &InstallOptions) -> Value {
    let mut labels = labels(None);
    for mode in ["enforce", "audit", "warn"] {
        set(&mut labels, &format!("pod-security.kubernetes.io/{mode}"), json!("restricted"));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": options.namespace, "labels": labels },
    })
}

/// Sets a field of `object`, which is one.
pub(crate) fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}

/// Sets a field of `object[part]`.
pub(crate) fn set_in(object: &mut Value, part: &str, key: &str, value: Value) {
    if let Some(part) = object.get_mut(part) {
        set(part, key, value);
    }
}

/// Labels of an object, with the name of the component it belongs to.
pub(crate) fn labels(component: Option<&str>) -> Value {
    let mut labels = json!({
        "app.kubernetes.io/name": names::APP,
        "app.kubernetes.io/part-of": names::APP,
    });
    if let Some(component) = component {
        set(&mut labels, "app.kubernetes.io/component", json!(component));
    }
    labels
}

/// `metadata` of an object in the install namespace.
pub(crate) fn metadata(options: &InstallOptions, name: &str) -> Value {
    json!({ "name": name, "namespace": options.namespace, "labels": labels(Some(name)) })
}

/// `metadata` of an object of the cluster.
pub(crate) fn cluster_metadata(name: &str) -> Value {
    json!({ "name": name, "labels": labels(Some(name)) })
}
