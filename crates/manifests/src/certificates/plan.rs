//! Which certificates and segments have to be made now, and when to look again.

use jiff::{SignedDuration, Timestamp};
use sluice_api::Lifetime;

use super::inspect::{self, Validity};
use super::lifetimes::{CA, SERVING, settle, signed};
use super::{BACKDATE, CaPair, CertOrder, ServingPair, is_path};

/// So long at most API servers get to learn of a new authority before a serving certificate follows that somebody has asked
/// for: it is to be there within a minute.
const URGENT: SignedDuration = SignedDuration::from_secs(30);

/// The least age of a certificate that an edited annotation or another `certConfig` renews. Each new authority is a write of
/// every webhook configuration, and repeated edits must not use up the writes that the operator has in a minute.
const LEAST_AGE: SignedDuration = SignedDuration::from_secs(15);

/// The most authorities of a bundle, the newest. A serving certificate follows its authority within minutes, so older ones
/// have signed nothing that is served; and the bundle stands in each entry of the webhook configurations, which etcd
/// bounds.
pub(super) const MOST_AUTHORITIES: usize = 16;

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
    /// Store this bundle (PEM) with the authority: something in it has expired, or is missing, or annotations are.
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
    /// Store with the serving certificate, which stays, the bundle of the authority, and its annotations.
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

/// Plans for what the two Secrets hold at `now` and what is asked of them.
///
/// What cannot be read, does not fit together or has expired counts as absent.
pub fn plan(
    now: Timestamp,
    ca: Option<&CaPair>,
    serving: Option<&ServingPair>,
    order: &CertOrder,
) -> CertPlan {
    let at_once = |steps| CertPlan { steps, due: now };
    let (of_ca, of_serving) = (order.of_ca(ca), order.of_serving(serving));
    let authority = ca.and_then(|ca| Some((ca, inspect::authority(&ca.certificate, &ca.key)?)));
    let path = ca.map(|ca| ca.path.clone()).filter(|path| is_path(path));
    let Some((ca, validity)) = authority.filter(|(_, validity)| validity.contains(now)) else {
        let keep = ca.map(|ca| ca.bundle.clone()).unwrap_or_default();
        let both = ca.filter(|_| path.is_some()).zip(serving);
        // What API servers trust already is served until they know the new authority.
        let stays =
            both.and_then(|(ca, serving)| usable(now, ca, &ca.bundle, serving, &order.names)).is_some();
        let issue = (!stays).then(|| issue_again(path.as_deref(), serving));
        return at_once([CertStep::NewAuthority { keep, path }].into_iter().chain(issue).collect());
    };
    let Some(path) = path else {
        let served = serving.map(|serving| serving.path.clone()).filter(|path| is_path(path));
        return at_once(vec![CertStep::NamePath { path: served }]);
    };
    let is_urgent = ca.told.asks_for_renewal(validity, of_ca, CA);
    let renew_ca = if is_urgent { after(validity, LEAST_AGE) } else { renewal(validity, of_ca) };
    if renew_ca <= now {
        // The next plan sees the new authority and knows when a serving certificate may follow.
        let keep = format!("{}{}", ca.certificate, ca.bundle);
        return at_once(vec![CertStep::NewAuthority { keep, path: Some(path) }]);
    }
    let mut steps = Vec::new();
    let (bundle, first_end) = wanted_bundle(now, ca);
    if bundle != ca.bundle || ca.told != ca.told.of_kept(&ca.certificate, of_ca, CA) {
        steps.push(CertStep::StoreBundle { bundle: bundle.clone() });
    }
    let lasts = Lasts { serving: of_serving, settle: settle(of_ca, of_serving) };
    let (step, at) = next_of_serving(now, (ca, validity), &bundle, serving, (order, lasts));
    if at <= now {
        steps.push(step);
        return at_once(steps);
    }
    if !steps.is_empty() {
        return at_once(steps);
    }
    CertPlan { steps, due: renew_ca.min(first_end).min(at) }
}

