//! The own certificate authority, the webhook's serving certificate, and the secret segment before the webhook's paths.
//!
//! Order of a rotation: the new authority is published beside the old one, and only [`SETTLE`] later a serving
//! certificate is issued from it, so no API server meets a certificate that it does not trust yet. An old
//! authority stays in the bundle until it expires.
//!
//! Each renewed serving certificate brings a new segment. The webhook answers both at once; [`SETTLE`] later the webhook
//! configurations name the new one; once more [`SETTLE`] later the webhook forgets the old one. So no API server asks for
//! a segment that a webhook does not know.
//!
//! [`SETTLE`] is for lifetimes as they are without a `certConfig`; with shorter ones it is a tenth of the time between
//! renewals (`lifetimes.rs`).

mod given;
mod inspect;
mod issue;
mod lifetimes;
mod plan;
mod step;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};

pub use given::{Given, TakeError, Taking, is_published, take};
pub use issue::{issue_serving, new_authority};
pub use lifetimes::{CA, CertOrder, SERVING, Told};
pub use plan::{CertPlan, CertStep, plan};
pub use step::{Made, make};

/// How far certificates are dated back, for servers whose clock is behind.
pub const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// How long API servers and webhooks get to learn of a new authority or segment. A broken watch is noticed and begun anew
/// in less.
pub const SETTLE: SignedDuration = SignedDuration::from_mins(5);

/// The authority as its Secret holds it.
#[derive(Clone, PartialEq, Eq)]
pub struct CaPair {
    /// PEM of its certificate.
    pub certificate: String,
    /// PEM of its private key.
    pub key: String,
    /// PEM of all authorities that are trusted, its own first.
    pub bundle: String,
    /// The segment that the webhook configurations name (see [`is_path`]).
    pub path: String,
    /// Since when, or since some later time.
    pub path_since: Option<Timestamp>,
    /// What the annotations of the Secret say.
    pub told: Told,
}

/// The serving certificate as its Secret holds it.
#[derive(Clone, PartialEq, Eq)]
pub struct ServingPair {
    /// PEM of the certificate.
    pub certificate: String,
    /// PEM of its private key.
    pub key: String,
    /// As in [`CaPair`]: by these the processes of the installation trust each other.
    pub bundle: String,
    /// The segment that is answered: the configurations name it or are about to.
    pub path: String,
    /// Another one that is answered too.
    pub path_before: Option<String>,
    /// What the annotations of the Secret say.
    pub told: Told,
}

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// There are no random numbers.
    #[error("could not make a random path for the webhook")]
    Random,
    /// Key generation or signing failed.
    #[error("could not issue a certificate for {subject}")]
    Issue {
        /// Whom the certificate was for.
        subject: String,
        /// What the cryptography library said.
        #[source]
        source: rcgen::Error,
    },
}

/// The names under which the API server calls the Service `service` in `namespace`.
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
        service.to_owned(),
    ]
}

/// Whether this is a segment that [`new_path`] may have made: random, so that it cannot be guessed,
/// and without characters that need escapes.
pub fn is_path(text: &str) -> bool {
    text.len() == 2 * PATH_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Random bytes of a path.
const PATH_BYTES: usize = 16;

// Keys must not reach a log by way of `{:?}`.
impl std::fmt::Debug for CaPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaPair").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ServingPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingPair").finish_non_exhaustive()
    }
}
