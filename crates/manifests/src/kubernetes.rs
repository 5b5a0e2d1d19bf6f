//! The versions of Kubernetes that an installation is rendered for.

use std::str::FromStr;

use crate::options::Gating;

/// The first and the last minor version that Sluice is rendered for.
const KNOWN: (u32, u32) = (31, 37);
/// The first version whose API server gates by an admission policy (`MutatingAdmissionPolicy`, KEP-3962).
const FIRST_WITH_MUTATING_POLICIES: u32 = 36;

/// A minor version of Kubernetes 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesVersion(u32);

/// Why a text is no [`KubernetesVersion`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "\"{0}\" is no version that Sluice is rendered for: give one from 1.{first} to 1.{last}",
    first = KNOWN.0,
    last = KNOWN.1
)]
pub struct UnknownVersion(String);

impl KubernetesVersion {
    /// Who gates pods there, where a user has chosen `wanted`.
    #[must_use]
    pub fn gating(self, wanted: Gating) -> Gating {
        if self.0 < FIRST_WITH_MUTATING_POLICIES { Gating::Webhook } else { wanted }
    }
}

/// As `1.36`, and as servers tell it: `v1.36.3`.
impl FromStr for KubernetesVersion {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let minor = || {
            let (minor, patch) = match text.trim_start_matches('v').strip_prefix("1.")?.split_once('.') {
                Some((minor, patch)) => (minor, patch),
                None => (text.trim_start_matches('v').strip_prefix("1.")?, "0"),
            };
            patch.starts_with(|c: char| c.is_ascii_digit()).then_some(minor)?.parse::<u32>().ok()
        };
        let known = minor().filter(|minor| (KNOWN.0..=KNOWN.1).contains(minor));
        known.map(Self).ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use super::*;

    #[test]
    fn versions_are_read_as_people_and_servers_write_them() {
        for (text, gating) in [
            ("1.31", Gating::Webhook),
            ("v1.35.2", Gating::Webhook),
            ("1.36", Gating::Policy),
            ("v1.37.0-rc.1", Gating::Policy),
        ] {
            let version: KubernetesVersion = text.parse().unwrap();
            assert_eq!(version.gating(Gating::Policy), gating, "{text}");
            assert_eq!(version.gating(Gating::Webhook), Gating::Webhook, "{text}");
        }
        for wrong in ["1.12", "1.30", "1.38", "2.31", "1", "1.", "1.x", "1.36.", "latest", "", "v"] {
            let error = wrong.parse::<KubernetesVersion>().unwrap_err().to_string();
            assert!(error.contains("1.31 to 1.37"), "{error}");
        }
    }
}
