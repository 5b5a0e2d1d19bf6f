//! The objects that are annotated.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::{AAQ, names, read_pause};
use sluice_index::{AaqRecord, AaqWire, Aaqs, Watched as _};

use crate::requests::{RequestError, failed, patiently};

/// Objects in one page of a list.
const PAGE: u32 = 500;

/// An object that says what is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Namespace(String),
    /// The `AAQ` of this name, for all namespaces.
    All(String),
}

/// What is annotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub since: Timestamp,
    pub until: Timestamp,
    /// So many pods in a second.
    pub rate: u32,
}

/// There is no `AAQ`.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no AAQ, which says what holds for all namespaces: create one, or name the namespaces by --namespace"
)]
pub(super) struct NoConfiguration;

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name} is"),
            Self::All(name) => write!(f, "all namespaces (AAQ {name}) are"),
        }
    }
}

impl Target {
    pub(super) async fn pause(&self, client: &Client, order: Order) -> Result<(), RequestError> {
        self.annotate(client, &annotations(Some(order))).await
    }

    /// Returns whether it is there.
    pub(super) async fn resume(&self, client: &Client) -> Result<bool, RequestError> {
        match self.annotate(client, &annotations(None)).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn annotate(&self, client: &Client, patch: &Value) -> Result<(), RequestError> {
        match self {
            Self::Namespace(name) => {
                let api: Api<Namespace> = Api::all(client.clone());
                write(&api, name, patch).await.map_err(failed(
                    "patch",
                    format!("namespace {name}"),
                    "namespaces".to_owned(),
                ))
            }
            Self::All(name) => {
                let api: Api<AAQ> = Api::all(client.clone());
                let aaqs = format!("{}.{}", names::AAQS, names::GROUP);
                write(&api, name, patch).await.map_err(failed("patch", format!("AAQ {name}"), aaqs))
            }
        }
    }
}

async fn write<K>(api: &Api<K>, name: &str, patch: &Value) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams { field_manager: Some(names::PAUSE.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(patch);
    patiently(|| api.patch_metadata(name, &params, &patch)).await.map(drop)
}

/// A merge patch; `None`: without a pause.
fn annotations(pause: Option<Order>) -> Value {
    json!({ "metadata": { "annotations": {
        names::PAUSED_ANNOTATION: pause.map(|order| order.until.to_string()),
        names::PAUSED_SINCE_ANNOTATION: pause.map(|order| order.since.to_string()),
        names::PAUSE_RATE_ANNOTATION: pause.map(|order| order.rate.to_string()),
    } } })
}

/// The `AAQ` that counts.
pub(super) async fn configuration(client: &Client) -> anyhow::Result<Target> {
    Ok(Target::All(holding(client).await?.ok_or(NoConfiguration)?.name.to_string()))
}

/// The `AAQ` that counts, and the end of its pause, if that is in force.
pub(super) async fn all_paused(
    client: &Client,
    now: Timestamp,
) -> Result<Option<(Target, Timestamp)>, RequestError> {
    let Some(aaq) = holding(client).await? else { return Ok(None) };
    // One that cannot be read is none.
    let pause = read_pause(aaq.pause.as_ref(), now).unwrap_or_default();
    Ok(pause.map(|pause| (Target::All(aaq.name.to_string()), pause.until)))
}

async fn holding(client: &Client) -> Result<Option<Arc<AaqRecord>>, RequestError> {
    let (api, params) = (Api::<AaqWire>::all(client.clone()), ListParams::default());
    let all = match patiently(|| api.list(&params)).await {
        Ok(list) => list.items,
        // No such kind.
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => {
            let resource = format!("{}.{}", names::AAQS, names::GROUP);
            return Err(failed("list", resource.clone(), resource)(error));
        }
    };
    let mut aaqs = Aaqs::default();
    for aaq in &all {
        aaqs.upsert(aaq);
    }
    Ok(aaqs.holding().cloned())
}

/// All that have the annotation of a pause, over or not.
pub(super) async fn paused(client: &Client) -> Result<Vec<Target>, RequestError> {
    let aaqs = list::<AAQ>(client, &format!("{}.{}", names::AAQS, names::GROUP)).await?;
    let namespaces = list::<Namespace>(client, "namespaces").await?;
    let all = |found: BTreeMap<String, bool>, of: fn(String) -> Target| {
        found.into_iter().filter(|(_, is_paused)| *is_paused).map(move |(name, _)| of(name))
    };
    Ok(all(aaqs, Target::All).chain(all(namespaces, Target::Namespace)).collect())
}

/// Names, and whether they have the annotation; none of a kind that does not exist.
async fn list<K>(client: &Client, resource: &str) -> Result<BTreeMap<String, bool>, RequestError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut all = BTreeMap::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = match patiently(|| api.list_metadata(&page)).await {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(all),
            Err(error) => return Err(failed("list", resource.to_owned(), resource.to_owned())(error)),
        };
        for object in list.items {
            let metadata = object.metadata;
            let annotations = metadata.annotations.unwrap_or_default();
            let keys =
                [names::PAUSED_ANNOTATION, names::PAUSED_SINCE_ANNOTATION, names::PAUSE_RATE_ANNOTATION];
            let is_paused = keys.iter().any(|key| annotations.contains_key(*key));
            all.insert(metadata.name.unwrap_or_default(), is_paused);
        }
        page.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        if page.continue_token.is_none() {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_annotations_come_and_go_together() {
        let until = Timestamp::from_second(1_767_225_600).unwrap();
        let since = Timestamp::from_second(1_767_222_000).unwrap();
        let expected = json!({
            "quota.sluice.dev/paused": "2026-01-01T00:00:00Z",
            "quota.sluice.dev/paused-since": "2025-12-31T23:00:00Z",
            "quota.sluice.dev/pause-rate": "9",
        });
        assert_eq!(annotations(Some(Order { since, until, rate: 9 }))["metadata"]["annotations"], expected);
        let expected = json!({
            "quota.sluice.dev/paused": null, "quota.sluice.dev/paused-since": null, "quota.sluice.dev/pause-rate": null,
        });
        assert_eq!(annotations(None)["metadata"]["annotations"], expected);
    }
}
