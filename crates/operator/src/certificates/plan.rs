//! From the two Secrets to what has to be done now.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use sluice_manifests::certificates::{CertOrder, CertStep, plan};

use super::observe::Seen;
use super::pairs::{ca_pair, serving_pair};

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
