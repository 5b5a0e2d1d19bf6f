//! What the two Secrets hold.

use k8s_openapi::api::core::v1::Secret;
use sluice_api::names;
use sluice_manifests::certificates::{CaPair, ServingPair, Told};

/// The authority in a Secret. What is missing is empty, and the plan makes it anew.
pub(crate) fn ca_pair(secret: &Secret) -> CaPair {
    CaPair {
        certificate: text(secret, names::TLS_CERT),
        key: text(secret, names::TLS_KEY),
        bundle: text(secret, names::CA_BUNDLE),
        path: text(secret, names::SECRET_PATH),
        path_since: text(secret, names::SECRET_PATH_SINCE).parse().ok(),
        told: told(secret),
    }
}

/// As [`ca_pair`], the serving certificate.
pub(super) fn serving_pair(secret: &Secret) -> ServingPair {
    let before = text(secret, names::SECRET_PATH_BEFORE);
    ServingPair {
        certificate: text(secret, names::TLS_CERT),
        key: text(secret, names::TLS_KEY),
        bundle: text(secret, names::CA_BUNDLE),
        path: text(secret, names::SECRET_PATH),
        path_before: Some(before).filter(|path| !path.is_empty()),
        told: told(secret),
    }
}

fn told(secret: &Secret) -> Told {
    let annotation = |key: &str| secret.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
    Told {
        not_before: annotation(names::CERT_NOT_BEFORE),
        not_after: annotation(names::CERT_NOT_AFTER),
        config: annotation(names::CERT_CONFIG),
    }
}

pub(super) fn text(secret: &Secret, key: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
}
