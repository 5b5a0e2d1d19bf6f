use super::*;
use crate::tls::tests::{Issued, issue};
use axum::routing::{get, post};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use rustls::pki_types::{CertificateDer, ServerName};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SOON: Duration = Duration::from_secs(10);

struct Server {
    address: SocketAddr,
    certs: Arc<CertStore>,
    metrics: ServeMetrics,
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), TlsError>>,
    issued: Issued,
}

fn app() -> Router {
    Router::new()
        .route("/length", post(|body: Bytes| async move { body.len().to_string() }))
        .route("/panic", get(|| async { panic!("on purpose") as String }))
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
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (metrics, cancel) = (ServeMetrics::default(), CancellationToken::new());
    let task = tokio::spawn(serve(listener, certs.clone(), app(), limits, metrics.clone(), cancel.clone()));
    Server { address, certs, metrics, cancel, task, issued }
}

fn client_config(trusted: &CertificateDer<'static>, alpn: &[&[u8]]) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

type Tls = tokio_rustls::client::TlsStream<TcpStream>;

impl Server {
    async fn connect_to(&self, trusted: &CertificateDer<'static>, alpn: &[&[u8]]) -> std::io::Result<Tls> {
        let tcp = TcpStream::connect(self.address).await?;
        let connector = tokio_rustls::TlsConnector::from(client_config(trusted, alpn));
        connector.connect(ServerName::try_from("localhost").unwrap(), tcp).await
    }

    async fn raw(&self) -> Tls {
        self.connect_to(&self.issued.der, &[b"http/1.1"]).await.unwrap()
    }

    /// One request over a connection of its own.
    async fn ask(&self, h2: bool, method: Method, path: &str, body: Vec<u8>) -> (StatusCode, String) {
        let alpn: &[u8] = if h2 { b"h2" } else { b"http/1.1" };
        let tls = self.connect_to(&self.issued.der, &[alpn]).await.unwrap();
        let io = TokioIo::new(tls);
        let request = Request::builder().method(method).uri(format!("https://localhost{path}"));
        let request = request.header("host", "localhost").body(Full::new(Bytes::from(body))).unwrap();
        let response = if h2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        };
        let status = response.status();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(SOON, self.task).await.expect("did not stop").unwrap().unwrap();
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
async fn both_protocols_work_and_bodies_are_limited() {
    let limits = ServeLimits { body_limit_bytes: 3 << 20, ..ServeLimits::default() };
    let server = start(limits).await;
    for h2 in [false, true] {
        let (status, text) = server.ask(h2, Method::POST, "/length", vec![b'x'; 3 << 20]).await;
        assert_eq!((status, text.as_str()), (StatusCode::OK, "3145728"), "h2: {h2}");
        let (status, _) = server.ask(h2, Method::POST, "/length", vec![b'x'; (3 << 20) + 1]).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "h2: {h2}");
        assert_eq!(server.ask(h2, Method::GET, "/nothing", Vec::new()).await.0, StatusCode::NOT_FOUND);
        assert_eq!(
            server.ask(h2, Method::GET, "/length", Vec::new()).await.0,
            StatusCode::METHOD_NOT_ALLOWED
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn a_chunked_body_without_declared_length_is_limited_too() {
    let server = start(ServeLimits { body_limit_bytes: 10, ..ServeLimits::default() }).await;
    let mut raw = server.raw().await;
    raw.write_all(
        b"POST /length HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n",
    )
    .await
    .unwrap();
    let answer = read_to_close(&mut raw).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_new_certificate_serves_new_handshakes_and_keeps_old_connections() {
    let server = start(ServeLimits::default()).await;
    let io = TokioIo::new(server.raw().await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
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
    assert!(server.connect_to(&renewed.der, &[]).await.is_ok(), "the new certificate is served");
    assert!(server.connect_to(&server.issued.der, &[]).await.is_err(), "the old one is not");
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
    assert_eq!(read_to_close(&mut silent).await, "");
    assert_eq!(read_to_close(&mut slow_header).await, "");
    let answer = read_to_close(&mut slow_body).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(server.ask(false, Method::GET, "/hang", Vec::new()).await.0, StatusCode::SERVICE_UNAVAILABLE);

    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(server.raw().await)).await.unwrap();
    tokio::spawn(connection);
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
async fn one_connection_too_many_is_refused_at_once() {
    let server = start(ServeLimits { max_connections: 2, ..ServeLimits::default() }).await;
    let first = server.raw().await;
    let _second = server.raw().await;
    let refused =
        tokio::time::timeout(Duration::from_secs(2), server.connect_to(&server.issued.der, &[])).await;
    assert!(refused.expect("the third waits instead of being refused").is_err());
    assert_eq!(server.metrics.connections(), 2);
    assert_eq!(server.metrics.refused(), 1);
    drop(first);
    eventually("the slot is free again", || server.metrics.connections() == 1).await;
    assert_eq!(server.ask(false, Method::POST, "/length", Vec::new()).await.0, StatusCode::OK);
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
    assert_eq!(server.ask(false, Method::POST, "/length", Vec::new()).await.0, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn a_panic_becomes_a_500_and_is_counted() {
    let server = start(ServeLimits::default()).await;
    for h2 in [false, true] {
        assert_eq!(
            server.ask(h2, Method::GET, "/panic", Vec::new()).await.0,
            StatusCode::INTERNAL_SERVER_ERROR
        );
    }
    assert_eq!(server.metrics.panics(), 2);
    server.stop().await;
}

#[tokio::test]
async fn too_many_requests_or_bytes_at_a_time_get_429() {
    let limits =
        ServeLimits { max_concurrent_requests: 1, buffer_limit_bytes: 100, ..ServeLimits::default() };
    let server = start(limits).await;
    assert_eq!(
        server.ask(true, Method::POST, "/length", vec![0; 101]).await.0,
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(
        server.ask(true, Method::POST, "/length", vec![0; 100]).await.0,
        StatusCode::OK,
        "bytes are given back"
    );
    let (slow, other) = tokio::join!(server.ask(true, Method::GET, "/slow", Vec::new()), async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.ask(true, Method::POST, "/length", Vec::new()).await
    });
    assert_eq!((slow.0, other.0), (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS));
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
    let issued = issue(30);
    let certs = Arc::new(CertStore::empty());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (metrics, cancel) = (ServeMetrics::default(), CancellationToken::new());
    let task = tokio::spawn(serve(
        listener,
        certs.clone(),
        app(),
        ServeLimits::default(),
        metrics.clone(),
        cancel.clone(),
    ));
    let server = Server { address, certs, metrics, cancel, task, issued };
    assert!(server.connect_to(&server.issued.der, &[]).await.is_err());
    server.certs.set_pem(server.issued.cert.as_bytes(), server.issued.key.as_bytes()).unwrap();
    assert!(server.connect_to(&server.issued.der, &[]).await.is_ok());
    server.stop().await;
}
