//! Which certificates and segments have to be made now, and when to look again.

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
        /// The segment that the configurations name, if it is one.
        path: Option<String>,
    },
    /// Store this bundle (PEM) with the authority: something in it has expired, or is missing.
    StoreBundle {
        /// The bundle to store.
        bundle: String,
    },
    /// Store with the authority the segment that the configurations are to name.
    NamePath {
        /// `None`: a new one.
        path: Option<String>,
    },
    /// Issue a serving certificate from the authority as it is after the steps before.
    IssueServing {
        /// With a new segment; otherwise with the one that the configurations name.
        path_is_new: bool,
        /// The segment that is answered too.
        path_before: Option<String>,
    },
    /// Store with the serving certificate, which stays, the bundle of the authority.
    StoreServing {
        /// The segment that is answered too.
        path_before: Option<String>,
    },
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
    let at_once = |steps| CertPlan { steps, due: now };
    let authority = ca.and_then(|ca| Some((ca, inspect::authority(&ca.certificate, &ca.key)?)));
    let path = ca.map(|ca| ca.path.clone()).filter(|path| is_path(path));
    let Some((ca, validity)) = authority.filter(|(_, validity)| validity.contains(now)) else {
        let keep = ca.map(|ca| ca.bundle.clone()).unwrap_or_default();
        let issue = issue_again(path.as_deref(), serving);
        return at_once(vec![CertStep::NewAuthority { keep, path }, issue]);
    };
    let Some(path) = path else {
        let served = serving.map(|serving| serving.path.clone()).filter(|path| is_path(path));
        return at_once(vec![CertStep::NamePath { path: served }]);
    };
    let renew_ca = after(validity, CA_RENEW_AFTER);
    if renew_ca <= now {
        // The next plan sees the new authority and knows when a serving certificate may follow.
        let keep = format!("{}{}", ca.certificate, ca.bundle);
        return at_once(vec![CertStep::NewAuthority { keep, path: Some(path) }]);
    }
    let mut steps = Vec::new();
    let (bundle, first_end) = wanted_bundle(now, ca);
    if bundle != ca.bundle {
        steps.push(CertStep::StoreBundle { bundle: bundle.clone() });
    }
    let (step, at) = next_of_serving(now, (ca, validity), &bundle, serving, names);
    if at <= now {
        steps.push(step);
        return at_once(steps);
    }
    CertPlan { steps, due: renew_ca.min(first_end).min(at) }
}

/// The next step of the serving certificate's Secret or of the segment in it, and when it is due.
fn next_of_serving(
    now: Timestamp,
    (ca, ca_validity): (&CaPair, Validity),
    bundle: &str,
    serving: Option<&ServingPair>,
    names: &[String],
) -> (CertStep, Timestamp) {
    let usable = serving.and_then(|serving| Some((serving, usable(now, ca, bundle, serving, names)?)));
    let Some((serving, validity)) = usable else {
        return (issue_again(Some(&ca.path), serving), now);
    };
    if serving.bundle != bundle {
        return (CertStep::StoreServing { path_before: serving.path_before.clone() }, now);
    }
    let mut renew = after_third(validity);
    if !inspect::signed_by(&serving.certificate, &ca.certificate) {
        renew = renew.max(after(ca_validity, SETTLE)).min(validity.not_after);
    }
    // What is answered beside a new segment is what the configurations name.
    let issue = CertStep::IssueServing { path_is_new: true, path_before: Some(ca.path.clone()) };
    if serving.path != ca.path {
        let name = after(validity, SETTLE);
        // One that is not named yet may as well be replaced.
        let named = CertStep::NamePath { path: Some(serving.path.clone()) };
        return if renew <= now || renew < name { (issue, renew) } else { (named, name) };
    }
    if serving.path_before.is_some() {
        // Before any renewal: only two are answered at a time.
        let since = ca.path_since.and_then(|since| since.saturating_add(SETTLE).ok());
        return (CertStep::StoreServing { path_before: None }, since.unwrap_or(now));
    }
    (issue, renew)
}

/// The validity of a serving certificate that clients accept, with the segment that the configurations name.
fn usable(
    now: Timestamp,
    ca: &CaPair,
    bundle: &str,
    serving: &ServingPair,
    names: &[String],
) -> Option<Validity> {
    let validity = inspect::serving(&serving.certificate, &serving.key, names)?;
    let trusted = inspect::authorities(bundle)
        .iter()
        .any(|(authority, _)| inspect::signed_by(&serving.certificate, authority));
    let answered =
        is_path(&serving.path) && (serving.path == ca.path || serving.path_before.as_ref() == Some(&ca.path));
    (trusted && validity.contains(now) && answered).then_some(validity)
}

/// A serving certificate in place of one that is of no use, or of none. Segments that API servers may still ask for are
/// answered on.
fn issue_again(path: Option<&str>, serving: Option<&ServingPair>) -> CertStep {
    let answered =
        serving.into_iter().flat_map(|serving| [Some(&serving.path), serving.path_before.as_ref()]);
    let before = answered.flatten().find(|each| is_path(each) && Some(each.as_str()) != path);
    CertStep::IssueServing { path_is_new: false, path_before: before.cloned() }
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

fn after_third(validity: Validity) -> Timestamp {
    let issued = after(validity, SignedDuration::ZERO);
    let life = validity.not_after.duration_since(issued);
    issued.saturating_add(life / 3).unwrap_or(validity.not_after)
}
