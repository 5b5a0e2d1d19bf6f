//! What `spec.certConfig` of an `AAQ` or `MTQ` asks of the certificates.
//!
//! Shape and meaning are those of application-aware-quota (`pkg/aaq-operator/certrotation.go`): durations in Go's notation,
//! and a certificate is renewed `renewBefore` before its end. Where one of the two durations is named, the other one is
//! upstream's default; where none is, Sluice's own lifetimes hold, which last longer without an operator.

use std::time::Duration;

use serde_json::Value;

/// The shortest life of a certificate.
const MIN_DURATION: Duration = Duration::from_secs(5 * 60);
/// The shortest time between renewal and end: what is left if the first attempt fails.
const MIN_RENEW_BEFORE: Duration = Duration::from_secs(2 * 60);
/// The lowest age at which a certificate is renewed: API servers have to learn of each one.
const MIN_AGE: Duration = Duration::from_secs(2 * 60);
/// By this the life of a certificate is divided for the lowest age too: authorities are trusted until they end, and all that
/// live are in every webhook configuration.
const MOST_AT_A_TIME: u32 = 10;
/// Longest part of a text that is repeated, in bytes.
const MAX_SHOWN: usize = 40;

/// How long a certificate lives, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// From its issue to its end.
    pub duration: Duration,
    /// The age at which it is renewed.
    pub renew_after: Duration,
}

/// What a `certConfig` asks of one certificate; `Ok(None)` if it says nothing.
pub type AskedLifetime = Result<Option<Lifetime>, LifetimeError>;

/// What a `certConfig` asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedLifetimes {
    /// Of the authority.
    pub ca: AskedLifetime,
    /// Of the serving certificate.
    pub server: AskedLifetime,
}

/// Why no certificate can have the lifetime that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LifetimeError {
    /// A text is no duration.
    #[error("{field} {text:?} is no duration: write hours, minutes and seconds, such as 48h or 20m0s")]
    NoDuration {
        /// `duration` or `renewBefore`.
        field: &'static str,
        /// The beginning of what is written there.
        text: String,
    },
    /// The certificate would end too soon.
    #[error("duration {} is too short: at least {} are needed", shown(.0), shown(&MIN_DURATION))]
    ShortDuration(Duration),
    /// There would be no time for a second attempt.
    #[error("renewBefore {} is too short: at least {} are needed", shown(.0), shown(&MIN_RENEW_BEFORE))]
    ShortRenewBefore(Duration),
    /// It would be renewed all the time.
    #[error(
        "renewBefore {} is too long for a duration of {}: the certificate has to live for {} before it is renewed",
        shown(.renew_before), shown(.duration), shown(&least_age(.duration))
    )]
    LongRenewBefore {
        /// How long before its end the certificate would be renewed.
        renew_before: Duration,
        /// How long it would live.
        duration: Duration,
    },
}

impl AskedLifetimes {
    /// Reads `spec.certConfig`; null says nothing.
    #[must_use]
    pub fn of(cert_config: &Value) -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let part = |name: &str| cert_config.get(name).unwrap_or(&Value::Null);
        Self {
            ca: asked(part("ca"), hours(48), hours(24)),
            server: asked(part("server"), hours(24), hours(12)),
        }
    }
}

fn asked(config: &Value, default_duration: Duration, default_renew_before: Duration) -> AskedLifetime {
    let (duration, renew_before) = (read(config, "duration")?, read(config, "renewBefore")?);
    let (duration, renew_before) = match (duration, renew_before) {
        (None, None) => return Ok(None),
        (None, Some(renew_before)) => (default_duration, renew_before),
        (Some(duration), Some(renew_before)) => (duration, renew_before),
        // Upstream's defaults are half of the life. As they are they do not fit a short one.
        (Some(duration), None) => (duration, default_renew_before.min(duration / 2)),
    };
    let (duration, renew_before) = (whole(duration), whole(renew_before));
    if duration < MIN_DURATION {
        return Err(LifetimeError::ShortDuration(duration));
    }
    if renew_before < MIN_RENEW_BEFORE {
        return Err(LifetimeError::ShortRenewBefore(renew_before));
    }
    let lifetime = Lifetime { duration, renew_after: duration.saturating_sub(renew_before) };
    if lifetime.renew_after < least_age(&duration) {
        return Err(LifetimeError::LongRenewBefore { renew_before, duration });
    }
    Ok(Some(lifetime))
}

impl Lifetime {
    /// Whether a `certConfig` may ask for it.
    #[must_use]
    pub fn is_allowed(self) -> bool {
        let renew_before = self.duration.saturating_sub(self.renew_after);
        self.duration >= MIN_DURATION
            && renew_before >= MIN_RENEW_BEFORE
            && self.renew_after >= least_age(&self.duration)
    }
}

/// The lowest age at which a certificate of this life is renewed.
fn least_age(duration: &Duration) -> Duration {
    MIN_AGE.max(*duration / MOST_AT_A_TIME)
}

fn shown(duration: &Duration) -> String {
    go_duration(*duration)
}

