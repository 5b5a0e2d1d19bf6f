//! The namespace of the installation: it goes if it is part of it and nothing else is in it.

use std::time::Duration;

use kube::api::{DynamicObject, ListParams, ObjectMeta};
use kube::discovery::{Scope, verbs};
use kube::{Api, Client, Discovery};
use sluice_api::names;
use sluice_manifests::uninstall::{PART_OF, Seen};

use super::apply::{delete, until_gone};
use super::report::{Action, Report};
use super::requests::PAGE;
use crate::requests::patiently;

/// Kubernetes deletes a namespace with ended pods within seconds.
const GONE: Duration = Duration::from_secs(60);
/// What Kubernetes and OpenShift put into each namespace, beside RoleBindings `system:…`.
const EVERYWHERE: [(&str, &str); 5] = [
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
    ("ServiceAccount", "default"),
    ("ServiceAccount", "builder"),
    ("ServiceAccount", "deployer"),
];
/// Kinds that controllers make of objects that are there too. What has an owner is judged by its owner.
const OF_OWNERS: [&str; 6] =
    ["Pod", "ReplicaSet", "EndpointSlice", "Endpoints", "Event", "ControllerRevision"];
/// Not kept in a namespace: they end by themselves, or are measured.
const PASSING: [&str; 2] = ["Event", "PodMetrics"];

/// Deletes it, or reports what is in it.
pub(super) async fn remove(client: &Client, seen: &Seen, report: &mut Report) -> anyhow::Result<()> {
    let Some((home, found)) = seen.home() else { return Ok(()) };
    if !found.is_ending && is_left(client, &home.name, report).await {
        return Ok(());
    }
    delete(client, home, &found.uid).await?;
    let gone = until_gone(client, home, GONE).await;
    if matches!(gone, Ok(true)) {
        report.did(Action::Delete, home);
    } else {
        let remedy = format!("kubectl get namespace {} --output yaml says what it waits for", home.name);
        report.left(home, "it is being deleted", &remedy);
    }
    gone?;
    Ok(())
}

/// Reports what would become of it.
pub(super) async fn foresee(client: &Client, seen: &Seen, report: &mut Report) {
    let Some((home, _)) = seen.home() else { return };
    if !is_left(client, &home.name, report).await {
        report.did(Action::Delete, home);
    }
}

/// Whether something else is in the namespace, which is reported.
async fn is_left(client: &Client, home: &str, report: &mut Report) -> bool {
    let (reason, remedy) = match foreign(client, home).await {
        Ok(others) => match others.as_slice() {
            [] => return false,
            [one] => (format!("in it is an object of others: {one}"), "move it"),
            [first, more @ ..] => {
                (format!("in it are objects of others: {first} and {} more", more.len()), "move them")
            }
        },
        Err(error) => {
            (format!("what else is in it could not be listed: {error}"), "look into it (kubectl get all)")
        }
    };
    report.left_namespace(home, &reason, &format!("{remedy}, then kubectl delete namespace {home}"));
    true
}

/// Objects in the namespace that are not of this installation, by all kinds that the API servers have.
async fn foreign(client: &Client, home: &str) -> kube::Result<Vec<String>> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut others = Vec::new();
    for (resource, capabilities) in discovery.groups().flat_map(|group| group.recommended_resources()) {
        let is_looked_at =
            capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST);
        if !is_looked_at || PASSING.contains(&&*resource.kind) {
            continue;
        }
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), home, &resource);
        let page = ListParams::default().limit(PAGE);
        let list = match patiently(|| api.list_metadata(&page)).await {
            Ok(list) => list,
            // Some kinds can be listed by name only.
            Err(kube::Error::Api(status)) if [404, 405].contains(&status.code) => continue,
            Err(error) => return Err(error),
        };
        let kind = resource.kind.as_str();
        let more = list.items.iter().filter(|object| is_of_others(kind, &object.metadata));
        others.extend(
            more.map(|object| format!("{kind} {}", object.metadata.name.as_deref().unwrap_or_default())),
        );
        // What is on further pages is not looked at.
        if list.metadata.continue_.is_some_and(|token| !token.is_empty()) {
            others.push(format!("more than {PAGE} {kind}"));
        }
    }
    Ok(others)
}

fn is_of_others(kind: &str, object: &ObjectMeta) -> bool {
    let label = object.labels.as_ref().and_then(|labels| labels.get(PART_OF));
    let name = object.name.as_deref().unwrap_or_default();
    let has_owner = object.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    let is_owned = has_owner && OF_OWNERS.contains(&kind);
    let is_everywhere =
        EVERYWHERE.contains(&(kind, name)) || (kind == "RoleBinding" && name.starts_with("system:"));
    label.is_none_or(|label| label != names::APP) && !is_owned && !is_everywhere
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of_others(kind: &str, metadata: Value) -> bool {
        is_of_others(kind, &serde_json::from_value(metadata).unwrap())
    }

    #[test]
    fn what_nobody_has_put_there_is_of_nobody() {
        assert!(of_others("Service", json!({ "name": "web" })));
        assert!(of_others("Service", json!({ "name": "web", "labels": { PART_OF: "shop" } })));
        assert!(!of_others("Service", json!({ "name": "x", "labels": { PART_OF: "sluice" } })));
        for (kind, name) in EVERYWHERE {
            assert!(!of_others(kind, json!({ "name": name })), "{kind} {name}");
            assert!(of_others("Secret", json!({ "name": name })), "Secret {name}");
        }
        assert!(!of_others("RoleBinding", json!({ "name": "system:image-pullers" })));
        assert!(of_others("Role", json!({ "name": "system:image-pullers" })));
        assert!(of_others("ServiceAccount", json!({ "name": "kube-root-ca.crt" })));
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u" });
        let owned = json!({ "name": "web-1-x", "ownerReferences": [owner] });
        assert!(!of_others("Pod", owned.clone()));
        assert!(of_others("PersistentVolumeClaim", owned.clone()) && of_others("Secret", owned));
    }
}
