//! From the two Secrets to what has to be done now.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use sluice_api::names;
use sluice_manifests::certificates::{CaPair, CertOrder, CertStep, ServingPair, Told, plan};

use super::observe::Seen;

/// What to do in one round of the loop.
#[derive(Debug)]
pub(super) enum Round {
    /// Not everything was seen yet.
    Blind,
    /// Nothing to do until then, unless something changes.
    Rest {
        /// How long that is.
        until: Duration,
    },
    /// These steps, on the Secrets as they were seen.
    Work {
        /// In this order.
        steps: Vec<CertStep>,
        /// The authority's Secret; `None` if there is none.
        ca: Option<Box<Secret>>,
        /// The serving certificate's Secret; `None` if there is none.
        serving: Option<Box<Secret>>,
    },
}

pub(super) fn next_round(
    now: Timestamp,
    ca: &Seen<Secret>,
    serving: &Seen<Secret>,
    order: &CertOrder,
) -> Round {
    let (Some(ca), Some(serving)) = (known(ca), known(serving)) else {
        return Round::Blind;
    };
    let plan = plan(now, ca.map(ca_pair).as_ref(), serving.map(serving_pair).as_ref(), order);
    if plan.steps.is_empty() {
        let until = Duration::try_from(plan.due.duration_since(now)).unwrap_or_default();
        return Round::Rest { until };
    }
    Round::Work { steps: plan.steps, ca: ca.cloned().map(Box::new), serving: serving.cloned().map(Box::new) }
}

pub(super) fn known(seen: &Seen<Secret>) -> Option<Option<&Secret>> {
    match seen {
        Seen::Unknown => None,
        Seen::Absent => Some(None),
        Seen::Present(secret) => Some(Some(secret)),
    }
}

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
