//! Serves an evaluator on a Unix socket.

mod call;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Evaluator;

/// Where the controller looks for sockets of evaluators.
pub const DIRECTORY: &str = "/var/run/aaq-sockets";

/// How long calls that are running may take after the order to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Why an evaluator cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No thread could be started.
    #[error("could not start: {0}")]
    Start(#[source] io::Error),
    /// The socket could not be made.
    #[error(
        "could not listen on {path}: {source}; the directory must exist and be writable, mount a volume there"
    )]
    Listen {
        /// Where it was to be.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No connection could be taken.
    #[error("could not accept a connection: {0}")]
    Accept(#[source] io::Error),
}

/// Serves `evaluator` in [`DIRECTORY`] until the process is asked to stop (SIGTERM, SIGINT).
///
/// # Errors
/// When it cannot be served.
pub fn run(evaluator: impl Evaluator) -> Result<(), ServeError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(ServeError::Start)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Start)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Start)?;
        let stop = async move {
            tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
        };
        serve(evaluator, Path::new(DIRECTORY), stop).await
    })
}

/// Serves `evaluator` on a socket of its own in `directory` until `stop` is done. Calls that are running then are finished,
/// for five seconds at most, and the socket is removed.
///
/// # Errors
/// When it cannot be served.
pub async fn serve(
    evaluator: impl Evaluator,
    directory: &Path,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let socket = Socket::bind(directory)?;
    let evaluator = Arc::new(evaluator);
    let (stopping, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    let outcome = loop {
        tokio::select! {
            () = &mut stop => break Ok(()),
            Some(_) = connections.join_next() => {}
            accepted = socket.listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, evaluator.clone(), stopped.clone()))),
                Err(error) => break Err(ServeError::Accept(error)),
            },
        }
    };
    drop(socket);
    drop(stopping);
    let _ = tokio::time::timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
    outcome
}

/// The socket; its file goes with it.
struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// The name is a new one each time: a socket that a killed process left behind is never in the way.
    fn bind(directory: &Path) -> Result<Self, ServeError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let path = directory.join(format!("sidecar-{}-{now:x}.sock", std::process::id()));
        let listener =
            UnixListener::bind(&path).map_err(|source| ServeError::Listen { path: path.clone(), source })?;
        Ok(Self { listener, path })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Answers the calls of one connection until it ends or the sender of `stopped` goes.
async fn connection(stream: UnixStream, evaluator: Arc<dyn Evaluator>, mut stopped: watch::Receiver<()>) {
    let service = service_fn(move |request| {
        let evaluator = evaluator.clone();
        async move { Ok::<_, std::convert::Infallible>(call::answer(request, evaluator).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(64)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
