//! What is there of an installation.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::Value;
use sluice_api::names;
use sluice_operator::uninstall::{
    Collection, Found, ObjectName, PART_OF, Seen, Wish, definitions, inventory, processes_selector,
};

use super::requests::{CONCURRENT, RequestError, api_of, failed, list, patiently};
use super::{release, restore};

/// The installation is in another namespace.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "no installation in namespace {asked}: {object} is of one in namespace {is}: give --namespace {is}. Nothing was changed"
)]
pub(super) struct Elsewhere {
    asked: String,
    object: String,
    is: String,
}

/// Looks at everything that an installation may have.
pub(super) async fn observe(client: &Client, namespace: &str, wish: &Wish) -> anyhow::Result<Seen> {
    let (parts, names): (Vec<_>, Vec<_>) =
        inventory(namespace).into_iter().map(|part| (part.clone(), part.object)).unzip();
    let objects = objects(client, names).await?;
    for object in objects.iter().flatten() {
        is_here(namespace, object)?;
    }
    // Who leaves what was applied leaves the CRDs, and needs no right to see them.
    let names = if wish.keep_objects && !wish.definitions { Vec::new() } else { definitions() };
    let there = self::objects(client, names.clone()).await?;
    let definitions =
        names.into_iter().zip(there).filter_map(|(name, object)| Some((name, found(&object?)))).collect();
    let mut collections = BTreeMap::new();
    for collection in Collection::MADE.into_iter().chain(Collection::OF_USERS) {
        collections.insert(collection, list(client, collection, namespace).await?.len());
    }
    let parts = parts.into_iter().zip(objects).filter_map(|(part, object)| Some((part, found(&object?))));
    Ok(Seen {
        namespace: namespace.to_owned(),
        parts: parts.collect(),
        definitions,
        collections,
        processes: processes(client, namespace).await?,
        held: release::held(client).await?.len(),
        raised: restore::marked(client).await?,
    })
}

/// Those that are there, in the order of their names.
async fn objects(
    client: &Client,
    names: Vec<ObjectName>,
) -> Result<Vec<Option<DynamicObject>>, RequestError> {
    let asked = names.into_iter().map(|name| async move {
        let api = api_of(client, &name);
        let found = patiently(|| api.get_opt(&name.name)).await;
        found.map_err(failed("get", name.to_string(), name.kind.qualified()))
    });
    stream::iter(asked).buffered(CONCURRENT).try_collect().await
}

/// How many pods of controller and webhook there are.
pub(super) async fn processes(client: &Client, namespace: &str) -> Result<usize, RequestError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let which = ListParams::default().labels(&processes_selector());
    let pods = patiently(|| pods.list_metadata(&which)).await;
    let pods = pods.map_err(failed("list", format!("pods of namespace {namespace}"), "pods".to_owned()))?;
    Ok(pods.items.len())
}

fn found(object: &DynamicObject) -> Found {
    let metadata = &object.metadata;
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(PART_OF));
    Found {
        uid: metadata.uid.clone().unwrap_or_default(),
        is_ours: label.is_some_and(|label| label == names::APP),
        is_ending: metadata.deletion_timestamp.is_some(),
        // Absent, it is 1; of other kinds than Deployments it is not looked at.
        replicas: object.data.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1),
    }
}

/// Objects of the cluster have one name wherever the installation is, but say where that is.
fn is_here(namespace: &str, object: &DynamicObject) -> Result<(), Elsewhere> {
    let account = ["/subjects/0/namespace", "/spec/rules/0/subjects/0/serviceAccount/namespace"];
    let says = account.iter().find_map(|pointer| object.data.pointer(pointer)?.as_str());
    match says {
        Some(is) if is != namespace && object.metadata.namespace.is_none() && found(object).is_ours => {
            let kind = object.types.as_ref().map_or("object", |types| types.kind.as_str());
            let name = object.metadata.name.as_deref().unwrap_or_default();
            let object = format!("{kind} {name}");
            Err(Elsewhere { asked: namespace.to_owned(), object, is: is.to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_installation_in_another_namespace_is_named() {
        let of = |label: &str, rest: Value| {
            let mut whole = json!({
                "apiVersion": "v1", "kind": "Example", "metadata": { "name": "sluice", "labels": { PART_OF: label } },
            });
            whole.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            is_here("here", &object(whole))
        };
        let subjects =
            |at: &str| json!({ "subjects": [{ "kind": "ServiceAccount", "name": "x", "namespace": at }] });
        assert_eq!(of("sluice", subjects("here")), Ok(()));
        let error = of("sluice", subjects("there")).unwrap_err().to_string();
        assert!(
            error.contains("Example sluice is of one in namespace there: give --namespace there"),
            "{error}"
        );
        assert_eq!(of("other", subjects("there")), Ok(()));
        let account = json!({ "serviceAccount": { "name": "x", "namespace": "there" } });
        assert!(of("sluice", json!({ "spec": { "rules": [{ "subjects": [account] }] } })).is_err());
    }

    #[test]
    fn what_has_no_label_is_not_ours() {
        let deployment = |labels: Value, spec: Value| {
            found(&object(json!({ "metadata": { "uid": "u", "labels": labels }, "spec": spec })))
        };
        let ours = deployment(json!({ PART_OF: "sluice" }), json!({ "replicas": 2 }));
        assert_eq!(ours, Found { uid: "u".to_owned(), is_ours: true, is_ending: false, replicas: 2 });
        assert!(!deployment(json!({ PART_OF: "flow" }), json!({})).is_ours);
        assert!(!deployment(json!({}), json!({})).is_ours);
    }
}
