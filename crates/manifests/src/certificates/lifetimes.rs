//! How long certificates live, what is asked of that, and what annotations say of it.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use sluice_api::{AskedLifetimes, Lifetime, go_duration, names, parse_go_duration};

use super::inspect::{self, Validity};
use super::{BACKDATE, CaPair, SETTLE, ServingPair};

const HOUR: u64 = 3600;

/// Of the authority, if nothing else is asked. A serving certificate that was issued last before its renewal lives to its
/// end.
pub const CA: Lifetime = Lifetime {
    duration: Duration::from_secs(30 * 24 * HOUR),
    renew_after: Duration::from_secs(20 * 24 * HOUR),
};
/// Of the serving certificate, if nothing else is asked. It is renewed at a third of its life: without an operator all works
/// for four days more.
pub const SERVING: Lifetime =
    Lifetime { duration: Duration::from_secs(7 * 24 * HOUR), renew_after: Duration::from_secs(56 * HOUR) };

/// What is asked of the certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertOrder {
    /// The names that the serving certificate is for.
    pub names: Vec<String>,
    /// The lifetime of the authority; `None`: the one that it was issued for.
    pub ca: Option<Lifetime>,
    /// As `ca`, of the serving certificate.
    pub serving: Option<Lifetime>,
}

impl CertOrder {
    /// Certificates for these names. `asked`: what a `certConfig` says, if that is known. What cannot be leaves the lifetime
    /// as it is.
    #[must_use]
    pub fn new(names: &[String], asked: Option<&AskedLifetimes>) -> Self {
        let ca = asked.and_then(|asked| asked.ca.as_ref().ok());
        let serving = asked.and_then(|asked| asked.server.as_ref().ok());
        Self {
            names: names.to_vec(),
            ca: ca.map(|ca| ca.unwrap_or(CA)),
            serving: serving.map(|serving| serving.unwrap_or(SERVING)),
        }
    }

    pub(super) fn of_ca(&self, ca: Option<&CaPair>) -> Lifetime {
        self.ca.unwrap_or_else(|| ca.map_or(CA, |ca| ca.told.lifetime(CA)))
    }

    pub(super) fn of_serving(&self, serving: Option<&ServingPair>) -> Lifetime {
        self.serving.unwrap_or_else(|| serving.map_or(SERVING, |serving| serving.told.lifetime(SERVING)))
    }
}

/// What the annotations of a Secret say of its certificate, as it is written there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// [`names::CERT_NOT_BEFORE`].
    pub not_before: Option<String>,
    /// [`names::CERT_NOT_AFTER`].
    pub not_after: Option<String>,
    /// [`names::CERT_CONFIG`].
    pub config: Option<String>,
}

/// The text of [`names::CERT_CONFIG`], as application-aware-quota's operator writes it.
#[derive(Serialize, Deserialize)]
struct Config {
    lifetime: String,
    refresh: String,
}

impl Told {
    /// What is to be said of a certificate that was issued for this lifetime.
    pub(super) fn of(certificate: &str, lifetime: Lifetime) -> Self {
        let validity = inspect::validity_of(certificate);
        let config =
            Config { lifetime: go_duration(lifetime.duration), refresh: go_duration(lifetime.renew_after) };
        Self {
            // As it was issued: what it is dated back for is not part of its life.
            not_before: validity.and_then(|it| Some(it.not_before.checked_add(BACKDATE).ok()?.to_string())),
            not_after: validity.map(|it| it.not_after.to_string()),
            config: serde_json::to_string(&config).ok(),
        }
    }

    /// The annotations, those that say something.
    pub fn annotations(self) -> impl Iterator<Item = (&'static str, String)> {
        let all = [
            (names::CERT_NOT_BEFORE, self.not_before),
            (names::CERT_NOT_AFTER, self.not_after),
            (names::CERT_CONFIG, self.config),
        ];
        all.into_iter().filter_map(|(key, text)| Some((key, text?)))
    }

    /// Whether the certificate is to be renewed now: somebody has written another end, or it was issued for another lifetime
    /// than is wanted. One without these annotations is of a version that wrote none, and was issued for the `default`.
    pub(super) fn asks_for_renewal(&self, validity: Validity, wanted: Lifetime, default: Lifetime) -> bool {
        let is_other = |told: &String| *told != validity.not_after.to_string();
        self.not_after.as_ref().is_some_and(is_other) || self.lifetime(default) != wanted
    }

    /// What is to be said of a certificate that stays. As long as it is to be renewed, that is what is said.
    pub(super) fn of_kept(&self, certificate: &str, wanted: Lifetime, default: Lifetime) -> Self {
        let validity = inspect::validity_of(certificate);
        if validity.is_some_and(|validity| self.asks_for_renewal(validity, wanted, default)) {
            return self.clone();
        }
        Self::of(certificate, wanted)
    }

    /// The lifetime that the certificate was issued for; `default` if nothing usable is said of it.
    pub(super) fn lifetime(&self, default: Lifetime) -> Lifetime {
        let read = |text: &str| {
            let config: Config = serde_json::from_str(text).ok()?;
            let (duration, renew_after) =
                (parse_go_duration(&config.lifetime)?, parse_go_duration(&config.refresh)?);
            Some(Lifetime { duration, renew_after })
        };
        let told = self.config.as_deref().and_then(read);
        told.filter(|lifetime| lifetime.is_allowed()).unwrap_or(default)
    }
}

/// How long API servers and webhooks get to learn of a new authority or segment: a tenth of the time between renewals, and
/// not more than [`SETTLE`].
pub(super) fn settle(ca: Lifetime, serving: Lifetime) -> SignedDuration {
    (signed(ca.renew_after.min(serving.renew_after)) / 10).min(SETTLE)
}

pub(super) fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
