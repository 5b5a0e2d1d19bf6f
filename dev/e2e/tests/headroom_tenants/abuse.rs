//! A tenant with `edit` in a namespace tries to take the room that is made for migrations.

mod flood;
mod forged;
mod open;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use sluice_e2e::objects::from_json;
use sluice_e2e::tenant::{SOON, Tenant};
use sluice_testbed::{Identity, wait};

/// A pod that would fit into what a migration needs.
fn intruder(metadata: Value) -> Pod {
    from_json(json!({
        "metadata": metadata,
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{
                "name": "main", "image": "none",
                "resources": { "requests": { "memory": "50Mi" }, "limits": { "memory": "100Mi" } },
            }],
        },
    }))
}

/// Somebody with `edit` in the tenant's namespace.
async fn editor(tenant: &Tenant<'_>) -> Identity {
    tenant.bed.tenant(&tenant.namespace).await.unwrap()
}

/// Gives somebody more rights in the tenant's namespace; returns when they are in force.
async fn grant(tenant: &Tenant<'_>, who: &Identity, group: &str, resource: &str) {
    let name = format!("{}-more", resource.replace('/', "-"));
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": name, "namespace": tenant.name() },
        "rules": [{ "apiGroups": [group], "resources": [resource], "verbs": ["*"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": name, "namespace": tenant.name() },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who.user() }],
    });
    tenant.bed.apply_objects([role, binding]).await.unwrap();
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "namespace": tenant.name(), "verb": "patch", "group": group,
            "resource": resource, "subresource": subresource,
        }},
    });
    let client = who.client().unwrap();
    let allowed = || async {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = sluice_e2e::call::post(&client, path, &review).await.ok()?;
        (answer.body["status"]["allowed"] == true).then_some(())
    };
    wait::eventually(SOON, allowed, "the right to be in force").await.unwrap();
}
