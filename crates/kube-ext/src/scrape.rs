//! `/metrics`: a snapshot that many scrapes share.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http::{StatusCode, header};
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::access::Access;
use crate::panics::isolated_blocking;

/// How long a scrape gets what an earlier one got.
pub const FRESH: Duration = Duration::from_secs(1);
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text of a registry. Made at most once at a time and kept for a while: what it costs does not depend on how many
/// ask.
#[derive(Debug)]
pub struct Snapshot {
    registry: Arc<Registry>,
    fresh: Duration,
    latest: Mutex<Option<(Instant, Bytes)>>,
}

impl Snapshot {
    /// Of `registry`, which is complete; each text is good for `fresh`.
    pub fn new(registry: Registry, fresh: Duration) -> Arc<Self> {
        Arc::new(Self { registry: Arc::new(registry), fresh, latest: Mutex::new(None) })
    }

    /// The text; `None` if it could not be made. Who comes while it is made waits for it.
    pub async fn text(&self) -> Option<Bytes> {
        let mut latest = self.latest.lock().await;
        if let Some((made, text)) = &*latest
            && made.elapsed() < self.fresh
        {
            return Some(text.clone());
        }
        // Given back before the next is made: there are never two. That one is about as long, and a text that grows by
        // doubling takes three times as much.
        let length = latest.take().map_or(0, |(_, text)| text.len());
        let registry = Arc::clone(&self.registry);
        let made = tokio::task::spawn_blocking(move || {
            isolated_blocking(|| encode(&registry, length + length / 16))
        });
        let text = made.await.ok().flatten()?;
        *latest = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

fn encode(registry: &Registry, length: usize) -> Option<Bytes> {
    let mut text = String::with_capacity(length);
    prometheus_client::encoding::text::encode(&mut text, registry).ok()?;
    Some(text.into())
}

/// Routes `/metrics`; with `access` only for those whom the API server allows to `get` it.
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
