//! Which certificates have to be made now, and when to look again.

use jiff::{SignedDuration, Timestamp};

use super::inspect::{self, Validity};
use super::{BACKDATE, CA_RENEW_AFTER, CaPair, SETTLE, ServingPair, is_path};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertStep {
    /// Make a new authority. Those in `keep` (PEM) are trusted until they expire.
    NewAuthority {
        /// The bundle so far.
        keep: String,
        /// The webhook's path so far, if it is one.
        path: Option<String>,
    },
    /// Store a new path of the webhook with the authority: there is none.
    NewPath,
    /// Store this bundle (PEM) with the authority: something in it has expired, or is missing.
    StoreBundle {
        /// The bundle to store.
        bundle: String,
    },
    /// Issue a serving certificate from the authority as it is after the steps before.
    IssueServing,
}

/// What to do now and when to plan again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertPlan {
    /// In this order.
    pub steps: Vec<CertStep>,
    /// When the next step is due. After steps have been done this has to be asked again.
    pub due: Timestamp,
}

/// Plans for what the two Secrets hold at `now`; `names` are those the serving certificate needs.
///
/// What cannot be read, does not fit together or has expired counts as absent.
pub fn plan(
    now: Timestamp,
    ca: Option<&CaPair>,
    serving: Option<&ServingPair>,
    names: &[String],
) -> CertPlan {
    let authority = ca.and_then(|ca| Some((ca, inspect::authority(&ca.certificate, &ca.key)?)));
    let path = ca.map(|ca| ca.path.clone()).filter(|path| is_path(path));
    let Some((ca, validity)) = authority.filter(|(_, validity)| validity.contains(now)) else {
        let keep = ca.map(|ca| ca.bundle.clone()).unwrap_or_default();
        let steps = vec![CertStep::NewAuthority { keep, path }, CertStep::IssueServing];
        return CertPlan { steps, due: now };
    };
    if path.is_none() {
        // The serving certificate's Secret follows: it differs then.
        return CertPlan { steps: vec![CertStep::NewPath], due: now };
    }
    let renew_ca = after(validity, CA_RENEW_AFTER);
    let mut steps = Vec::new();
    let mut due = renew_ca;
    if renew_ca <= now {
        // The next plan sees the new authority and knows when a serving certificate may follow.
        return CertPlan { steps: vec![CertStep::NewAuthority { keep: whole_bundle(ca), path }], due: now };
    }
    let (bundle, first_end) = wanted_bundle(now, ca);
    if bundle != ca.bundle {
        steps.push(CertStep::StoreBundle { bundle: bundle.clone() });
    }
    due = due.min(first_end);
    let renew_serving = serving_due(now, ca, validity, &bundle, serving, names);
    if renew_serving <= now {
        steps.push(CertStep::IssueServing);
    } else {
        due = due.min(renew_serving);
    }
    CertPlan { steps, due }
}

/// When the serving certificate has to be replaced; not after `now` if at once.
fn serving_due(
    now: Timestamp,
    ca: &CaPair,
    ca_validity: Validity,
    bundle: &str,
    serving: Option<&ServingPair>,
    names: &[String],
) -> Timestamp {
    let Some(serving) = serving else { return now };
    let Some(validity) = inspect::serving(&serving.certificate, &serving.key, names) else {
        return now;
    };
    if inspect::authorities(&serving.certificate).is_empty() {
        // Without its authority processes of the installation do not trust each other.
        return now;
    }
    let trusted = inspect::authorities(bundle)
        .iter()
        .any(|(authority, _)| inspect::signed_by(&serving.certificate, authority));
    if !trusted || !validity.contains(now) || serving.path != ca.path {
        return now;
    }
    let due = half_life(validity);
    if inspect::signed_by(&serving.certificate, &ca.certificate) {
        return due;
    }
    due.max(after(ca_validity, SETTLE)).min(validity.not_after)
}

fn whole_bundle(ca: &CaPair) -> String {
    format!("{}{}", ca.certificate, ca.bundle)
}

/// The authority's own certificate and every other that has not expired, and when the first of the others will.
fn wanted_bundle(now: Timestamp, ca: &CaPair) -> (String, Timestamp) {
    let own = inspect::normal(&ca.certificate).unwrap_or_default();
    let mut bundle = own.clone();
    let mut first_end = Timestamp::MAX;
    let mut seen = vec![own];
    for (authority, validity) in inspect::authorities(&ca.bundle) {
        if now < validity.not_after && !seen.contains(&authority) {
            bundle.push_str(&authority);
            first_end = first_end.min(validity.not_after);
            seen.push(authority);
        }
    }
    (bundle, first_end)
}

/// `age` after the certificate was issued.
fn after(validity: Validity, age: SignedDuration) -> Timestamp {
    let issued = validity.not_before.saturating_add(BACKDATE).unwrap_or(Timestamp::MAX);
    issued.saturating_add(age).unwrap_or(Timestamp::MAX)
}

fn half_life(validity: Validity) -> Timestamp {
    let issued = after(validity, SignedDuration::ZERO);
    let second = issued.as_second().midpoint(validity.not_after.as_second());
    Timestamp::from_second(second).unwrap_or(validity.not_after)
}
