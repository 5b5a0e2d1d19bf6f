//! Keeps the own certificate authority and the webhook's serving certificate: made when they are missing, renewed
//! before they expire, repaired when they were damaged.
//!
//! Where an issuer of cert-manager is named, that signs, and the loop stores what it gives (`given.rs`).
//!
//! Runs on the leader only. What to do is decided by [`sluice_manifests::certificates::plan`]; the loop sleeps until
//! the next step is due or one of the two Secrets changes.

mod apply;
mod bundle;
mod given;
pub(crate) mod observe;
pub(crate) mod pairs;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use sluice_api::names;
use sluice_manifests::certificates::{CertOrder, service_names};
use sluice_manifests::{IssuerRef, PartNames};
use sluice_runtime::backoff::{Backoff, process_seed};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use bundle::keep_bundle;
pub use observe::Secrets;

use crate::installation::Asked;
use observe::Seen;
use plan::{Round, next_round};

/// A machine that was suspended wakes with a monotonic clock that stood still; looking at the wall clock now and
/// then bounds by how much a renewal can be late.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// So long the first round waits to learn which lifetimes are asked for: certificates must not be made twice. Where the
/// kinds that say it do not exist yet, they are made without it.
const ASKED_WITHIN: Duration = Duration::from_secs(5);

/// Why a loop ended.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The loops write and must not do so any more.
    #[error("may not write {what}: the lease is not held")]
    NotLeading {
        /// What was to be written.
        what: &'static str,
    },
}

/// What the loop works on.
#[derive(Clone)]
pub struct CertificateSettings {
    /// Namespace of the Secrets.
    pub namespace: String,
    /// Names the serving certificate is for. Default: those of the Services;
    /// a webhook outside of the cluster needs its host too.
    pub names: Vec<String>,
    /// Who issues the serving certificate; `None`: the own authority.
    pub issuer: Option<IssuerRef>,
    /// Names of the Secrets.
    pub parts: &'static PartNames,
}

impl CertificateSettings {
    /// For the Services of webhook and metrics in `namespace`. The webhook has Sluice's name too: by that its processes know
    /// each other.
    pub fn new(namespace: &str, parts: &'static PartNames) -> Self {
        let further = Some(parts.webhook).filter(|name| *name != names::WEBHOOK);
        let services = [names::WEBHOOK, names::METRICS_SERVICE].into_iter().chain(further);
        let names = services.flat_map(|name| service_names(name, namespace)).collect();
        Self { namespace: namespace.to_owned(), names, issuer: None, parts }
    }
}

/// Keeps both certificates until `shutdown`, with the lifetimes that are `asked` for (`None`: not known). Start it once the
/// lease is held; `may_write` is asked before each write.
///
/// # Errors
/// When something has to be written and `may_write` says no.
pub async fn run(
    client: Client,
    secrets: Secrets,
    settings: CertificateSettings,
    mut asked: watch::Receiver<Option<Asked>>,
    may_write: impl Fn() -> bool,
    shutdown: CancellationToken,
) -> Result<(), LoopError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &settings.namespace);
    let keeping = async {
        if let Some(issuer) = &settings.issuer {
            secrets.read_again().await;
            return given::keep((client, &api), &settings, issuer, &secrets, may_write).await;
        }
        let known = tokio::time::timeout(ASKED_WITHIN, asked.wait_for(Option::is_some));
        let _ = tokio::join!(secrets.read_again(), async { known.await.is_ok() });
        keep(&api, &settings, (secrets.ca(), secrets.serving()), asked, may_write).await
    };
    tokio::select! {
        result = keeping => result,
        () = shutdown.cancelled() => Ok(()),
    }
}

async fn keep(
    api: &Api<Secret>,
    settings: &CertificateSettings,
    (mut ca_seen, mut serving_seen): (watch::Receiver<Seen<Secret>>, watch::Receiver<Seen<Secret>>),
    mut asked: watch::Receiver<Option<Asked>>,
    may_write: impl Fn() -> bool,
) -> Result<(), LoopError> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
    loop {
        let ca = ca_seen.borrow_and_update().clone();
        let serving = serving_seen.borrow_and_update().clone();
        let order =
            CertOrder::new(&settings.names, asked.borrow_and_update().as_ref().map(|asked| &asked.lifetimes));
        let wait = match next_round(Timestamp::now(), &ca, &serving, &order) {
            Round::Blind => None,
            Round::Rest { until } => Some(until),
            Round::Work { steps, ca, serving } => {
                if !may_write() {
                    return Err(LoopError::NotLeading { what: "certificates" });
                }
                match apply::apply(api, Timestamp::now(), steps, ca, serving, (&order, settings.parts)).await
                {
                    // The watch tells of what was written, and then it is looked at again.
                    Ok(()) => {
                        backoff.reset();
                        None
                    }
                    Err(error) => {
                        error.report();
                        Some(backoff.failed())
                    }
                }
            }
        };
        let timer = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait.min(LONGEST_SLEEP)).await,
                None => std::future::pending().await,
            }
        };
        let gone = tokio::select! {
            changed = ca_seen.changed() => changed.is_err(),
            changed = serving_seen.changed() => changed.is_err(),
            changed = asked.changed() => changed.is_err(),
            () = timer => false,
        };
        if gone {
            return Ok(());
        }
    }
}
