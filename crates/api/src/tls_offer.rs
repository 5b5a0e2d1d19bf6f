//! What `spec.tlsSecurityProfile` of an `AAQ` makes servers accept.
//!
//! The type and its profiles are OpenShift's (`github.com/openshift/api/config/v1`, `TLSSecurityProfile`). As in
//! application-aware-quota `custom` counts where it is set, whatever `type` says, and nothing at all stands for
//! `Intermediate`. Go cannot choose among the suites of TLS 1.3; here those that are not named are not served either.

use serde_json::Value;

/// The names of a suite and what it needs.
struct Suite {
    /// Number in IANA's registry *TLS Cipher Suites*.
    code: u16,
    /// The name that OpenSSL has for it.
    openssl: &'static str,
    /// The name that IANA has for it.
    iana: &'static str,
    /// It is of TLS 1.3, otherwise of 1.2.
    is_tls13: bool,
    /// It works with certificates that have an ECDSA key, as those have that the operator issues.
    is_for_ecdsa: bool,
}

const fn suite(
    code: u16,
    openssl: &'static str,
    iana: &'static str,
    is_tls13: bool,
    is_for_ecdsa: bool,
) -> Suite {
    Suite { code, openssl, iana, is_tls13, is_for_ecdsa }
}

/// All that the TLS library has. It has none of TLS 1.1 or below, none with CBC, and no key exchange but ECDHE.
static SUITES: [Suite; 9] = [
    suite(0x1301, "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", true, true),
    suite(0x1302, "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", true, true),
    suite(0x1303, "TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256", true, true),
    suite(0xc02b, "ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", false, true),
    suite(0xc02c, "ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", false, true),
    suite(
        0xcca9,
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        false,
        true,
    ),
    suite(0xc02f, "ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", false, false),
    suite(0xc030, "ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", false, false),
    suite(0xcca8, "ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", false, false),
];

/// Longest part of what somebody wrote that is repeated, in bytes.
const MAX_SHOWN: usize = 80;

/// What servers accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOffer {
    /// Numbers of the cipher suites in IANA's registry. The versions that are served are those of these suites.
    pub suites: Vec<u16>,
    /// A version below TLS 1.2 is asked for, which is not served.
    pub lacks_old_versions: bool,
}

/// Why a profile cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsProfileError {
    /// `type` is none of OpenShift's.
    #[error("type {0:?} is no profile: set it to Old, Intermediate, Modern or Custom")]
    UnknownType(String),
    /// Nothing says what is to be served.
    #[error("type is Custom and custom is missing: set custom.ciphers and custom.minTLSVersion")]
    NoCustom,
    /// `custom.minTLSVersion` is none of OpenShift's.
    #[error("custom.minTLSVersion {0:?} is no version: set it to VersionTLS12 or VersionTLS13")]
    UnknownVersion(String),
    /// No suite of the profile is known here.
    #[error(
        "none of its ciphers is served from {version} on: add TLS_AES_128_GCM_SHA256, or \
         ECDHE-ECDSA-AES128-GCM-SHA256 and VersionTLS12"
    )]
    NoSuite {
        /// The lowest version that is asked for.
        version: String,
    },
    /// All suites need another key than the certificates have.
    #[error(
        "its ciphers need an RSA key, and the certificates have ECDSA keys: add TLS_AES_128_GCM_SHA256 or \
         ECDHE-ECDSA-AES128-GCM-SHA256"
    )]
    OnlyRsa,
}

impl Default for TlsOffer {
    /// The profile `Intermediate`.
    fn default() -> Self {
        Self { suites: SUITES.iter().map(|suite| suite.code).collect(), lacks_old_versions: false }
    }
}

impl TlsOffer {
    /// What `spec.tlsSecurityProfile` asks; null stands for `Intermediate`. Names that the TLS library does not have are
    /// skipped.
    ///
    /// # Errors
    /// When the profile cannot be read, or no suite of it works here.
    pub fn of(profile: &Value) -> Result<Self, TlsProfileError> {
        if let Some(custom) = profile.get("custom").filter(|custom| !custom.is_null()) {
            return of_custom(custom);
        }
        match profile.get("type").and_then(Value::as_str).unwrap_or_default() {
            "" | "Intermediate" => Ok(Self::default()),
            // Of its ciphers those are served that `Intermediate` has too.
            "Old" => Ok(Self { lacks_old_versions: true, ..Self::default() }),
            "Modern" => Ok(chosen(|suite| suite.is_tls13)),
            "Custom" => Err(TlsProfileError::NoCustom),
            other => Err(TlsProfileError::UnknownType(shown(other))),
        }
    }
}

fn of_custom(custom: &Value) -> Result<TlsOffer, TlsProfileError> {
    let version = custom.get("minTLSVersion").and_then(Value::as_str).unwrap_or_default();
    let lacks_old_versions = matches!(version, "VersionTLS10" | "VersionTLS11");
    let is_from_tls13 = version == "VersionTLS13";
    if !lacks_old_versions && !is_from_tls13 && version != "VersionTLS12" {
        return Err(TlsProfileError::UnknownVersion(shown(version)));
    }
    let ciphers = custom.get("ciphers").and_then(Value::as_array);
    let is_named = |suite: &Suite| {
        let mut names = ciphers.into_iter().flatten().filter_map(Value::as_str);
        names.any(|name| name == suite.openssl || name == suite.iana)
    };
    let offer = chosen(|suite| is_named(suite) && (suite.is_tls13 || !is_from_tls13));
    let is_usable = SUITES.iter().any(|suite| suite.is_for_ecdsa && offer.suites.contains(&suite.code));
    match offer {
        offer if offer.suites.is_empty() => Err(TlsProfileError::NoSuite { version: version.to_owned() }),
        _ if !is_usable => Err(TlsProfileError::OnlyRsa),
        offer => Ok(TlsOffer { lacks_old_versions, ..offer }),
    }
}

