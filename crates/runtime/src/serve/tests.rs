use super::*;
use crate::tls::tests::{Issued, issue};
use crate::tls::{CertStore, server_config};
use axum::routing::{get, post};
use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

mod probes;

const SOON: Duration = Duration::from_secs(10);

struct Server {
    address: SocketAddr,
    certs: Arc<CertStore>,
    metrics: ServeMetrics,
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    issued: Issued,
}

/// Requests to `/counted`.
static WORKED_ON: AtomicUsize = AtomicUsize::new(0);

fn app() -> Router {
    Router::new()
        .route("/length", post(|body: Bytes| async move { body.len().to_string() }))
        .route("/panic", get(|| async { panic!("on purpose") as String }))
        .route(
            "/counted",
            get(|| async {
                WORKED_ON.fetch_add(1, Relaxed);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }),
        )
        .route("/hang", get(std::future::pending::<String>))
        .route(
            "/slow",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                "done"
            }),
        )
}

async fn start(limits: ServeLimits) -> Server {
    let issued = issue(30);
    let certs = Arc::new(CertStore::empty());
    certs.set_pem(issued.cert.as_bytes(), issued.key.as_bytes()).unwrap();
    start_with(certs, issued, None, limits).await
}

async fn start_with(
    certs: Arc<CertStore>,
    issued: Issued,
    client_ca: Option<&[u8]>,
    limits: ServeLimits,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (metrics, cancel) = (ServeMetrics::default(), CancellationToken::new());
    let tls = server_config(certs.clone(), client_ca).unwrap();
    let task = tokio::spawn(serve(listener, tls, app(), limits, metrics.clone(), cancel.clone()));
    Server { address, certs, metrics, cancel, task, issued }
}

fn client_config(
    trusted: &CertificateDer<'static>,
    own: Option<&Issued>,
    alpn: &[&[u8]],
) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        Some(own) => {
            let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![own.der.clone()], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

type Tls = tokio_rustls::client::TlsStream<TcpStream>;

impl Server {
    async fn connect_as(
        &self,
        trusted: &CertificateDer<'static>,
        own: Option<&Issued>,
    ) -> std::io::Result<Tls> {
        let tcp = TcpStream::connect(self.address).await?;
        let connector = tokio_rustls::TlsConnector::from(client_config(trusted, own, &[b"http/1.1"]));
        connector.connect(ServerName::try_from("localhost").unwrap(), tcp).await
    }

    async fn connect_to(&self, trusted: &CertificateDer<'static>) -> std::io::Result<Tls> {
        self.connect_as(trusted, None).await
    }

    async fn raw(&self) -> Tls {
        self.connect_to(&self.issued.der).await.unwrap()
    }

    async fn sender(&self) -> hyper::client::conn::http1::SendRequest<Full<Bytes>> {
        let io = TokioIo::new(self.raw().await);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// One request over a connection of its own.
    async fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> (StatusCode, String) {
        let mut sender = self.sender().await;
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(SOON, self.task).await.expect("did not stop").unwrap();
    }
}

/// Reads until the server closes; panics if it does not.
async fn read_to_close(stream: &mut Tls) -> String {
    let mut text = Vec::new();
    // A close without TLS notice is still a close.
    let _ =
        tokio::time::timeout(SOON, stream.read_to_end(&mut text)).await.expect("the server did not close");
    String::from_utf8_lossy(&text).into_owned()
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let reached = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, reached).await.unwrap_or_else(|_| panic!("never came true: {what}"));
}

#[tokio::test]
async fn the_app_gets_bodies_and_is_asked_over_http_1_alone() {
    let server = start(ServeLimits::default()).await;
    let (status, text) = server.ask(Method::POST, "/length", vec![b'x'; 3 << 20]).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "3145728"));
    assert_eq!(server.ask(Method::GET, "/nothing", Vec::new()).await.0, StatusCode::NOT_FOUND);
    assert_eq!(server.ask(Method::GET, "/length", Vec::new()).await.0, StatusCode::METHOD_NOT_ALLOWED);
    let tcp = TcpStream::connect(server.address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(client_config(&server.issued.der, None, &[b"h2"]));
    let h2 = connector.connect(ServerName::try_from("localhost").unwrap(), tcp).await;
    assert!(h2.is_err(), "a connection with many requests at a time would escape the bounds");
    server.stop().await;
}

