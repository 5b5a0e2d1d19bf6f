//! A segment in front of every path that only the webhook configurations know.
//!
//! A client that reaches the port cannot present a client certificate that an API server has, and neither does an API
//! server without further configuration; but only the API servers and administrators read the webhook configurations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::uri::{PathAndQuery, Uri};
use subtle::ConstantTimeEq as _;
use tower::ServiceExt as _;

/// How long what held before a change is good after it: API servers learn of a new path from a watch.
const SETTLE: Duration = Duration::from_secs(60);

/// The segment; none as long as none is set.
#[derive(Debug, Default)]
pub struct SecretPath(ArcSwap<Segments>);

#[derive(Clone, Default)]
struct Segments {
    /// `None` inside: paths are as they are.
    current: Option<Box<str>>,
    before: Option<(Option<Box<str>>, Instant)>,
    set: bool,
}

// Secrets must not reach a log by way of `{:?}`.
impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segments").finish_non_exhaustive()
    }
}

impl SecretPath {
    /// Asks for `segment` from now on; `None` asks for nothing. What was set before holds for one more minute.
    pub fn set(&self, segment: Option<&str>) {
        let old = self.0.load();
        if old.set && old.current.as_deref() == segment {
            return;
        }
        let before = old.set.then(|| (old.current.clone(), Instant::now() + SETTLE));
        self.0.store(Arc::new(Segments { current: segment.map(Into::into), before, set: true }));
    }

    /// The path behind the segment, if that is right.
    fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        let segments = self.0.load();
        let before = segments.before.as_ref().filter(|(_, end)| Instant::now() < *end);
        after(segments.current.as_deref(), path)
            .or_else(|| before.and_then(|(segment, _)| after(segment.as_deref(), path)))
    }
}

fn after<'a>(segment: Option<&str>, path: &'a str) -> Option<&'a str> {
    let Some(segment) = segment else { return Some(path) };
    let (first, _) = path.strip_prefix('/')?.split_once('/')?;
    let right = bool::from(first.as_bytes().ct_eq(segment.as_bytes()));
    right.then(|| path.get(first.len() + 1..)).flatten()
}

/// `inner` behind the segment. Without the segment there is nothing, upstream's `/healthz` included: a successful answer makes a
/// client's connections worth more than others, so that only those who know the segment may have one.
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
    fn what_held_before_a_change_holds_on_for_a_while() {
        let secret = SecretPath::default();
        secret.set(None);
        secret.set(Some("abc"));
        assert_eq!(
            secret.strip("/serve-path"),
            Some("/serve-path"),
            "an API server that does not know it yet"
        );
        secret.set(Some("def"));
        secret.set(Some("def"));
        let (old, new) = ("/abc/serve-path", "/def/serve-path");
        assert_eq!((secret.strip(old), secret.strip(new)), (Some("/serve-path"), Some("/serve-path")));
        assert_eq!(secret.strip("/serve-path"), None);
        let mut segments = Segments::clone(&secret.0.load());
        segments.before = segments.before.map(|(segment, _)| (segment, Instant::now()));
        secret.0.store(Arc::new(segments));
        assert_eq!((secret.strip(old), secret.strip(new)), (None, Some("/serve-path")));
    }
}