fn chosen(is_served: impl Fn(&Suite) -> bool) -> TlsOffer {
    let suites = SUITES.iter().filter(|suite| is_served(suite)).map(|suite| suite.code).collect();
    TlsOffer { suites, lacks_old_versions: false }
}

fn shown(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_SHOWN)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: &[u16] = &[0x1301, 0x1302, 0x1303, 0xc02b, 0xc02c, 0xcca9, 0xc02f, 0xc030, 0xcca8];
    const OF_TLS13: &[u16] = &[0x1301, 0x1302, 0x1303];

    fn custom(version: &str, ciphers: &[&str]) -> Value {
        json!({ "type": "Custom", "custom": { "ciphers": ciphers, "minTLSVersion": version } })
    }

    #[test]
    fn profiles_are_those_of_openshift_as_far_as_the_library_has_them() {
        for (profile, suites, lacks_old_versions) in [
            (json!(null), ALL, false),
            (json!({}), ALL, false),
            (json!({ "type": "" }), ALL, false),
            (json!({ "type": "Intermediate", "intermediate": {} }), ALL, false),
            (json!({ "type": "Old", "old": {} }), ALL, true),
            (json!({ "type": "Modern", "modern": null, "custom": null }), OF_TLS13, false),
            (custom("VersionTLS11", &["ECDHE-ECDSA-AES128-GCM-SHA256"]), &[0xc02b], true),
            (
                custom("VersionTLS13", &["ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_AES_256_GCM_SHA384"]),
                &[0x1302],
                false,
            ),
        ] {
            let offer = TlsOffer { suites: suites.to_vec(), lacks_old_versions };
            assert_eq!(TlsOffer::of(&profile), Ok(offer), "{profile}");
        }
        let mut both = custom("VersionTLS12", &["TLS_AES_128_GCM_SHA256"]);
        both["type"] = json!("Old");
        let offer = TlsOffer::of(&both).map(|offer| offer.suites);
        assert_eq!(offer, Ok(vec![0x1301]), "custom counts where it is set");
    }

    /// All names of the profile `Old`, with what they stand for.
    #[test]
    fn names_of_ciphers_stand_for_what_the_library_has() {
        for (openssl, iana, code) in [
            ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", Some(0x1301)),
            ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", Some(0x1302)),
            ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256", Some(0x1303)),
            ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Some(0xc02b)),
            ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", Some(0xc02c)),
            ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", Some(0xcca9)),
            ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Some(0xc02f)),
            ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Some(0xc030)),
            ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", Some(0xcca8)),
            ("DHE-RSA-AES128-GCM-SHA256", "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", None),
            ("DHE-RSA-AES256-GCM-SHA384", "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", None),
            ("DHE-RSA-CHACHA20-POLY1305", "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256", None),
            ("ECDHE-ECDSA-AES128-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", None),
            ("ECDHE-RSA-AES128-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", None),
            ("ECDHE-ECDSA-AES128-SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", None),
            ("ECDHE-RSA-AES256-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", None),
            ("AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256", None),
            ("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA", None),
            ("DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA", None),
            ("ecdhe-ecdsa-aes128-gcm-sha256", "", None),
        ] {
            for name in [openssl, iana] {
                // One that is served, beside which the other is looked for.
                let beside = if code == Some(0x1303) {
                    "TLS_AES_128_GCM_SHA256"
                } else {
                    "TLS_CHACHA20_POLY1305_SHA256"
                };
                let suites = TlsOffer::of(&custom("VersionTLS12", &[beside, name])).map(|offer| offer.suites);
                let found = suites.unwrap_or_default().len() == 2;
                assert_eq!(found, code.is_some(), "{name}");
                let known = SUITES.iter().find(|suite| suite.openssl == name || suite.iana == name);
                assert_eq!(known.map(|suite| suite.code), code, "{name}");
            }
        }
    }

    #[test]
    fn a_profile_that_leaves_nothing_says_so() {
        let said = |profile: &Value| TlsOffer::of(profile).map_err(|error| error.to_string());
        for (profile, expected) in [
            (
                custom("VersionTLS12", &["DHE-RSA-AES128-GCM-SHA256"]),
                "none of its ciphers is served from VersionTLS12 on: add TLS_AES_128_GCM_SHA256, or \
                 ECDHE-ECDSA-AES128-GCM-SHA256 and VersionTLS12",
            ),
            (
                custom("VersionTLS13", &["ECDHE-ECDSA-AES128-GCM-SHA256"]),
                "none of its ciphers is served from VersionTLS13 on: add TLS_AES_128_GCM_SHA256, or \
                 ECDHE-ECDSA-AES128-GCM-SHA256 and VersionTLS12",
            ),
            (
                custom("VersionTLS12", &["ECDHE-RSA-AES128-GCM-SHA256"]),
                "its ciphers need an RSA key, and the certificates have ECDSA keys: add TLS_AES_128_GCM_SHA256 or \
                 ECDHE-ECDSA-AES128-GCM-SHA256",
            ),
            (
                json!({ "type": "Custom" }),
                "type is Custom and custom is missing: set custom.ciphers and custom.minTLSVersion",
            ),
            (
                json!({ "type": "New" }),
                "type \"New\" is no profile: set it to Old, Intermediate, Modern or Custom",
            ),
            (
                custom("TLS12", &["TLS_AES_128_GCM_SHA256"]),
                "custom.minTLSVersion \"TLS12\" is no version: set it to VersionTLS12 or VersionTLS13",
            ),
        ] {
            assert_eq!(said(&profile), Err(expected.to_owned()), "{profile}");
        }
    }
}
