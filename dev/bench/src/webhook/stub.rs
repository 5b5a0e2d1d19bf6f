//! A stub in place of an API server: it has a version and not one object.
//!
//! Verdicts on pods need nothing of an API server, but the webhook asks for its version before it serves, and its watches
//! would try again and again if nobody answered.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::Context as _;
use futures::stream::{Pending, pending};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// What it is, for the figures' file.
pub(super) const DESCRIPTION: &str = "a stub: a version, empty lists, watches without events";

/// A running stub. It ends when this is dropped.
pub(super) struct StubApiServer {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl Drop for StubApiServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl StubApiServer {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("binding the stub API server")?;
        let address = listener.local_addr().context("asking for the stub's address")?;
        Ok(Self { address, accepting: tokio::spawn(accept(listener)).abort_handle() })
    }

    /// For somebody without rights, who needs none.
    pub(super) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "stub",
            "clusters": [{"name": "stub", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "nobody"}}],
        })
        .to_string()
    }
}

async fn accept(listener: TcpListener) {
    // They end with this task.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let server = hyper::server::conn::http1::Builder::new();
        connections.spawn(server.serve_connection(TokioIo::new(stream), service_fn(serve)));
        while connections.try_join_next().is_some() {}
    }
}

/// A whole answer, or one that never goes on.
type Body = Either<Full<Bytes>, StreamBody<Pending<Result<Frame<Bytes>, Infallible>>>>;

async fn serve(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    Ok(answer(request.method(), request.uri().path(), request.uri().query().unwrap_or_default()))
}

fn answer(method: &Method, path: &str, query: &str) -> Response<Body> {
    let watch = query.split('&').any(|pair| pair == "watch=true");
    match (method, path) {
        (&Method::GET, "/version") => whole(StatusCode::OK, &version()),
        (&Method::GET, _) if watch => Response::new(Either::Right(StreamBody::new(pending()))),
        (&Method::GET, _) => whole(StatusCode::OK, &empty_list()),
        _ => {
            whole(StatusCode::METHOD_NOT_ALLOWED, &json!({"kind": "Status", "apiVersion": "v1", "code": 405}))
        }
    }
}

fn whole(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body.to_string().into())));
    *response.status_mut() = status;
    response
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0-stub", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}

fn empty_list() -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceQuota;
    use kube::api::{ListParams, PostParams};
    use kube::config::{KubeConfigOptions, Kubeconfig};
    use kube::{Api, Client, Config};

    use super::StubApiServer;

    #[tokio::test]
    async fn a_client_finds_a_version_and_no_objects() {
        let stub = StubApiServer::start().await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&stub.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
        let quotas: Api<ResourceQuota> = Api::all(client.clone());
        let list = quotas.list(&ListParams::default()).await.unwrap();
        assert_eq!((list.items.len(), list.metadata.resource_version.as_deref()), (0, Some("1")));
        let quotas: Api<ResourceQuota> = Api::default_namespaced(client);
        quotas.create(&PostParams::default(), &ResourceQuota::default()).await.unwrap_err();
    }
}
