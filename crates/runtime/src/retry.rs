//! What a failed API call means for the caller. How long to wait is in [`crate::backoff`].

use std::time::Duration;

use kube::client::AuthError;

/// Outcome of a failed API call, by what the caller must do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// 409: the object changed. Read again and decide again; never send the same write again.
    Conflict,
    /// 404: the object (or its kind) does not exist.
    NotFound,
    /// 422: the server refuses the content; the same request will never succeed.
    Invalid,
    /// 403: not allowed (RBAC, admission, a terminating namespace).
    Forbidden,
    /// 409 with reason `AlreadyExists`: another client created it first.
    AlreadyExists,
    /// 429: not applied; wait at least `retry_after`.
    Throttled {
        /// Wait that the server asked for.
        retry_after: Option<Duration>,
    },
    /// 5xx with this code; the write may have been applied.
    Server(u16),
    /// Connection lost, deadline passed or the answer was unreadable: the write may have been applied.
    Unknown,
    /// Any other refusal, by its code; 0 if the request was never sent.
    Other(u16),
}

impl Failure {
    /// The write may have taken effect although the call failed: read again before repeating it.
    pub fn may_have_applied(self) -> bool {
        matches!(self, Self::Server(_) | Self::Unknown)
    }

    /// Time alone may cure it: the same request can be sent again after a backoff.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Throttled { .. }) || self.may_have_applied()
    }

    /// Label for metrics: the HTTP code, or `unknown`.
    pub fn code(self) -> String {
        match self {
            Self::Conflict | Self::AlreadyExists => "409".to_owned(),
            Self::NotFound => "404".to_owned(),
            Self::Invalid => "422".to_owned(),
            Self::Forbidden => "403".to_owned(),
            Self::Throttled { .. } => "429".to_owned(),
            Self::Unknown | Self::Other(0) => "unknown".to_owned(),
            Self::Server(code) | Self::Other(code) => code.to_string(),
        }
    }
}

/// Sorts an error of a call into a [`Failure`].
pub fn classify(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => classify_status(status),
        // The request was never sent: wrong content, or no credentials to send it with.
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) | kube::Error::Auth(_) => Failure::Other(0),
        _ => Failure::Unknown,
    }
}

fn classify_status(status: &kube::core::Status) -> Failure {
    let retry_after = status
        .details
        .as_ref()
        .map(|details| details.retry_after_seconds)
        .filter(|seconds| *seconds > 0)
        .map(|seconds| Duration::from_secs(u64::from(seconds)));
    match status.code {
        409 if status.reason == "AlreadyExists" => Failure::AlreadyExists,
        409 => Failure::Conflict,
        404 => Failure::NotFound,
        422 => Failure::Invalid,
        403 => Failure::Forbidden,
        429 => Failure::Throttled { retry_after },
        code if code >= 500 => Failure::Server(code),
        // A status without a code, cut off on its way, proves nothing about the write.
        0 => Failure::Unknown,
        code => Failure::Other(code),
    }
}

/// What is said in place of an error about credentials, whose own words have the arguments, the variables and the output of
/// a plug-in that gets them.
pub const NO_CREDENTIALS: &str = "the credentials of the kubeconfig could not be renewed: log in again";

/// The words of an error for people, which may be passed on.
#[must_use]
pub fn words(error: &kube::Error) -> String {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.is::<AuthError>() {
            return NO_CREDENTIALS.to_owned();
        }
        source = error.source();
    }
    match error {
        // Its own form has the message three times, and all fields of the answer.
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Service(source) => source.to_string(),
        other => other.to_string(),
    }
}

/// As [`words`], with what lies behind: of a connection that fails that it is the certificate.
#[must_use]
pub fn words_and_causes(error: &kube::Error) -> String {
    let mut text = words(error);
    let is_whole = text == NO_CREDENTIALS || matches!(error, kube::Error::Api(_));
    let mut next = std::error::Error::source(error).filter(|_| !is_whole);
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[derive(Debug, thiserror::Error)]
    #[error("certificate expired")]
    struct Expired;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Connect(#[source] Expired);

    fn api(code: u16, reason: &str) -> Failure {
        classify(&kube::Error::Api(Status::failure("x", reason).with_code(code).boxed()))
    }

    #[test]
    fn an_error_of_credentials_tells_nothing_of_the_plug_in_that_gets_them() {
        let failed = || AuthError::AuthExec("TOKEN=secret plug-in".to_owned());
        for error in [kube::Error::Auth(failed()), kube::Error::Service(Box::new(failed()))] {
            assert_eq!(words(&error), NO_CREDENTIALS);
            assert_eq!(words_and_causes(&error), NO_CREDENTIALS);
        }
        let other = kube::Error::Service("connection refused".into());
        assert_eq!(words(&other), "connection refused");
        assert_eq!(words_and_causes(&other), "connection refused");
        let refused =
            kube::Error::Api(Status::failure("pods \"a\" is forbidden", "Forbidden").with_code(403).boxed());
        assert_eq!(words(&refused), "pods \"a\" is forbidden");
        assert_eq!(words_and_causes(&refused), "pods \"a\" is forbidden");
        let deep = kube::Error::Service(Box::new(Connect(Expired)));
        assert_eq!(words_and_causes(&deep), "client error (Connect): certificate expired");
    }

    #[test]
    fn codes_and_reasons_are_told_apart() {
        assert_eq!(api(409, "Conflict"), Failure::Conflict);
        assert_eq!(api(409, "AlreadyExists"), Failure::AlreadyExists);
        assert_eq!(api(404, "NotFound"), Failure::NotFound);
        assert_eq!(api(422, "Invalid"), Failure::Invalid);
        assert_eq!(api(403, "Forbidden"), Failure::Forbidden);
        assert_eq!(api(429, "TooManyRequests"), Failure::Throttled { retry_after: None });
        assert_eq!(api(500, "InternalError"), Failure::Server(500));
        assert_eq!(api(504, "Timeout"), Failure::Server(504));
        assert_eq!(api(410, "Expired"), Failure::Other(410));
        assert_eq!(api(0, ""), Failure::Unknown);
    }

    #[test]
    fn only_unsure_outcomes_may_have_applied() {
        assert!(api(503, "").may_have_applied());
        assert!(Failure::Unknown.may_have_applied());
        assert!(!api(429, "").may_have_applied());
        assert!(!api(409, "Conflict").may_have_applied());
        let unreadable = serde_json::from_str::<u8>("x").unwrap_err();
        assert!(classify(&kube::Error::SerdeError(unreadable)).may_have_applied());
    }
}
