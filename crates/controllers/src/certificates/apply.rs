//! Writes the two Secrets. Each write carries the version that was seen, or creates.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use sluice_api::names;
use sluice_operator::certificates::{CaPair, CertError, CertStep, issue_serving, new_authority, new_path};
use sluice_runtime::client::with_deadline;
use sluice_runtime::retry::{Failure, classify};

use super::plan::ca_pair;

const DEADLINE: Duration = Duration::from_secs(10);

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error(transparent)]
    Issue(#[from] CertError),
    #[error("could not write the Secret {name}")]
    Write {
        name: &'static str,
        #[source]
        source: kube::Error,
    },
}

impl ApplyError {
    /// Another client's write is no fault; everything else is.
    pub(super) fn report(&self) {
        if let Self::Write { name, source } = self
            && matches!(classify(source), Failure::Conflict | Failure::AlreadyExists)
        {
            tracing::debug!(secret = name, "changed meanwhile; planning again");
            return;
        }
        let cause = std::error::Error::source(self).map(ToString::to_string);
        tracing::warn!(error = %self, cause, "certificates not written; trying again");
    }
}

/// Does the steps in order. After an error none of the later ones is done.
pub(super) async fn apply(
    api: &Api<Secret>,
    now: Timestamp,
    steps: Vec<CertStep>,
    ca: Option<Box<Secret>>,
    serving: Option<Box<Secret>>,
    names: &[String],
) -> Result<(), ApplyError> {
    let mut ca = ca.map(|secret| *secret);
    let mut serving = serving.map(|secret| *secret);
    for step in steps {
        let pair = ca.as_ref().map(ca_pair);
        match step {
            CertStep::NewAuthority { keep, path } => {
                let mut pair = new_authority(now, &keep)?;
                pair.path = path.unwrap_or(pair.path);
                ca = Some(write(api, names::CA_SECRET, ca.take(), ca_data(pair)).await?);
                tracing::info!(secret = names::CA_SECRET, "certificate authority renewed");
            }
            CertStep::NewPath => {
                let Some(pair) = pair else { continue };
                let data = ca_data(CaPair { path: new_path()?, ..pair });
                ca = Some(write(api, names::CA_SECRET, ca.take(), data).await?);
                tracing::info!(secret = names::CA_SECRET, "the webhook has a new path");
            }
            CertStep::StoreBundle { bundle } => {
                let Some(pair) = pair else { continue };
                let data = ca_data(CaPair { bundle, ..pair });
                ca = Some(write(api, names::CA_SECRET, ca.take(), data).await?);
                tracing::info!(secret = names::CA_SECRET, "bundle of authorities updated");
            }
            CertStep::IssueServing => {
                let Some(pair) = pair else { continue };
                let issued = issue_serving(now, &pair, names)?;
                let data = data([
                    (names::TLS_CERT, issued.certificate),
                    (names::TLS_KEY, issued.key),
                    (names::CA_BUNDLE, pair.bundle),
                    (names::SECRET_PATH, issued.path),
                ]);
                serving = Some(write(api, names::SERVING_SECRET, serving.take(), data).await?);
                tracing::info!(secret = names::SERVING_SECRET, "serving certificate renewed");
            }
        }
    }
    Ok(())
}

type Data = BTreeMap<String, ByteString>;

fn ca_data(pair: CaPair) -> Data {
    data([
        (names::TLS_CERT, pair.certificate),
        (names::TLS_KEY, pair.key),
        (names::CA_BUNDLE, pair.bundle),
        (names::SECRET_PATH, pair.path),
    ])
}

fn data(entries: [(&str, String); 4]) -> Data {
    entries.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).into()
}

async fn write(
    api: &Api<Secret>,
    name: &'static str,
    seen: Option<Secret>,
    data: Data,
) -> Result<Secret, ApplyError> {
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let written = match seen {
        Some(mut secret) => {
            secret.data = Some(data);
            with_deadline(DEADLINE, api.replace(name, &params, &secret)).await
        }
        None => with_deadline(DEADLINE, api.create(&params, &fresh(name, data))).await,
    };
    written.map_err(|source| ApplyError::Write { name, source })
}

fn fresh(name: &str, data: Data) -> Secret {
    let labels = [("app.kubernetes.io/name", names::APP), ("app.kubernetes.io/part-of", names::APP)];
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}
