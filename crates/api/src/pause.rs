//! Pauses: for a time no pod waits for quota, in a namespace or in all (`docs/pause.md`). Annotations say so: of a Namespace
//! about that, of the `AAQ` about all namespaces that have no pause of their own.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::names::{PAUSE_RATE_ANNOTATION, PAUSED_ANNOTATION, PAUSED_SINCE_ANNOTATION};

/// A pause ends so long after its beginning at most.
pub const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(24);
/// Clocks differ by less.
const SLACK: SignedDuration = SignedDuration::from_mins(1);
/// So many waiting pods go in a second unless an annotation says otherwise.
pub const DEFAULT_PAUSE_RATE: u32 = 50;
/// The most that it may say.
pub const HIGHEST_PAUSE_RATE: u32 = 500;

/// A pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it ends.
    pub until: Timestamp,
    /// So many waiting pods go in a second at most.
    pub rate: u32,
}

/// Why annotations are no pause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PauseError {
    /// The value of this annotation is no time.
    #[error("metadata.annotations[{0}]: {1:?} is no time: write one of RFC 3339, like 2026-01-02T15:04:05Z")]
    Time(&'static str, String),
    /// There is no beginning.
    #[error(
        "metadata.annotations[{since}]: missing beside {until}: write the present time, in the form of RFC 3339",
        since = PAUSED_SINCE_ANNOTATION,
        until = PAUSED_ANNOTATION
    )]
    NoBeginning,
    /// The beginning is ahead.
    #[error(
        "metadata.annotations[{since}]: {0} was ahead when it was read: write the present time",
        since = PAUSED_SINCE_ANNOTATION
    )]
    Ahead(Timestamp),
    /// The end is too late.
    #[error(
        "metadata.annotations[{until}]: {0} is more than {hours} hours after {since}: write an earlier time, and \
         another one then",
        until = PAUSED_ANNOTATION,
        since = PAUSED_SINCE_ANNOTATION,
        hours = LONGEST_PAUSE.as_hours()
    )]
    TooLong(Timestamp),
    /// The rate is none.
    #[error(
        "metadata.annotations[{field}]: {0:?} is no number of pods per second: write one from 1 to {most}, or leave it out",
        field = PAUSE_RATE_ANNOTATION,
        most = HIGHEST_PAUSE_RATE
    )]
    Rate(String),
}

/// The pause that annotations of a Namespace or the `AAQ` say, while it lasts. How long it is they say themselves: one that
/// is too long is so whenever it is read.
///
/// # Errors
/// When the annotations cannot be read, or the pause were too long, or has not begun; then there is none.
pub fn read_pause(
    annotations: Option<&BTreeMap<String, String>>,
    now: Timestamp,
) -> Result<Option<Pause>, PauseError> {
    let value = |key: &str| annotations.and_then(|annotations| annotations.get(key));
    let Some(until) = value(PAUSED_ANNOTATION) else { return Ok(None) };
    let until = read_time(PAUSED_ANNOTATION, until)?;
    let since = value(PAUSED_SINCE_ANNOTATION).ok_or(PauseError::NoBeginning)?;
    let since = read_time(PAUSED_SINCE_ANNOTATION, since)?;
    if until.duration_since(since) > LONGEST_PAUSE {
        return Err(PauseError::TooLong(until));
    }
    if since.duration_since(now) > SLACK {
        return Err(PauseError::Ahead(since));
    }
    let rate = value(PAUSE_RATE_ANNOTATION).map_or(Ok(DEFAULT_PAUSE_RATE), |text| read_rate(text))?;
    Ok((now < until).then_some(Pause { until, rate }))
}

fn read_time(field: &'static str, text: &str) -> Result<Timestamp, PauseError> {
    text.parse().map_err(|_| PauseError::Time(field, shown(text)))
}

fn read_rate(text: &str) -> Result<u32, PauseError> {
    let rate = text.parse().ok().filter(|rate| (1..=HIGHEST_PAUSE_RATE).contains(rate));
    rate.ok_or_else(|| PauseError::Rate(shown(text)))
}

