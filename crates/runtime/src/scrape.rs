//! `/metrics`: a snapshot that many scrapes share.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures::stream;
use http::{StatusCode, header};
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::access::Access;
use crate::panics::isolated_blocking;

/// How long a scrape gets what an earlier one got.
pub const FRESH: Duration = Duration::from_secs(1);
/// Bytes of a piece of text.
const PIECE: usize = 64 * 1024;
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text of a registry. Made at most once at a time and kept for a while: what it costs does not depend on how many
/// ask.
#[derive(Debug)]
pub struct Snapshot {
    registry: Arc<Registry>,
    fresh: Duration,
    latest: Mutex<Option<(Instant, Text)>>,
}

impl Snapshot {
    /// Of `registry`, which is complete; each text is good for `fresh`.
    pub fn new(registry: Registry, fresh: Duration) -> Arc<Self> {
        Arc::new(Self { registry: Arc::new(registry), fresh, latest: Mutex::new(None) })
    }

    /// The text; `None` if it could not be made. A request that comes while it is made waits for it.
    pub async fn text(&self) -> Option<Text> {
        let mut latest = self.latest.lock().await;
        if let Some((made, text)) = &*latest
            && made.elapsed() < self.fresh
        {
            return Some(text.clone());
        }
        // Given back before the next is made: there are never two.
        *latest = None;
        let registry = Arc::clone(&self.registry);
        let made = tokio::task::spawn_blocking(move || isolated_blocking(|| encode(&registry)));
        let text = made.await.ok().flatten()?;
        *latest = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

/// A text in pieces. At 10,000 quotas it has 13 MiB, of which a text in one piece needs three times as much while it grows.
#[derive(Clone, Debug)]
pub struct Text(Arc<[Bytes]>);

impl IntoResponse for Text {
    fn into_response(self) -> Response {
        let pieces = (0..self.0.len()).filter_map(move |at| self.0.get(at).cloned().map(Ok::<_, Infallible>));
        Body::from_stream(stream::iter(pieces)).into_response()
    }
}

#[derive(Default)]
struct Pieces {
    full: Vec<Bytes>,
    last: String,
}

impl std::fmt::Write for Pieces {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.last.len() + text.len() > PIECE {
            self.full.push(std::mem::replace(&mut self.last, String::with_capacity(PIECE)).into());
        }
        self.last.push_str(text);
        Ok(())
    }
}

fn encode(registry: &Registry) -> Option<Text> {
    let mut text = Pieces::default();
    prometheus_client::encoding::text::encode(&mut text, registry).ok()?;
    text.full.push(text.last.into());
    Some(Text(text.full.into()))
}

/// Routes `/metrics`; with `access` only for accounts that the API server allows to `get` it.
pub fn router(snapshot: Arc<Snapshot>, access: Option<Arc<Access>>) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state((snapshot, access))
}

type Shared = (Arc<Snapshot>, Option<Arc<Access>>);

async fn metrics(State((snapshot, access)): State<Shared>, request: Request) -> Response {
    if let Some(access) = access
        && let Err(refusal) = access.check(request.headers(), request.uri().path()).await
    {
        return refusal.into_response();
    }
    match snapshot.text().await {
        Some(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
    use prometheus_client::metrics::MetricType;
    use prometheus_client::metrics::gauge::ConstGauge;
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
    use tower::ServiceExt as _;

    /// Counts how often it is asked, and notices when it is asked twice at a time.
    #[derive(Debug, Default)]
    struct Asked(Arc<AtomicI64>, std::sync::Mutex<()>);

    impl Collector for Asked {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
            let _alone = self.1.try_lock().map_err(|_| std::fmt::Error)?;
            let gauge = ConstGauge::new(self.0.fetch_add(1, SeqCst));
            gauge.encode(encoder.encode_descriptor("asked", "times", None, MetricType::Gauge)?)
        }
    }

    async fn scrape(snapshot: &Arc<Snapshot>) -> (StatusCode, String) {
        let request = http::Request::get("/metrics").body(axum::body::Body::empty()).unwrap();
        let response = router(Arc::clone(snapshot), None).oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn scrapes_share_a_snapshot_that_is_made_once_at_a_time() {
        let mut registry = Registry::default();
        let asked = Arc::new(AtomicI64::new(0));
        registry.register_collector(Box::new(Asked(Arc::clone(&asked), std::sync::Mutex::new(()))));
        let snapshot = Snapshot::new(registry, FRESH);
        let many = futures::future::join_all((0..50).map(|_| scrape(&snapshot))).await;
        for (status, text) in many {
            assert_eq!(status, StatusCode::OK);
            assert!(text.contains("asked 0\n") && text.ends_with("# EOF\n"), "{text}");
        }
        assert_eq!(asked.load(SeqCst), 1);
        tokio::time::advance(FRESH).await;
        assert!(scrape(&snapshot).await.1.contains("asked 1\n"));
    }
}
