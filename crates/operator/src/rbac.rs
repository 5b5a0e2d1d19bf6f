//! Who may do what (`reliability.md` §5.1): one identity per component, no wildcards, names where there are any.

use serde_json::{Value, json};
use sluice_api::names;

use crate::options::InstallOptions;
use crate::render::{cluster_metadata, labels, metadata, set};

const GROUP: &str = "rbac.authorization.k8s.io";
/// Verbs of a reader that keeps up. With `resourceNames`, `list` and `watch` need a field selector on the name.
const READ: [&str; 3] = ["get", "list", "watch"];

pub(crate) fn objects(options: &InstallOptions) -> Vec<Value> {
    let mut objects = Vec::new();
    for (name, cluster_rules, rules) in [
        (names::CONTROLLER, controller_cluster_rules(), controller_rules()),
        (names::WEBHOOK, webhook_cluster_rules(), webhook_rules()),
    ] {
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(options, name),
            "automountServiceAccountToken": false,
        }));
        objects.push(role("ClusterRole", cluster_metadata(name), cluster_rules));
        objects.push(binding(options, "ClusterRole", cluster_metadata(name), name));
        objects.push(role("Role", metadata(options, name), rules));
        objects.push(binding(options, "Role", metadata(options, name), name));
    }
    objects.push(tenant_view());
    objects
}

fn role(kind: &str, metadata: Value, rules: Value) -> Value {
    json!({ "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata, "rules": rules })
}

fn binding(options: &InstallOptions, role_kind: &str, metadata: Value, name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": format!("{role_kind}Binding"),
        "metadata": metadata,
        "roleRef": { "apiGroup": GROUP, "kind": role_kind, "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": options.namespace }],
    })
}

fn controller_cluster_rules() -> Value {
    json!([
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"] },
        { "apiGroups": [""], "resources": ["namespaces"], "verbs": READ },
        { "apiGroups": [names::GROUP], "resources": [names::AAQS, names::ARQS], "verbs": READ },
        {
            "apiGroups": [names::GROUP],
            "resources": [format!("{}/status", names::ARQS)],
            "verbs": ["update", "patch"],
        },
        { "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] },
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations"],
            "resourceNames": [names::MUTATING_CONFIG],
            "verbs": ["get", "list", "watch", "update", "patch"],
        },
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["validatingwebhookconfigurations"],
            "resourceNames": [names::VALIDATING_CONFIG],
            "verbs": ["get", "list", "watch", "update", "patch"],
        },
    ])
}

fn controller_rules() -> Value {
    json!([
        // `create` cannot be limited to a name: the API server authorises it before it knows the name.
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] },
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [names::LEASE],
            "verbs": ["get", "list", "watch", "update", "patch"],
        },
        { "apiGroups": [""], "resources": ["secrets"], "verbs": ["create"] },
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [names::CA_SECRET, names::SERVING_SECRET],
            "verbs": ["get", "list", "watch", "update"],
        },
    ])
}

fn webhook_cluster_rules() -> Value {
    // To know whether an `AAQ` exists when another one is created.
    json!([{ "apiGroups": [names::GROUP], "resources": [names::AAQS], "verbs": READ }])
}

fn webhook_rules() -> Value {
    json!([{
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [names::SERVING_SECRET],
        "verbs": READ,
    }])
}

/// Those who may view a namespace may view its quotas. `edit` and `admin` contain `view` and get nothing more:
/// a tenant must not change the quota that limits it.
fn tenant_view() -> Value {
    let mut labels = labels(None);
    set(&mut labels, &format!("{GROUP}/aggregate-to-view"), json!("true"));
    role(
        "ClusterRole",
        json!({ "name": "sluice-view", "labels": labels }),
        json!([{ "apiGroups": [names::GROUP], "resources": [names::ARQS], "verbs": READ }]),
    )
}
