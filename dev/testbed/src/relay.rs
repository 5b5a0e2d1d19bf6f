//! A relay between an API server and etcd that can hold back what watches say: to that API server the objects concerned
//! stay as they were, while it reads and writes as ever.
//!
//! An API server speaks gRPC with etcd, so each of its calls is one stream of HTTP/2, passed on frame by frame.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context as _;
use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// Every key of Kubernetes begins so.
const KEYS: &[u8] = b"/registry/";
/// Calls that one connection may have under way.
const MOST_CALLS: u32 = 10_000;

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// A running relay, on a thread and runtime of its own; dropping it stops it.
pub(crate) struct Relay {
    held: watch::Sender<Option<String>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Passes on what comes at one port to another.
    pub(crate) fn start(port: u16, etcd: u16) -> anyhow::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (held, holding) = watch::channel(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).context("binding the relay")?;
        listener.set_nonblocking(true)?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let thread = std::thread::Builder::new().name("etcd-relay".into());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, etcd, holding) => {}
                    _ = stopped => {}
                }
            });
        });
        let thread = thread.context("starting the relay to etcd")?;
        Ok(Self { held, stop: Some(stop), thread: Some(thread) })
    }

    /// Holds back what watches say of these keys; `None` lets it through.
    pub(crate) fn hold(&self, keys: Option<String>) {
        self.held.send_replace(keys);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, etcd: u16, held: watch::Receiver<Option<String>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(stream, etcd, held.clone()));
    }
}

/// An error ends the connection; an API server makes another one.
async fn connection(
    stream: TcpStream,
    etcd: u16,
    held: watch::Receiver<Option<String>>,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let upstream = TcpStream::connect(("127.0.0.1", etcd)).await?;
    upstream.set_nodelay(true)?;
    let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(upstream)).await?;
    tokio::spawn(driver);
    let service = service_fn(move |request| call(request, sender.clone(), held.clone()));
    let mut server = http2::Builder::new(TokioExecutor::new());
    server.max_concurrent_streams(MOST_CALLS);
    Ok(server.serve_connection(TokioIo::new(stream), service).await?)
}

async fn call(
    request: Request<Incoming>,
    mut etcd: SendRequest<Body>,
    held: watch::Receiver<Option<String>>,
) -> Result<Response<Body>, hyper::Error> {
    if request.uri().path() != WATCH {
        let answer = etcd.send_request(request.map(|body| body.boxed_unsync())).await?;
        return Ok(answer.map(|body| body.boxed_unsync()));
    }
    let watched = Watched::default();
    let learn = watched.clone();
    let request = request.map(|body| {
        let learned = body.map_frame(move |frame| {
            frame.data_ref().into_iter().for_each(|data| learn.learn(data));
            frame
        });
        learned.boxed_unsync()
    });
    let answer = etcd.send_request(request).await?;
    Ok(answer.map(|body| slowed(body, watched, held)))
}

/// What the watches of one call are about, as the call said it.
#[derive(Clone, Default)]
struct Watched(Arc<Mutex<Vec<u8>>>);

impl Watched {
    fn learn(&self, data: &[u8]) {
        if contains(data, KEYS) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(data);
        }
    }

    fn concerns(&self, keys: &str) -> bool {
        contains(&self.0.lock().unwrap_or_else(PoisonError::into_inner), keys.as_bytes())
    }
}

fn contains(data: &[u8], part: &[u8]) -> bool {
    data.windows(part.len()).any(|window| window == part)
}

fn slowed(body: Incoming, watched: Watched, held: watch::Receiver<Option<String>>) -> Body {
    let frames = stream::unfold((body, watched, held), |(mut body, watched, mut held)| async move {
        let frame = body.frame().await?;
        let free = |held: &Option<String>| held.as_ref().is_none_or(|keys| !watched.concerns(keys));
        // No hold is possible any more once the relay is gone.
        let _ = held.wait_for(free).await;
        Some((frame, (body, watched, held)))
    });
    StreamBody::new(frames).boxed_unsync()
}