/// The start of what may be long.
fn shown(text: &str) -> String {
    text.get(..text.floor_char_boundary(40)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When pauses begin unless a test says otherwise.
    const NOON: &str = "2026-01-01T12:00:00Z";

    fn read_at(
        now: &str,
        (since, until): (Option<&str>, Option<&str>),
        rate: Option<&str>,
    ) -> Result<Option<Pause>, PauseError> {
        let pair = |key: &str, value: Option<&str>| Some((key.to_owned(), value?.to_owned()));
        let pairs = [
            pair(PAUSED_ANNOTATION, until),
            pair(PAUSED_SINCE_ANNOTATION, since),
            pair(PAUSE_RATE_ANNOTATION, rate),
        ];
        read_pause(Some(&pairs.into_iter().flatten().collect()), now.parse().unwrap())
    }

    fn read(until: Option<&str>, rate: Option<&str>) -> Result<Option<Pause>, PauseError> {
        read_at(NOON, (Some(NOON), until), rate)
    }

    fn pause(until: &str, rate: u32) -> Result<Option<Pause>, PauseError> {
        Ok(Some(Pause { until: until.parse().unwrap(), rate }))
    }

    #[test]
    fn a_pause_lasts_until_its_end_and_a_day_at_most() {
        assert_eq!(read_pause(None, Timestamp::UNIX_EPOCH), Ok(None));
        assert_eq!(read(None, Some("9")), Ok(None));
        assert_eq!(read(Some("2026-01-01T12:00:01Z"), None), pause("2026-01-01T12:00:01Z", 50));
        assert_eq!(read(Some("2026-01-01T14:00:01+02:00"), Some("500")), pause("2026-01-01T12:00:01Z", 500));
        assert_eq!(read(Some("2026-01-02T12:00:00Z"), Some("1")), pause("2026-01-02T12:00:00Z", 1));
        for over in [NOON, "2020-01-01T00:00:00Z"] {
            assert_eq!(read(Some(over), None), Ok(None), "{over}");
        }
    }

    #[test]
    fn one_that_is_too_long_is_so_whenever_it_is_read() {
        let late = "2026-01-02T12:00:01Z";
        for now in ["2026-01-01T11:00:00Z", NOON, "2026-01-01T12:00:01Z", "2026-01-02T11:00:00Z"] {
            let too_long = Err(PauseError::TooLong(late.parse().unwrap()));
            assert_eq!(read_at(now, (Some(NOON), Some(late)), None), too_long, "{now}");
        }
    }

    #[test]
    fn a_pause_has_begun_by_clocks_that_differ_a_little() {
        let end = "2026-01-01T13:00:00Z";
        let read_since = |since: Option<&str>| read_at(NOON, (since, Some(end)), None);
        assert_eq!(read_since(Some("2026-01-01T12:01:00Z")), pause(end, 50));
        let ahead = "2026-01-01T12:01:01Z";
        assert_eq!(read_since(Some(ahead)), Err(PauseError::Ahead(ahead.parse().unwrap())));
        assert_eq!(read_since(None), Err(PauseError::NoBeginning));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_field() {
        let until = Some("2026-01-01T13:00:00Z");
        let said = [
            read(Some("2h"), None),
            read(Some("2026-01-01T13:00:00"), None),
            read(Some("2026-03-01T00:00:00Z"), None),
            read_at(NOON, (Some("now"), until), None),
            read_at(NOON, (None, until), None),
            read(until, Some("0")),
            read(until, Some("501")),
            read(until, Some(&"ä".repeat(300))),
        ]
        .map(|read| read.unwrap_err().to_string());
        let [words, no_zone, long, since, missing, zero, many, strange] = &said;
        assert!(
            words.starts_with("metadata.annotations[quota.sluice.dev/paused]: \"2h\" is no time: write"),
            "{words}"
        );
        assert!(no_zone.contains("is no time"), "{no_zone}");
        assert!(long.contains("more than 24 hours after quota.sluice.dev/paused-since: write"), "{long}");
        assert!(
            since.starts_with(
                "metadata.annotations[quota.sluice.dev/paused-since]: \"now\" is no time: write"
            ),
            "{since}"
        );
        assert!(
            missing.starts_with("metadata.annotations[quota.sluice.dev/paused-since]: missing"),
            "{missing}"
        );
        for rate in [zero, many, strange] {
            assert!(
                rate.starts_with("metadata.annotations[quota.sluice.dev/pause-rate]: ") && rate.len() < 256,
                "{rate}"
            );
        }
    }
}