/// How long something lasts.
#[derive(Clone, Copy)]
struct Lasts {
    /// The serving certificate.
    serving: Lifetime,
    /// Until API servers and webhooks know what is new.
    settle: SignedDuration,
}

/// The next step of the serving certificate's Secret or of the segment in it, and when it is due.
fn next_of_serving(
    now: Timestamp,
    (ca, ca_validity): (&CaPair, Validity),
    bundle: &str,
    serving: Option<&ServingPair>,
    (order, lasts): (&CertOrder, Lasts),
) -> (CertStep, Timestamp) {
    let usable = serving.and_then(|serving| Some((serving, usable(now, ca, bundle, serving, &order.names)?)));
    let Some((serving, validity)) = usable else {
        return (issue_again(Some(&ca.path), serving), now);
    };
    let is_urgent = serving.told.asks_for_renewal(validity, lasts.serving, SERVING);
    let told = serving.told.of_kept(&serving.certificate, lasts.serving, SERVING);
    if serving.bundle != bundle || serving.told != told {
        return (CertStep::StoreServing { path_before: serving.path_before.clone() }, now);
    }
    let mut renew = if is_urgent { after(validity, LEAST_AGE) } else { renewal(validity, lasts.serving) };
    if !inspect::signed_by(&serving.certificate, &ca.certificate) {
        let settle = if is_urgent { lasts.settle.min(URGENT) } else { lasts.settle };
        renew = renew.max(after(ca_validity, settle)).min(latest(validity));
    }
    // What is answered beside a new segment is what the configurations name.
    let issue = CertStep::IssueServing { path_is_new: true, path_before: Some(ca.path.clone()) };
    if serving.path != ca.path {
        let name = after(validity, lasts.settle);
        // One that is not named yet may as well be replaced.
        let named = CertStep::NamePath { path: Some(serving.path.clone()) };
        return if renew <= now || renew < name { (issue, renew) } else { (named, name) };
    }
    if serving.path_before.is_some() {
        // Before any renewal with another segment: only two are answered at a time.
        let forget = ca.path_since.and_then(|since| since.saturating_add(lasts.settle).ok()).unwrap_or(now);
        if is_urgent && renew < forget {
            let path_before = serving.path_before.clone();
            return (CertStep::IssueServing { path_is_new: false, path_before }, renew);
        }
        return (CertStep::StoreServing { path_before: None }, forget);
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
    let trusted = inspect::authorities(bundle).iter().any(|(authority, validity)| {
        validity.contains(now) && inspect::signed_by(&serving.certificate, authority)
    });
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

/// The authority's own certificate and the newest others that have not expired, and when the first of these will.
fn wanted_bundle(now: Timestamp, ca: &CaPair) -> (String, Timestamp) {
    let own = inspect::normal(&ca.certificate).unwrap_or_default();
    let mut bundle = own.clone();
    let mut first_end = Timestamp::MAX;
    let mut seen = vec![own];
    for (authority, validity) in inspect::authorities(&ca.bundle) {
        if seen.len() == MOST_AUTHORITIES {
            break;
        }
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

/// When a certificate of this lifetime is renewed. One that its authority cut short is in the middle of its life.
fn renewal(validity: Validity, wanted: Lifetime) -> Timestamp {
    let (life, renew_after) = (life(validity), signed(wanted.renew_after));
    // Dates are whole seconds.
    let is_whole = life + SignedDuration::from_secs(1) >= signed(wanted.duration);
    let age = if is_whole { renew_after } else { renew_after.min(life / 2) };
    after(validity, age).min(latest(validity))
}

/// When it has to be renewed, whatever else is not ready.
fn latest(validity: Validity) -> Timestamp {
    validity.not_after.saturating_sub(life(validity) / 10).unwrap_or(validity.not_after)
}

/// From its issue to its end.
fn life(validity: Validity) -> SignedDuration {
    validity.not_after.duration_since(after(validity, SignedDuration::ZERO)).max(SignedDuration::ZERO)
}