#[tokio::test]
async fn a_client_whose_body_is_not_read_sees_the_answer() {
    let server = start(ServeLimits::default()).await;
    let (status, _) = server.ask(Method::POST, "/nothing", vec![b'x'; 200 << 10]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    server.stop().await;
}

#[tokio::test]
async fn with_authorities_of_clients_only_their_clients_get_in() {
    let (issued, client, other) = (issue(30), issue(30), issue(30));
    let certs = Arc::new(CertStore::empty());
    certs.set_pem(issued.cert.as_bytes(), issued.key.as_bytes()).unwrap();
    let server = start_with(certs, issued, Some(client.cert.as_bytes()), ServeLimits::default()).await;
    let answer = |own: Option<Issued>| {
        let server = &server;
        async move {
            let mut stream = server.connect_as(&server.issued.der, own.as_ref()).await.ok()?;
            stream.write_all(b"GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.ok()?;
            let mut text = Vec::new();
            stream.read_to_end(&mut text).await.ok()?;
            Some(String::from_utf8_lossy(&text).into_owned())
        }
    };
    let got_in = |answer: Option<String>| answer.is_some_and(|text| text.starts_with("HTTP/1.1 404"));
    assert!(!got_in(answer(None).await) && !got_in(answer(Some(other)).await));
    assert!(got_in(answer(Some(client)).await));
    assert!(matches!(
        server_config(server.certs.clone(), Some(b"none")),
        Err(crate::tls::TlsError::ClientCa(_))
    ));
    server.stop().await;
}

#[tokio::test]
async fn a_new_certificate_serves_new_handshakes_and_keeps_old_connections() {
    let server = start(ServeLimits::default()).await;
    let mut sender = server.sender().await;
    let request = || Request::get("/slow").header("host", "x").body(Full::<Bytes>::default()).unwrap();
    let running = sender.send_request(request());
    let renewed = issue(30);
    server.certs.set_pem(renewed.cert.as_bytes(), renewed.key.as_bytes()).unwrap();
    assert_eq!(running.await.unwrap().status(), StatusCode::OK);
    sender.ready().await.unwrap();
    assert_eq!(
        sender.send_request(request()).await.unwrap().status(),
        StatusCode::OK,
        "the old connection goes on"
    );
    assert!(server.connect_to(&renewed.der).await.is_ok(), "the new certificate is served");
    assert!(server.connect_to(&server.issued.der).await.is_err(), "the old one is not");
    server.stop().await;
}

#[tokio::test]
async fn stalled_clients_are_cut_off_but_idle_ones_are_kept() {
    let limits = ServeLimits {
        header_timeout: Duration::from_millis(200),
        request_timeout: Duration::from_millis(400),
        ..ServeLimits::default()
    };
    let server = start(limits).await;
    let mut silent = server.raw().await;
    let mut slow_header = server.raw().await;
    slow_header.write_all(b"POST /length HTTP/1.1\r\nhost:").await.unwrap();
    let mut slow_body = server.raw().await;
    slow_body.write_all(b"POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n012").await.unwrap();
    assert_eq!(read_to_close(&mut slow_header).await, "");
    let answer = read_to_close(&mut slow_body).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    // Several header timeouts without a first request: clients dial connections for later.
    silent
        .write_all(b"POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let answer = read_to_close(&mut silent).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(server.ask(Method::GET, "/hang", Vec::new()).await.0, StatusCode::SERVICE_UNAVAILABLE);

    let mut sender = server.sender().await;
    for _ in 0..2 {
        let request = Request::post("/length").header("host", "x").body(Full::<Bytes>::default()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), StatusCode::OK);
        // Several header timeouts of silence between requests.
        tokio::time::sleep(Duration::from_millis(700)).await;
        sender.ready().await.expect("an idle connection was closed");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_connection_too_many_takes_the_place_of_one_that_never_had_an_answer() {
    let server = start(ServeLimits { max_connections: 2, ..ServeLimits::default() }).await;
    let mut known = server.sender().await;
    let request = || Request::post("/length").header("host", "x").body(Full::<Bytes>::default()).unwrap();
    assert_eq!(known.send_request(request()).await.unwrap().status(), StatusCode::OK);
    let mut silent = server.raw().await;
    for _ in 0..3 {
        assert_eq!(server.ask(Method::POST, "/nothing", Vec::new()).await.0, StatusCode::NOT_FOUND);
    }
    assert_eq!(read_to_close(&mut silent).await, "");
    known.ready().await.unwrap();
    assert_eq!(known.send_request(request()).await.unwrap().status(), StatusCode::OK, "it is worth more");
    server.stop().await;
}

#[tokio::test]
async fn answers_end_their_connections_once_half_of_the_slots_are_taken() {
    let server = start(ServeLimits { max_connections: 4, ..ServeLimits::default() }).await;
    let request = || Request::post("/length").header("host", "x").body(Full::<Bytes>::default()).unwrap();
    let mut known = Vec::new();
    for closes in [false, false, true] {
        let mut sender = server.sender().await;
        let answer = sender.send_request(request()).await.unwrap();
        assert_eq!(answer.headers().get("connection").is_some_and(|value| value == "close"), closes);
        known.push(sender);
    }
    eventually("the third to be closed", || server.metrics.connections() == 2).await;
    // Two are left, which is not more than half; strangers change nothing.
    let strangers = [server.raw().await, server.raw().await];
    let answer = known[0].send_request(request()).await.unwrap();
    assert_eq!(answer.headers().get("connection"), None);
    assert_eq!(server.metrics.refused(), 0);
    drop(strangers);
    server.stop().await;
}

#[tokio::test]
async fn a_connection_too_many_is_refused_while_all_others_are_answered() {
    let server = start(ServeLimits { max_connections: 1, ..ServeLimits::default() }).await;
    let mut busy = server.sender().await;
    let slow = busy.send_request(Request::get("/counted").header("host", "x").body(Full::default()).unwrap());
    let refused = async {
        eventually("the request to be worked on", || WORKED_ON.load(Relaxed) == 1).await;
        while server.connect_to(&server.issued.der).await.is_ok() {}
    };
    let (slow, ()) = tokio::join!(slow, tokio::time::timeout(SOON, refused).map(Result::unwrap));
    assert_eq!(slow.unwrap().status(), StatusCode::OK);
    assert!(server.metrics.refused() >= 1);
    server.stop().await;
}

#[tokio::test]
async fn garbage_and_huge_headers_do_no_harm() {
    let server = start(ServeLimits::default()).await;
    let mut tcp = TcpStream::connect(server.address).await.unwrap();
    tcp.write_all(&[0xff; 4096]).await.unwrap();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(SOON, tcp.read_to_end(&mut rest)).await.expect("not closed");
    let mut binary = server.raw().await;
    binary.write_all(b"\0\x01\xff\xfe garbage\r\n\r\n").await.unwrap();
    let answer = read_to_close(&mut binary).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let mut huge = server.raw().await;
    let head = format!("GET /length HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(40 << 10));
    let _ = huge.write_all(head.as_bytes()).await;
    let answer = read_to_close(&mut huge).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(server.ask(Method::POST, "/length", Vec::new()).await.0, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn a_panic_answers_its_request_and_no_other() {
    let server = start(ServeLimits::default()).await;
    let mut other = server.sender().await;
    let slow = other.send_request(Request::get("/slow").header("host", "x").body(Full::default()).unwrap());
    let panics = async {
        for _ in 0..2 {
            let (status, _) = server.ask(Method::GET, "/panic", Vec::new()).await;
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        }
    };
    let (slow, ()) = tokio::join!(slow, panics);
    assert_eq!(slow.unwrap().status(), StatusCode::OK);
    assert_eq!(server.metrics.panics(), 2);
    server.stop().await;
}

#[tokio::test]
async fn running_requests_finish_and_hung_ones_are_closed_when_stopping() {
    let limits = ServeLimits { drain_timeout: Duration::from_millis(600), ..ServeLimits::default() };
    let server = start(limits).await;
    let (slow, hung) = (server.raw().await, server.raw().await);
    let send = |mut stream: Tls, path: &'static str| async move {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        stream
    };
    let (mut slow, mut hung) = (send(slow, "/slow").await, send(hung, "/hang").await);
    // Both must have arrived before the stop, else they are refused rather than drained.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let address = server.address;
    server.stop().await;
    let answer = read_to_close(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
    assert_eq!(read_to_close(&mut hung).await, "");
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn without_a_certificate_nobody_gets_in() {
    let server = start_with(Arc::new(CertStore::empty()), issue(30), None, ServeLimits::default()).await;
    assert!(server.connect_to(&server.issued.der).await.is_err());
    server.certs.set_pem(server.issued.cert.as_bytes(), server.issued.key.as_bytes()).unwrap();
    assert!(server.connect_to(&server.issued.der).await.is_ok());
    server.stop().await;
}
