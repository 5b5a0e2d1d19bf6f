//! A serving certificate that cert-manager has issued: what the own two Secrets hold of it, and when.
//!
//! Order of a rotation, as with an own authority: an authority that is new is published first, and only [`SETTLE`] later
//! the certificate that it has signed is served. The segment before the webhook's paths is made once and stays.

use jiff::Timestamp;

use super::inspect::{self, Validity};
use super::issue::new_path;
use super::plan::MOST_AUTHORITIES;
use super::step::Made;
use super::{CaPair, CertError, SETTLE, ServingPair, Told, is_path};

/// What the Secret of cert-manager holds.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// PEM of the certificate and those between it and its authority.
    pub certificate: String,
    /// PEM of its private key.
    pub key: String,
    /// PEM of its authority.
    pub authority: String,
}

// The key must not reach a log by way of `{:?}`.
impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Given").finish_non_exhaustive()
    }
}

/// Why what is given is of no use. What is served stays.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// Without it nobody knows whom API servers are to trust.
    #[error(
        "ca.crt has no certificate of an authority: name an issuer that writes it, such as one of kind CA"
    )]
    NoAuthority,
    /// They are no pair for these names and purposes.
    #[error(
        "tls.crt and tls.key are no pair for servers and clients with the names of webhook and metrics: let cert-manager \
         issue them for the Certificate of the operator"
    )]
    NoPair,
    /// It is of another authority than is told.
    #[error("tls.crt is not signed by the authority in ca.crt: name an issuer that tells its own authority")]
    OtherAuthority,
    /// It has expired.
    #[error("tls.crt has expired: see why cert-manager does not renew it")]
    NotValid,
    /// It is not valid yet, but from then on.
    #[error(
        "tls.crt is valid from {0} on: if that is not soon, compare the clocks of this node and of the issuer"
    )]
    NotYet(Timestamp),
    /// A segment could not be made.
    #[error(transparent)]
    Make(#[from] CertError),
}

/// What to store now, and when to look again.
#[derive(Debug, Default)]
pub struct Taking {
    /// `None`: nothing.
    pub made: Option<Made>,
    /// When something is due without a change of what is given; `None`: never.
    pub due: Option<Timestamp>,
}

/// Whether each authority that is given is among those that API servers are told to trust.
#[must_use]
pub fn is_published(ca: Option<&CaPair>, given: &Given) -> bool {
    let known = ca.map(|ca| inspect::authorities(&ca.bundle)).unwrap_or_default();
    inspect::authorities(&given.authority).iter().all(|(own, _)| known.iter().any(|(each, _)| each == own))
}

/// Plans for what is given and for what the own two Secrets hold at `now`. `published`: since when, as far as this process
/// knows, [`is_published`] holds.
///
/// # Errors
/// When what is given is of no use, or there are no random numbers.
pub fn take(
    now: Timestamp,
    (ca, serving): (Option<&CaPair>, Option<&ServingPair>),
    given: &Given,
    names: &[String],
    published: Option<Timestamp>,
) -> Result<Taking, TakeError> {
    let validity = usable(now, given, names)?;
    let (bundle, first_end) = bundle(now, ca, given);
    let due = Some(first_end.min(validity.not_after));
    let path = ca.map(|ca| &ca.path).or_else(|| serving.map(|serving| &serving.path));
    let path = match path.filter(|path| is_path(path)) {
        Some(path) => path.clone(),
        None => new_path()?,
    };
    if ca.is_none_or(|ca| ca.bundle != bundle || ca.path != path) {
        // An authority of its own that there was stays: it has signed what is served.
        let own = ca.cloned().unwrap_or_else(|| nothing(path.clone(), now));
        let made = Some(Made::Authority(CaPair { bundle, path, ..own }));
        return Ok(Taking { made, due });
    }
    let wanted = wanted(given, bundle, path, serving, validity);
    let Some(serving) = serving else { return Ok(Taking { made: Some(Made::Serving(wanted)), due }) };
    if *serving == wanted {
        return Ok(Taking { made: None, due });
    }
    let is_new = serving.certificate != wanted.certificate && !is_signed(serving, &given.authority);
    if is_new && is_served(now, serving, &wanted, names) {
        let settled = published.unwrap_or(now).saturating_add(SETTLE).unwrap_or(Timestamp::MAX);
        let at = settled.min(latest(&serving.certificate));
        if now < at {
            // What the processes of the installation trust comes before what they show each other.
            let kept = ServingPair { bundle: wanted.bundle, ..serving.clone() };
            let made = (*serving != kept).then_some(Made::Serving(kept));
            return Ok(Taking { made, due: due.map(|due| due.min(at)) });
        }
    }
    Ok(Taking { made: Some(Made::Serving(wanted)), due })
}

