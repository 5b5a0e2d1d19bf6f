//! Requests about any kind of object, and about rights.

use futures::{Stream, StreamExt as _, TryStreamExt as _, future, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use sluice_manifests::uninstall::{Collection, Kind, ObjectName, Right, Step, rights};

use super::goes_on::GoesOn;
use crate::requests::{CONCURRENT, RequestError, failed, patiently};

/// Objects in one page of a list.
pub(super) const PAGE: u32 = 500;

/// The API of a kind, in a namespace or everywhere.
pub(super) fn api(client: &Client, kind: &Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: kind.group.clone(),
        version: kind.version.clone(),
        api_version: kind.api_version(),
        kind: kind.kind.clone(),
        plural: kind.resource(),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

pub(super) fn api_of(client: &Client, object: &ObjectName) -> Api<DynamicObject> {
    api(client, &object.kind, object.namespace.as_deref())
}

/// Metadata of all objects of a collection.
pub(super) async fn list(
    client: &Client,
    collection: Collection,
    namespace: &str,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>, RequestError> {
    let home = collection.is_at_home().then_some(namespace);
    let all = list_kind(client, &collection.kind(), home, &collection.selector()).await?;
    Ok(all.into_iter().filter(|object| collection.has(&object.metadata)).collect())
}

/// Metadata of all objects of a kind that have these labels, in a namespace or everywhere.
pub(super) async fn list_kind(
    client: &Client,
    kind: &Kind,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>, RequestError> {
    let api = api(client, kind, namespace);
    let mut all = Vec::new();
    let mut next = None::<String>;
    loop {
        let mut page = ListParams::default().labels(selector).limit(PAGE);
        page.continue_token = next;
        let list = match patiently(|| api.list_metadata(&page)).await {
            Ok(list) => list,
            // A kind that does not exist has no objects.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(all),
            Err(error) => return Err(failed("list", kind.qualified(), kind.qualified())(error)),
        };
        all.extend(list.items);
        next = list.metadata.continue_.filter(|token| !token.is_empty());
        if next.is_none() {
            return Ok(all);
        }
    }
}

/// These one by one, as long as it goes on.
pub(super) fn while_wanted<T>(
    all: impl IntoIterator<Item = T>,
    goes_on: GoesOn<'_>,
) -> impl Stream<Item = T> {
    stream::iter(all).take_while(move |_| future::ready(goes_on()))
}

/// Whether this account may do all that is planned. Half of it would let pods wait for ever.
pub(super) async fn check_rights(client: &Client, steps: &[Step], namespace: &str) -> anyhow::Result<()> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    let asked = rights(steps, namespace).into_iter().map(|right| {
        let (reviews, params) = (&reviews, &params);
        async move {
            let review = SelfSubjectAccessReview { spec: asks(&right), ..SelfSubjectAccessReview::default() };
            let answer = patiently(|| reviews.create(params, &review)).await.map_err(failed(
                "create",
                "a SelfSubjectAccessReview".to_owned(),
                "selfsubjectaccessreviews.authorization.k8s.io".to_owned(),
            ))?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            Ok::<_, RequestError>((!allowed).then_some(right))
        }
    });
    let missing: Vec<_> = stream::iter(asked)
        .buffered(CONCURRENT)
        .try_filter_map(|missing| future::ready(Ok(missing)))
        .try_collect()
        .await?;
    if missing.is_empty() { Ok(()) } else { Err(RequestError::Rights(said(&missing)).into()) }
}

fn asks(right: &Right) -> SelfSubjectAccessReviewSpec {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    SelfSubjectAccessReviewSpec {
        resource_attributes: Some(ResourceAttributes {
            group: some(&right.group),
            resource: some(&right.resource),
            subresource: some(right.subresource),
            verb: some(right.verb),
            namespace: right.namespace.clone(),
            name: right.name.clone(),
            ..ResourceAttributes::default()
        }),
        ..SelfSubjectAccessReviewSpec::default()
    }
}

/// Verbs and resources, each once.
pub(super) fn said(missing: &[Right]) -> String {
    let mut all: Vec<_> =
        missing.iter().map(|right| format!("{} {}", right.verb, right.qualified())).collect();
    all.sort();
    all.dedup();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Under a new `AAQ` no pod is released any more.
    #[tokio::test]
    async fn nothing_more_is_done_once_it_does_not_go_on() {
        let asked = AtomicUsize::new(0);
        let goes_on = || asked.fetch_add(1, Ordering::Relaxed) < 2;
        let done: Vec<_> = while_wanted([1, 2, 3, 4], &goes_on).collect().await;
        assert_eq!(done, [1, 2]);
        assert_eq!(while_wanted([1, 2], &|| true).collect::<Vec<_>>().await, [1, 2]);
    }
}
