//! Writes the two Secrets. Each write carries the version that was seen, or creates.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use sluice_api::names;
use sluice_manifests::PartNames;
use sluice_manifests::certificates::{CaPair, CertError, CertOrder, CertStep, Made, ServingPair, Told, make};
use sluice_runtime::client::with_deadline;
use sluice_runtime::retry::{Failure, classify};

use super::pairs::{ca_pair, serving_pair};

pub(super) const DEADLINE: Duration = Duration::from_secs(10);

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
    (order, parts): (&CertOrder, &'static PartNames),
) -> Result<(), ApplyError> {
    let mut ca = ca.map(|secret| *secret);
    let mut serving = serving.map(|secret| *secret);
    for step in steps {
        let done = told(&step);
        let made = make(now, step, ca.as_ref().map(ca_pair), serving.as_ref().map(serving_pair), order)?;
        if let Some(made) = made {
            store(api, made, (&mut ca, &mut serving), (parts, done)).await?;
        }
    }
    Ok(())
}

/// Stores what was made in the Secret that it belongs to, of which it keeps the new version.
pub(super) async fn store(
    api: &Api<Secret>,
    made: Made,
    (ca, serving): (&mut Option<Secret>, &mut Option<Secret>),
    (parts, done): (&'static PartNames, &'static str),
) -> Result<(), ApplyError> {
    match made {
        Made::Authority(pair) => {
            let content = (ca_data(pair.clone()), pair.told);
            *ca = Some(write(api, parts.authority, ca.take(), content).await?);
            tracing::info!(secret = parts.authority, "{done}");
        }
        Made::Serving(pair) => {
            let content = (serving_data(pair.clone()), pair.told);
            *serving = Some(write(api, parts.serving, serving.take(), content).await?);
            tracing::info!(secret = parts.serving, "{done}");
        }
    }
    Ok(())
}

/// What is logged when the step is done.
const fn told(step: &CertStep) -> &'static str {
    match step {
        CertStep::NewAuthority { .. } => "certificate authority renewed",
        CertStep::StoreBundle { .. } => "bundle of authorities or annotations updated",
        CertStep::NamePath { .. } => "webhook configurations are to name another path",
        CertStep::IssueServing { .. } => "serving certificate renewed",
        CertStep::StoreServing { .. } => "bundle, paths or annotations of the serving certificate updated",
    }
}

type Data = BTreeMap<String, ByteString>;

fn ca_data(pair: CaPair) -> Data {
    let since = pair.path_since.map(|since| (names::SECRET_PATH_SINCE, since.to_string()));
    let entries = [
        (names::TLS_CERT, pair.certificate),
        (names::TLS_KEY, pair.key),
        (names::CA_BUNDLE, pair.bundle),
        (names::SECRET_PATH, pair.path),
    ];
    data(entries.into_iter().chain(since))
}

fn serving_data(pair: ServingPair) -> Data {
    let before = pair.path_before.map(|path| (names::SECRET_PATH_BEFORE, path));
    let entries = [
        (names::TLS_CERT, pair.certificate),
        (names::TLS_KEY, pair.key),
        (names::CA_BUNDLE, pair.bundle),
        (names::SECRET_PATH, pair.path),
    ];
    data(entries.into_iter().chain(before))
}

fn data(entries: impl Iterator<Item = (&'static str, String)>) -> Data {
    entries.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()
}

async fn write(
    api: &Api<Secret>,
    name: &'static str,
    seen: Option<Secret>,
    (data, told): (Data, Told),
) -> Result<Secret, ApplyError> {
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let written = match seen {
        Some(mut secret) => {
            secret.data = Some(data);
            annotate(&mut secret, told);
            with_deadline(DEADLINE, api.replace(name, &params, &secret)).await
        }
        None => {
            let mut secret = fresh(name, data);
            annotate(&mut secret, told);
            with_deadline(DEADLINE, api.create(&params, &secret)).await
        }
    };
    written.map_err(|source| ApplyError::Write { name, source })
}

/// Those of others stay.
fn annotate(secret: &mut Secret, told: Told) {
    let annotations = told.annotations().map(|(key, text)| (key.to_owned(), text));
    secret.metadata.annotations.get_or_insert_default().extend(annotations);
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
