//! The authorities that are trusted, in a ConfigMap for those who look for one.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::client::with_deadline;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::apply::DEADLINE;
use super::observe::{Secrets, Seen, follow_one};
use super::plan::text;
use super::{CertificateSettings, LoopError};

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
    let (seen, changes) = watch::channel(Seen::Unknown);
    tokio::select! {
        result = keep(&api, map, (secrets.ca(), changes), may_write) => result,
        () = follow_one(api.clone(), map.0, seen, shutdown.clone()) => Ok(()),
    }
}

async fn keep(
    api: &Api<ConfigMap>,
    map: (&str, &str),
    (mut authority, mut seen): (watch::Receiver<Seen<Secret>>, watch::Receiver<Seen<ConfigMap>>),
    may_write: impl Fn() -> bool,
) -> Result<(), LoopError> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
    loop {
        let body = wanted(map, &authority.borrow_and_update(), &seen.borrow_and_update());
        let mut wait = None;
        if let Some(body) = body {
            if !may_write() {
                return Err(LoopError::NotLeading { what: "authorities" });
            }
            let params = PatchParams::apply(names::OPERATOR).force();
            match with_deadline(DEADLINE, api.patch(map.0, &params, &Patch::Apply(&body))).await {
                Ok(_) => backoff.reset(),
                Err(error) => {
                    tracing::warn!(config_map = map.0, %error, "authorities not written; trying again");
                    wait = Some(backoff.failed());
                }
            }
        }
        let timer = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let gone = tokio::select! {
            changed = authority.changed() => changed.is_err(),
            changed = seen.changed() => changed.is_err(),
            () = timer => false,
        };
        if gone {
            return Ok(());
        }
    }
}
