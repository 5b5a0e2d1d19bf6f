//! Waiting for a kind that is not installed, without asking for it again and again.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Resource};
use tokio::time::Instant;

use super::{WatchHealth, WatchOptions, next};
use crate::client::with_deadline;

/// Waits until the kind's CustomResourceDefinition exists or changes; at once if it is there. It may not be served yet by
/// then. Returns too when the watch ends, after minutes: a kind of Kubernetes itself has no definition, and comes with
/// another version of the API server.
///
/// # Errors
/// When CustomResourceDefinitions cannot be watched, or the connection ends.
pub(super) async fn until_installed<K>(
    api: &Api<K>,
    options: &WatchOptions,
    health: &WatchHealth,
) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone,
{
    let definitions = Api::<CustomResourceDefinition>::all(api.clone().into_client());
    let definition = format!("metadata.name={}.{}", K::plural(&()), K::group(&()));
    let params = WatchParams { field_selector: Some(definition), ..options.watch_params() };
    health.tries();
    // What is there already comes as the first event, from the server's cache.
    let start = definitions.watch_metadata(&params, "0");
    let mut events = with_deadline(options.request_timeout, start).await?.into_stream().boxed();
    let started = Instant::now();
    while let Some(event) = next(&mut events, health, started).await? {
        match event {
            WatchEvent::Bookmark(_) => health.delivered(),
            WatchEvent::Error(status) => return Err(kube::Error::Api(status.boxed())),
            _ => break,
        }
    }
    Ok(())
}
