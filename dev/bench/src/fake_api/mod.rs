//! A fake API server in this process. It holds more namespaces, quotas and pods than a control plane on one machine could,
//! serves them by lists in pages and by watches over HTTPS, and takes the writes that the controller makes.
//!
//! It judges as an API server does where Sluice relies on that: versions, preconditions, the order of events. It ends no
//! watch, and a list is of one version only as long as nothing changes between its pages.

mod answer;
mod body;
mod kept;
mod object;
mod query;
mod watches;
mod world;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use sluice_runtime::tls::{CertStore, server_config};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::pod_json::Template;
use body::Body;
pub use world::{Size, World};

/// A running fake. It ends when this is dropped.
pub struct FakeApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// PEM; it is its own authority.
    certificate: String,
    accepting: AbortHandle,
}

/// What its connections share.
pub struct Shared {
    world: Mutex<World>,
    template: Template,
    /// Told of after each change.
    news: watch::Sender<()>,
    /// Events of pods that were handed to a connection, but for those that releases caused.
    delivered: AtomicU64,
}

impl Shared {
    /// Looks at what there is.
    pub fn read<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what there is, and has the watches tell of it.
    pub fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let changed = change(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner));
        self.news.send_replace(());
        changed
    }

    /// How many events of pods were handed to watches, without those that releases caused.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }
}

impl std::ops::Deref for FakeApiServer {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for FakeApiServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl FakeApiServer {
    /// Starts it on a loopback port.
    ///
    /// # Errors
    /// When there is no port or no certificate.
    pub async fn start(size: Size) -> anyhow::Result<Self> {
        let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let certificate = signed.cert.pem();
        let certs = CertStore::empty();
        certs.set_pem(certificate.as_bytes(), signed.signing_key.serialize_pem().as_bytes())?;
        let acceptor = TlsAcceptor::from(Arc::new(server_config(Arc::new(certs), None)?));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("binding the fake API server")?;
        let address = listener.local_addr().context("asking for the fake API server's address")?;
        let shared = Arc::new(Shared {
            world: Mutex::new(World::new(size)),
            template: Template::new(),
            news: watch::Sender::new(()),
            delivered: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(accept(listener, acceptor, Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, address, certificate, accepting })
    }

    /// Writes into `dir` how to reach it, and returns the kubeconfig. It asks for no credentials.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_kubeconfig(&self, dir: &Path) -> anyhow::Result<PathBuf> {
        let (authority, kubeconfig) = (dir.join("ca.crt"), dir.join("kubeconfig"));
        std::fs::write(&authority, &self.certificate).context("writing the fake API server's certificate")?;
        let (server, authority) = (format!("https://{}", self.address), authority.to_string_lossy());
        let cluster = json!({"server": server, "certificate-authority": authority});
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "bench", "user": {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "bench"}}],
        });
        std::fs::write(&kubeconfig, config.to_string()).context("writing a kubeconfig")?;
        Ok(kubeconfig)
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    // They end with this task.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, acceptor.clone(), Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| serve(request, Arc::clone(&shared)));
    // An error is the client going away.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn serve(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(answer::answer(&shared, &parts.method, &parts.uri, &body))
}

#[cfg(test)]
mod tests;
