//! The date of an answer: the clock of the API server.

use http::Response;
use http::header::DATE;
use jiff::Timestamp;

/// The API server's clock when it answered.
pub(crate) fn date_of<B>(response: &Response<B>) -> Option<Timestamp> {
    http_date(response.headers().get(DATE)?.to_str().ok()?)
}

/// Reads the date of an HTTP header, such as `Sat, 21 Nov 2026 11:18:09 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_are_read() {
        let date = http_date("Sat, 21 Nov 2026 11:18:09 GMT").unwrap();
        assert_eq!(date.to_string(), "2026-11-21T11:18:09Z");
        assert_eq!(http_date("yesterday"), None);
    }
}