/// Dates in certificates are whole seconds.
const fn whole(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

fn read(config: &Value, field: &'static str) -> Result<Option<Duration>, LifetimeError> {
    let text = match config.get(field).unwrap_or(&Value::Null) {
        Value::Null => return Ok(None),
        Value::String(text) if text.is_empty() => return Ok(None),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let beginning = || text.get(..text.floor_char_boundary(MAX_SHOWN)).unwrap_or_default().to_owned();
    parse(&text).map(Some).ok_or_else(|| LifetimeError::NoDuration { field, text: beginning() })
}

/// Longest duration in Go, in nanoseconds.
const LONGEST: f64 = 9.2e18;

/// A duration in the notation of Go's `time.ParseDuration`; none that is negative.
fn parse(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut nanoseconds) = (text, 0.0);
    while !rest.is_empty() {
        let (number, tail) = rest.split_at_checked(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?)?;
        let (unit, tail) =
            tail.split_at_checked(tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len()))?;
        let size = match unit {
            "h" => 3600e9,
            "m" => 60e9,
            "s" => 1e9,
            "ms" => 1e6,
            "us" | "µs" | "μs" => 1e3,
            "ns" => 1.0,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        nanoseconds += number * size;
        rest = tail;
    }
    (!text.is_empty() && nanoseconds <= LONGEST).then(|| Duration::from_secs_f64(nanoseconds / 1e9))
}

/// Whole seconds as Go writes them: `48h0m0s`, `20m0s`, `5s`.
#[must_use]
pub fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// What [`go_duration`] has written; `None` if it is none or longer than Go's.
#[must_use]
pub fn parse_go_duration(text: &str) -> Option<Duration> {
    parse(text).map(whole)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use serde_json::json;

    use super::*;

    fn of_server(config: &Value) -> String {
        match AskedLifetimes::of(&json!({ "server": config })).server {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(asked)) => format!("{} {}", go_duration(asked.duration), go_duration(asked.renew_after)),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_asked_is_read_as_upstream_reads_it() {
        for (config, expected) in [
            (json!(null), "nothing"),
            (json!({}), "nothing"),
            (json!({ "duration": null, "renewBefore": "" }), "nothing"),
            (json!({ "duration": "48h0m0s", "renewBefore": "24h0m0s" }), "48h0m0s 24h0m0s"),
            (json!({ "duration": "5m", "renewBefore": "2m" }), "5m0s 3m0s"),
            (json!({ "duration": "1.5h", "renewBefore": "90000ms2m" }), "1h30m0s 1h26m30s"),
            (json!({ "duration": "30m", "renewBefore": "27m" }), "30m0s 3m0s"),
            (json!({ "duration": "24h" }), "24h0m0s 12h0m0s"),
            (json!({ "duration": "72h" }), "72h0m0s 60h0m0s"),
            (json!({ "duration": "10m" }), "10m0s 5m0s"),
            (json!({ "renewBefore": "1h" }), "24h0m0s 23h0m0s"),
            (json!({ "duration": "300.9s", "renewBefore": "2m" }), "5m0s 3m0s"),
        ] {
            assert_eq!(of_server(&config), expected, "{config}");
        }
        let both =
            AskedLifetimes::of(&json!({ "ca": { "renewBefore": "8h" }, "server": { "duration": "x" } }));
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(both.ca.unwrap().unwrap(), Lifetime { duration: hours(48), renew_after: hours(40) });
        assert!(both.server.is_err(), "one does not depend on the other");
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (config, expected) in [
            (
                json!({ "duration": "2 days" }),
                "duration \"2 days\" is no duration: write hours, minutes and seconds, such as 48h or 20m0s",
            ),
            (
                json!({ "renewBefore": -5 }),
                "renewBefore \"-5\" is no duration: write hours, minutes and seconds, such as 48h or 20m0s",
            ),
            (json!({ "duration": "4m59s" }), "duration 4m59s is too short: at least 5m0s are needed"),
            (json!({ "duration": "0" }), "duration 0s is too short: at least 5m0s are needed"),
            (
                json!({ "duration": "5m", "renewBefore": "1m" }),
                "renewBefore 1m0s is too short: at least 2m0s are needed",
            ),
            (
                json!({ "duration": "5m", "renewBefore": "5m" }),
                "renewBefore 5m0s is too long for a duration of 5m0s: the certificate has to live \
                 for 2m0s before it is renewed",
            ),
            (
                json!({ "duration": "24h", "renewBefore": "23h" }),
                "renewBefore 23h0m0s is too long for a duration of 24h0m0s: the certificate has to live \
                 for 2h24m0s before it is renewed",
            ),
            (
                json!({ "duration": "1h", "renewBefore": "2h" }),
                "renewBefore 2h0m0s is too long for a duration of 1h0m0s: the certificate has to live \
                 for 6m0s before it is renewed",
            ),
        ] {
            assert_eq!(of_server(&config), expected, "{config}");
        }
    }

    #[test]
    fn what_is_no_duration_in_go_is_none_here() {
        for text in
            ["", "h", "5", "5m3", "1..5h", "PT5M", "5 m", "-5m", "5M", "1d", "9999999h", "５m", ".s", "NaNs"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
        for (text, milliseconds) in
            [("+1h", 3_600_000), ("1h2m3.5s", 3_723_500), (".5s", 500), ("1.s", 1_000), ("7us", 0)]
        {
            assert_eq!(parse(text).unwrap().as_millis(), milliseconds, "{text:?}");
        }
    }
}
