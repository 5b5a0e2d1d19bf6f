//! What became of a request, by what its sender has to do about it.

use std::time::Duration;

use crate::retry::{Failure, classify, words};

/// How a request went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// The request was done; this is the object now.
    Done(T),
    /// The request was refused because the object has changed. With the object as it is now, if that exists and was read.
    Stale(Option<T>),
    /// The request was refused for good, for this reason.
    Refused(String),
    /// The request was refused because the server has too much to do. With the time that the server asks to wait, if any.
    Busy(Option<Duration>),
    /// The outcome is not known: it may have been done.
    Unknown(String),
}

impl<T> Answer<T> {
    /// The same answer about another form of the object.
    pub fn map<U>(self, form: impl Fn(T) -> U) -> Answer<U> {
        match self {
            Self::Done(object) => Answer::Done(form(object)),
            Self::Stale(object) => Answer::Stale(object.map(form)),
            Self::Refused(why) => Answer::Refused(why),
            Self::Busy(after) => Answer::Busy(after),
            Self::Unknown(why) => Answer::Unknown(why),
        }
    }
}

impl<T> From<kube::Result<T>> for Answer<T> {
    fn from(result: kube::Result<T>) -> Self {
        let error = match result {
            Ok(object) => return Self::Done(object),
            Err(error) => error,
        };
        match classify(&error) {
            Failure::Conflict | Failure::AlreadyExists | Failure::NotFound => Self::Stale(None),
            Failure::Invalid | Failure::Forbidden | Failure::Other(_) => Self::Refused(words(&error)),
            Failure::Throttled { retry_after } => Self::Busy(retry_after),
            Failure::Server(_) | Failure::Unknown => Self::Unknown(words(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_code_says_what_became_of_a_request() {
        let cases = [
            ("stale", "404 409"),
            ("refused", "400 401 403 405 422"),
            ("busy", "429"),
            ("unknown", "500 503 504 0"),
        ];
        for (expected, codes) in cases {
            for code in codes.split(' ') {
                let status = Status::failure("why", "").with_code(code.parse().unwrap());
                let found = match Answer::from(Err::<(), _>(kube::Error::Api(status.boxed()))) {
                    Answer::Stale(None) => "stale",
                    Answer::Refused(why) if why == "why" => "refused",
                    Answer::Busy(None) => "busy",
                    Answer::Unknown(why) if why == "why" => "unknown",
                    other => panic!("{code}: {other:?}"),
                };
                assert_eq!(found, expected, "{code}");
            }
        }
        assert_eq!(Answer::from(Ok(1)), Answer::Done(1));
        let cut_off = serde_json::from_str::<u8>("x").map_err(kube::Error::SerdeError);
        assert!(matches!(Answer::from(cut_off), Answer::Unknown(_)), "done, but not readable");
    }
}
