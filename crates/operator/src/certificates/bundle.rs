//! The authorities that are trusted, in a ConfigMap for those who look for one.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::observe::{Secrets, Seen, follow_one};
use super::pairs::text;
use super::{CertificateSettings, LoopError};
use crate::one_object::keep_one;

/// What is to be written; `None`: nothing, or not everything was seen yet.
pub(super) fn wanted(
    (name, key): (&str, &str),
    authority: &Seen<Secret>,
    is: &Seen<ConfigMap>,
) -> Option<Value> {
    let Seen::Present(authority) = authority else { return None };
    let bundle = text(authority, names::CA_BUNDLE);
    let has = match is {
        Seen::Unknown => return None,
        Seen::Absent => None,
        Seen::Present(map) => map.data.as_ref().and_then(|data| data.get(key)),
    };
    (!bundle.is_empty() && has != Some(&bundle)).then(|| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": name, "labels": { "app.kubernetes.io/part-of": names::APP } },
            "data": { key: bundle },
        })
    })
}

/// Keeps the ConfigMap until `shutdown`, if the installation has one. Start it once the lease is held; `may_write` is asked
/// before each write.
///
/// # Errors
/// When something has to be written and `may_write` says no.
pub async fn keep_bundle(
    client: Client,
    secrets: Secrets,
    settings: CertificateSettings,
    may_write: impl Fn() -> bool,
    shutdown: CancellationToken,
) -> Result<(), LoopError> {
    let Some(map) = settings.parts.bundle else {
        shutdown.cancelled().await;
        return Ok(());
    };
    let api: Api<ConfigMap> = Api::namespaced(client, &settings.namespace);
    let (seen, is) = watch::channel(Seen::Unknown);
    let wanted = |authority: &Seen<Secret>, is: &Seen<ConfigMap>| wanted(map, authority, is);
    tokio::select! {
        result = keep_one(&api, map.0, (secrets.ca(), is), wanted, may_write) => result,
        () = follow_one(api.clone(), map.0, seen, shutdown.clone()) => Ok(()),
    }
}
