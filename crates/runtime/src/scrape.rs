//! `/metrics`: a snapshot that many scrapes share.

use std::io::{BufWriter, Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures::stream;
use http::{HeaderMap, StatusCode, header};
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::access::Access;
use crate::panics::isolated_blocking;

/// How long a scrape gets what an earlier one got.
pub const FRESH: Duration = Duration::from_secs(1);
/// Bytes of a piece of text, before it is compressed.
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

/// A text, compressed: at 10,000 quotas it has 13 MiB, and the compressed one less than one.
#[derive(Clone, Debug)]
pub struct Text(Bytes);

impl Text {
    /// The text for a client with these `headers`: as it is kept, where `Accept-Encoding` names gzip as Prometheus does.
    fn respond(self, headers: &HeaderMap) -> Response {
        let takes_gzip = headers.get_all(header::ACCEPT_ENCODING).iter().any(|value| {
            let mut codings = value.as_bytes().split(|byte| *byte == b',');
            codings.any(|coding| coding.trim_ascii() == b"gzip")
        });
        let varies = (header::VARY, "accept-encoding");
        if takes_gzip {
            return ([varies, (header::CONTENT_ENCODING, "gzip")], self.0).into_response();
        }
        let mut plain = GzDecoder::new(self.0.reader());
        let piece = move || {
            let mut piece = Vec::with_capacity(PIECE);
            match plain.by_ref().take(PIECE as u64).read_to_end(&mut piece) {
                Ok(0) => None,
                Ok(_) => Some(Ok(Bytes::from(piece))),
                Err(error) => Some(Err(error)),
            }
        };
        ([varies], Body::from_stream(stream::iter(std::iter::from_fn(piece)))).into_response()
    }
}

/// Compresses what is written.
struct Packed(BufWriter<GzEncoder<Vec<u8>>>);

impl std::fmt::Write for Packed {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write_all(text.as_bytes()).map_err(|_| std::fmt::Error)
    }
}

fn encode(registry: &Registry) -> Option<Text> {
    let packed = GzEncoder::new(Vec::new(), Compression::fast());
    let mut text = Packed(BufWriter::with_capacity(PIECE, packed));
    prometheus_client::encoding::text::encode(&mut text, registry).ok()?;
    let packed = text.0.into_inner().ok()?.finish().ok()?;
    Some(Text(packed.into()))
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
        Some(text) => {
            ([(header::CONTENT_TYPE, CONTENT_TYPE)], text.respond(request.headers())).into_response()
        }
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

    /// What is kept is compressed; a client that does not take it so gets the plain text.
    #[tokio::test]
    async fn a_client_that_takes_gzip_gets_the_same_text_compressed() {
        let mut registry = Registry::default();
        let families: Vec<_> = (0..5_000).map(|number| format!("family_{number}")).collect();
        for name in &families {
            registry.register(name, "help", prometheus_client::metrics::counter::Counter::<u64>::default());
        }
        let snapshot = Snapshot::new(registry, FRESH);
        let (_, plain) = scrape(&snapshot).await;
        assert!(plain.len() > 2 * PIECE && plain.ends_with("# EOF\n"));
        let request = http::Request::get("/metrics").header(header::ACCEPT_ENCODING, "br, gzip");
        let request = request.body(axum::body::Body::empty()).unwrap();
        let response = router(Arc::clone(&snapshot), None).oneshot(request).await.unwrap();
        assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
        let packed = response.into_body().collect().await.unwrap().to_bytes();
        assert!(packed.len() * 4 < plain.len());
        let mut text = String::new();
        GzDecoder::new(packed.reader()).read_to_string(&mut text).unwrap();
        assert_eq!(text, plain);
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
