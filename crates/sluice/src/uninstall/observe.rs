//! What is there of an installation.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams, ObjectMeta};
use kube::{Api, Client};
use serde_json::Value;
use sluice_api::names;
use sluice_manifests::uninstall::{
    Collection, Found, ObjectName, PART_OF, Part, Seen, Wish, definitions, goes_with_aaq, inventory,
    is_of_others, processes_selector,
};
use sluice_runtime::clock::ServerClock;

use super::requests::{api_of, list};
use super::{finalizers, restore};
use crate::held_pods;
use crate::requests::{CONCURRENT, RequestError, failed, find, patiently};

/// So long after the end of its grace a pod counts as lost with its node.
const LOST: SignedDuration = SignedDuration::from_secs(60);

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
    // Who leaves what was applied leaves the CRDs, and needs no right to see them.
    let definitions = if wish.keep_objects && !wish.definitions { Vec::new() } else { definitions() };
    let further = Collection::OF_USERS.into_iter().chain(Collection::KEPT);
    let collections = Collection::MADE.into_iter().chain(further).collect();
    let seen = look_at(client, namespace, (inventory(namespace), definitions, collections), |_| true).await?;
    Ok(Seen { finalized: finalizers::finalized(client).await?.len(), ..seen })
}

/// Looks at what the operator makes by the word of an `AAQ`. That need not wait for pods on nodes that do not answer.
pub(crate) async fn observe_made(
    client: &Client,
    clock: &ServerClock,
    namespace: &str,
) -> anyhow::Result<Seen> {
    let parts = inventory(namespace).into_iter().filter(goes_with_aaq).collect();
    let runs = |process: &Process| !process.is_lost(clock.reckoned());
    look_at(client, namespace, (parts, Vec::new(), Collection::MADE.into()), runs).await
}

async fn look_at(
    client: &Client,
    namespace: &str,
    (parts, names_of_definitions, listed): (Vec<Part>, Vec<ObjectName>, Vec<Collection>),
    runs: impl Fn(&Process) -> bool,
) -> anyhow::Result<Seen> {
    let (parts, names): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.clone(), part.object)).unzip();
    let objects = objects(client, names).await?;
    for object in objects.iter().flatten() {
        is_here(namespace, object)?;
    }
    let there = self::objects(client, names_of_definitions.clone()).await?;
    let found = |object: &DynamicObject| found(object, namespace);
    let definitions = names_of_definitions.into_iter().zip(there);
    let definitions = definitions.filter_map(|(name, object)| Some((name, found(&object?)))).collect();
    let (mut collections, mut ending) = (BTreeMap::new(), BTreeMap::new());
    for collection in listed {
        let objects = list(client, collection, namespace).await?;
        let deleted = objects.iter().filter(|object| object.metadata.deletion_timestamp.is_some()).count();
        collections.insert(collection, objects.len() - deleted);
        ending.insert(collection, deleted);
    }
    let parts = parts.into_iter().zip(objects).filter_map(|(part, object)| Some((part, found(&object?))));
    Ok(Seen {
        namespace: namespace.to_owned(),
        parts: parts.collect(),
        definitions,
        collections,
        ending,
        processes: processes(client, namespace).await?.iter().filter(|process| runs(process)).count(),
        held: held_pods::held(client, None).await?.len(),
        raised: restore::marked(client).await?,
        finalized: 0,
    })
}

/// Those that are there, in the order of their names.
async fn objects(
    client: &Client,
    names: Vec<ObjectName>,
) -> Result<Vec<Option<DynamicObject>>, RequestError> {
    let asked = names.into_iter().map(|name| async move {
        let api = api_of(client, &name);
        let found = find(&api, &name.name).await;
        found.map_err(failed("get", name.to_string(), name.kind.qualified()))
    });
    stream::iter(asked).buffered(CONCURRENT).try_collect().await
}

/// A pod of controller or webhook that may run.
pub(super) struct Process {
    pub(super) name: String,
    /// The end of its grace, if it is being deleted.
    ends: Option<Timestamp>,
}

impl Process {
    /// Its node does not answer: that would have told of its end by `now`.
    fn is_lost(&self, now: Timestamp) -> bool {
        self.ends.is_some_and(|ends| now.duration_since(ends) > LOST)
    }
}

/// Those that there are.
pub(super) async fn processes(client: &Client, namespace: &str) -> Result<Vec<Process>, RequestError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let which = ListParams::default()
        .labels(&processes_selector())
        .fields("status.phase!=Failed,status.phase!=Succeeded");
    let pods = patiently(|| pods.list_metadata(&which)).await;
    let pods = pods.map_err(failed("list", format!("pods of namespace {namespace}"), "pods".to_owned()))?;
    let process = |metadata: ObjectMeta| {
        let ends = metadata.deletion_timestamp.map(|time| time.0);
        Some(Process { name: metadata.name?, ends })
    };
    Ok(pods.items.into_iter().filter_map(|pod| process(pod.metadata)).collect())
}

fn found(object: &DynamicObject, namespace: &str) -> Found {
    let metadata = &object.metadata;
    Found {
        uid: metadata.uid.clone().unwrap_or_default(),
        is_ours: is_ours(metadata),
        is_ending: metadata.deletion_timestamp.is_some(),
        is_of_others: is_of_others(metadata, namespace),
        // Absent, it is 1; of other kinds than Deployments it is not looked at.
        replicas: object.data.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1),
    }
}

fn is_ours(object: &ObjectMeta) -> bool {
    let label = object.labels.as_ref().and_then(|labels| labels.get(PART_OF));
    label.is_some_and(|label| label == names::APP)
}

/// Objects of the cluster have one name wherever the installation is, but say where that is.
fn is_here(namespace: &str, object: &DynamicObject) -> Result<(), Elsewhere> {
    let account = ["/subjects/0/namespace", "/spec/rules/0/subjects/0/serviceAccount/namespace"];
    let says = account.iter().find_map(|pointer| object.data.pointer(pointer)?.as_str());
    match says {
        Some(is) if is != namespace && object.metadata.namespace.is_none() && is_ours(&object.metadata) => {
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
    fn a_pod_whose_node_does_not_answer_is_lost_a_minute_after_its_grace() {
        let end = Timestamp::UNIX_EPOCH;
        let process = |ends| Process { name: "one".to_owned(), ends };
        let at = |seconds| end + SignedDuration::from_secs(seconds);
        assert!(!process(Some(end)).is_lost(at(60)) && process(Some(end)).is_lost(at(61)));
        assert!(!process(Some(at(30))).is_lost(at(61)), "in its grace it may end by itself");
        assert!(!process(None).is_lost(at(10_000)), "it runs");
    }

    #[test]
    fn what_has_no_label_is_not_ours() {
        let deployment = |labels: Value, spec: Value| {
            let whole = json!({ "metadata": { "uid": "u", "labels": labels }, "spec": spec });
            found(&object(whole), "here")
        };
        let ours = deployment(json!({ PART_OF: "sluice" }), json!({ "replicas": 2 }));
        let expected = Found { uid: "u".to_owned(), is_ours: true, replicas: 2, ..Found::default() };
        assert_eq!(ours, expected);
        assert!(!deployment(json!({ PART_OF: "flow" }), json!({})).is_ours);
        assert!(!deployment(json!({}), json!({})).is_ours);
    }
}
