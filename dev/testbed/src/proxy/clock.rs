//! A clock that goes ahead of another: what passes the proxy is translated, so that to its client the API server lives in
//! another time.

use std::sync::LazyLock;

use bytes::Bytes;
use http::header::DATE;
use http::{HeaderMap, HeaderValue};
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use regex::bytes::{Captures, Regex};

/// A time as Kubernetes writes it into JSON; fractions of a second stay as they are.
static TIME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#""(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)((?:\.\d+)?Z)""#).ok());

/// Moves every time in a JSON text. Its length stays the same.
pub(super) fn shift(body: Bytes, seconds: i64) -> Bytes {
    let Some(times) = TIME.as_ref().filter(|_| seconds != 0) else { return body };
    let moved = times.replace_all(&body, |found: &Captures<'_>| {
        let part =
            |n| found.get(n).map_or_else(|| "".into(), |part| String::from_utf8_lossy(part.as_bytes()));
        let whole = format!("\"{}{}\"", part(1), part(2));
        let moved = moved(format!("{}Z", part(1)).parse(), seconds);
        moved.map_or(whole, |moved| format!("\"{}{}\"", moved.strftime("%Y-%m-%dT%H:%M:%S"), part(2)))
    });
    Bytes::from(moved.into_owned())
}

/// Moves the date of an answer.
pub(super) fn shift_date(headers: &mut HeaderMap, seconds: i64) {
    let Some(date) = headers.get(DATE).and_then(|date| date.to_str().ok()).filter(|_| seconds != 0) else {
        return;
    };
    let date = jiff::fmt::rfc2822::parse(date).map(|date| date.timestamp());
    let text =
        moved(date, seconds).and_then(|date| DateTimePrinter::new().timestamp_to_rfc9110_string(&date).ok());
    if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
        headers.insert(DATE, value);
    }
}

fn moved(time: Result<Timestamp, jiff::Error>, seconds: i64) -> Option<Timestamp> {
    time.ok()?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_json_are_moved_and_nothing_else() {
        let text =
            r#"{"until":"2026-01-31T23:59:58Z","micro":"2026-01-31T23:59:58.123456Z","name":"2026-01-31"}"#;
        let ahead = shift(Bytes::from_static(text.as_bytes()), 3);
        let expected =
            r#"{"until":"2026-02-01T00:00:01Z","micro":"2026-02-01T00:00:01.123456Z","name":"2026-01-31"}"#;
        assert_eq!(ahead, expected);
        assert_eq!(shift(ahead, -3), text);
    }

    #[test]
    fn the_date_of_an_answer_is_moved() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static("Sat, 31 Jan 2026 23:59:58 GMT"));
        shift_date(&mut headers, 3);
        assert_eq!(headers[DATE], "Sun, 01 Feb 2026 00:00:01 GMT");
    }
}
