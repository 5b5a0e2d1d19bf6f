//! A segment in front of every path that only the webhook configurations know.
//!
//! A client that reaches the port cannot present a client certificate that an API server has, and neither does an API
//! server without further configuration; but only the API servers and administrators read the webhook configurations.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::uri::{PathAndQuery, Uri};
use subtle::{Choice, ConstantTimeEq as _};
use tower::ServiceExt as _;

/// The segments that lead on; none is asked for as long as there are none.
#[derive(Default)]
pub struct SecretPath(ArcSwap<Vec<Box<str>>>);

// Secrets must not reach a log by way of `{:?}`.
impl std::fmt::Debug for SecretPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretPath").finish_non_exhaustive()
    }
}

impl SecretPath {
    /// Asks for one of `segments` from now on; without any, paths are as they are.
    pub fn set<'a>(&self, segments: impl IntoIterator<Item = &'a str>) {
        self.0.store(Arc::new(segments.into_iter().map(Into::into).collect()));
    }

    /// The path behind the segment, if that is right.
    fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        let segments = self.0.load();
        if segments.is_empty() {
            return Some(path);
        }
        let (first, _) = path.strip_prefix('/')?.split_once('/')?;
        // All are compared: the time that it takes tells nothing of them.
        let equal = segments.iter().map(|segment| first.as_bytes().ct_eq(segment.as_bytes()));
        let right = equal.fold(Choice::from(0), |one, other| one | other);
        bool::from(right).then(|| path.get(first.len() + 1..)).flatten()
    }
}

/// `inner` behind the segment. Without the segment there is nothing, upstream's `/healthz` included: a successful answer
/// makes a client's connections worth more than others, so that only those who know the segment may have one.
pub fn behind(secret: Arc<SecretPath>, inner: Router) -> Router {
    let pass = move |request: Request| {
        let (secret, inner) = (Arc::clone(&secret), inner.clone());
        async move { pass(&secret, inner, request).await }
    };
    Router::new().fallback(pass)
}

async fn pass(secret: &SecretPath, inner: Router, mut request: Request) -> Response {
    let Some(path) = secret.strip(request.uri().path()).and_then(|path| PathAndQuery::try_from(path).ok())
    else {
        return StatusCode::NOT_FOUND.into_response();
    };
    *request.uri_mut() = Uri::from(path);
    match inner.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_segment_leads_on() {
        let secret = SecretPath::default();
        assert_eq!(secret.strip("/serve-path"), Some("/serve-path"), "none is asked for yet");
        secret.set(Some("abc"));
        assert_eq!(secret.strip("/abc/serve-path"), Some("/serve-path"));
        for wrong in
            ["/serve-path", "/abd/serve-path", "/ab/serve-path", "/abcd/serve-path", "/abc", "abc/x", ""]
        {
            assert_eq!(secret.strip(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_of_the_segments_leads_on() {
        let secret = SecretPath::default();
        let asked = |path: &str| secret.strip(path).map(str::to_owned);
        let on = Some("/serve-path".to_owned());
        secret.set(["abc", "def"]);
        assert_eq!((asked("/abc/serve-path"), asked("/def/serve-path")), (on.clone(), on.clone()));
        assert_eq!((asked("/serve-path"), asked("/abd/serve-path")), (None, None));
        secret.set(["def"]);
        assert_eq!((asked("/abc/serve-path"), asked("/def/serve-path")), (None, on));
    }
}
