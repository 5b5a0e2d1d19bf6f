//! The part of a kubelet that hands out logs, for pods that no node runs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Context as _;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use sluice_testbed::Bed;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::simulated_webhook::acceptor;

/// Logs by pod, container, and whether that of the container before is meant.
pub type Logs = BTreeMap<(&'static str, &'static str, bool), String>;

/// A node whose kubelet has logs and nothing else. It ends when it is dropped; the node stays.
pub struct SimulatedKubelet {
    serving: JoinHandle<()>,
}

impl Drop for SimulatedKubelet {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl SimulatedKubelet {
    /// A node of this name with these logs.
    ///
    /// # Errors
    /// When it cannot listen, or the API server refuses the node.
    pub async fn start(bed: &Bed, node: &str, logs: Logs) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listening")?;
        let port = listener.local_addr()?.port();
        let serving = tokio::spawn(accept(listener, acceptor(bed)?, Arc::new(logs)));
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": node },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
            },
        });
        let answer = crate::call::post(&bed.admin()?, "/api/v1/nodes", &node).await?;
        anyhow::ensure!(answer.is_ok(), "creating the node: {answer:?}");
        Ok(Self { serving })
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, logs: Arc<Logs>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&logs)));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, logs: Arc<Logs>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(&logs, request.uri());
        async move { Ok::<_, Infallible>(answer) }
    });
    // An error is the API server going away.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// `/containerLogs/NAMESPACE/POD/CONTAINER`; as a kubelet, 400 where there is no container before.
fn answer(logs: &Logs, uri: &http::Uri) -> Response<Full<Bytes>> {
    let mut parts = uri.path().split('/').skip(3);
    let (pod, container) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let previous = uri.query().is_some_and(|query| query.contains("previous=true"));
    let log =
        logs.iter().find(|((one, other, before), _)| (*one, *other, *before) == (pod, container, previous));
    let (code, text) = match log {
        Some((_, text)) => (StatusCode::OK, text.clone()),
        None => (
            StatusCode::BAD_REQUEST,
            format!("previous terminated container {container:?} in pod {pod:?} not found"),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response
}