fn usable(now: Timestamp, given: &Given, names: &[String]) -> Result<Validity, TakeError> {
    let authorities = inspect::authorities(&given.authority);
    if authorities.is_empty() {
        return Err(TakeError::NoAuthority);
    }
    let validity = inspect::given(&given.certificate, &given.key, names).ok_or(TakeError::NoPair)?;
    let between = inspect::authorities(&given.certificate);
    let issuers = authorities.iter().chain(&between);
    if !issuers.into_iter().any(|(issuer, _)| inspect::signed_by(&given.certificate, issuer)) {
        return Err(TakeError::OtherAuthority);
    }
    if now < validity.not_before {
        return Err(TakeError::NotYet(validity.not_before));
    }
    if validity.contains(now) { Ok(validity) } else { Err(TakeError::NotValid) }
}

/// The authorities that are given and the newest of the others that have not expired, and when the first of these will.
fn bundle(now: Timestamp, ca: Option<&CaPair>, given: &Given) -> (String, Timestamp) {
    let before = ca.map(|ca| inspect::authorities(&ca.bundle)).unwrap_or_default();
    let (mut bundle, mut first_end, mut seen) = (String::new(), Timestamp::MAX, Vec::new());
    for (authority, validity) in inspect::authorities(&given.authority).into_iter().chain(before) {
        if now < validity.not_after && !seen.contains(&authority) && seen.len() < MOST_AUTHORITIES {
            bundle.push_str(&authority);
            first_end = first_end.min(validity.not_after);
            seen.push(authority);
        }
    }
    (bundle, first_end)
}

/// An authority that cannot sign: the plan for an own one makes it anew.
fn nothing(path: String, now: Timestamp) -> CaPair {
    CaPair {
        certificate: String::new(),
        key: String::new(),
        bundle: String::new(),
        path,
        path_since: Some(now),
        told: Told::default(),
    }
}

fn wanted(
    given: &Given,
    bundle: String,
    path: String,
    serving: Option<&ServingPair>,
    validity: Validity,
) -> ServingPair {
    // A segment that is about to be named is answered on.
    let also = serving.filter(|serving| serving.path_before.as_ref() == Some(&path));
    let (path, path_before) = match also {
        Some(serving) => (serving.path.clone(), Some(path)),
        None => (path, None),
    };
    let told = Told {
        not_before: Some(validity.not_before.to_string()),
        not_after: Some(validity.not_after.to_string()),
        // What an own certificate was issued for.
        config: serving.and_then(|serving| serving.told.config.clone()),
    };
    ServingPair {
        certificate: given.certificate.clone(),
        key: given.key.clone(),
        bundle,
        path,
        path_before,
        told,
    }
}

/// Whether clients accept what is served now.
fn is_served(now: Timestamp, serving: &ServingPair, wanted: &ServingPair, names: &[String]) -> bool {
    let validity = inspect::given(&serving.certificate, &serving.key, names);
    let is_trusted = is_signed(serving, &wanted.bundle) || is_signed(serving, &serving.certificate);
    is_trusted && validity.is_some_and(|validity| validity.contains(now))
}

/// Whether one of these authorities has signed what is served: then API servers trust it already.
fn is_signed(serving: &ServingPair, authorities: &str) -> bool {
    let authorities = inspect::authorities(authorities);
    authorities.iter().any(|(authority, _)| inspect::signed_by(&serving.certificate, authority))
}

/// When a certificate has to be replaced, whatever else is not ready: in the last tenth of its life.
fn latest(certificate: &str) -> Timestamp {
    let Some(Validity { not_before, not_after }) = inspect::validity_of(certificate) else {
        return Timestamp::MIN;
    };
    not_after.saturating_sub(not_after.duration_since(not_before) / 10).unwrap_or(not_after)
}
