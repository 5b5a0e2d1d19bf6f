//! The port of probes under attack: without TLS, in reach of every pod where no network policy is enforced.

use super::*;
use crate::health::{Admin, router};
use tokio::net::TcpSocket;

/// As peers these addresses of this machine are as different as any.
const KUBELET: [u8; 4] = [127, 0, 0, 1];

struct Port {
    address: SocketAddr,
    metrics: ServeMetrics,
    cancel: CancellationToken,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Port {
    async fn open() -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = SocketAddr::from((KUBELET, listener.local_addr().unwrap().port()));
        let (metrics, cancel) = (ServeMetrics::default(), CancellationToken::new());
        let app = router(Admin::default());
        tokio::spawn(serve_plain(listener, app, ServeLimits::probes(), metrics.clone(), cancel.clone()));
        Self { address, metrics, cancel }
    }

    async fn connect(&self, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// The first line of the answer to what is sent.
    async fn ask(&self, from: [u8; 4], text: &str) -> String {
        let mut stream = self.connect(from).await;
        stream.write_all(text.as_bytes()).await.unwrap();
        let answer = to_close(&mut stream).await;
        answer.lines().next().unwrap_or_default().to_owned()
    }
}

async fn to_close(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut text)).await.expect("it was not closed");
    String::from_utf8_lossy(&text).into_owned()
}

const PROBE: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
/// What stalls: a connection before its first byte, in a header, and after an answer.
const STALLED: [&str; 3] = ["", "GET /healthz HTTP/1.1\r\nhost:", "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"];

/// Fills the port from the address that `from` gives to each connection.
async fn filled(port: &Port, from: impl Fn(u8) -> [u8; 4]) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for (at, text) in (1..=16).zip(STALLED.into_iter().cycle()) {
        let mut stream = port.connect(from(at)).await;
        stream.write_all(text.as_bytes()).await.unwrap();
        all.push(stream);
    }
    eventually("all places to be taken", || port.metrics.connections() == 16).await;
    all
}

#[tokio::test]
async fn stalled_connections_keep_no_probe_from_being_answered_and_are_closed() {
    let peers: [fn(u8) -> [u8; 4]; 3] = [|at| [127, 0, 1, at], |_| [127, 0, 1, 1], |_| KUBELET];
    for from in peers {
        let port = Port::open().await;
        let stalled = filled(&port, from).await;
        let probe = tokio::time::timeout(Duration::from_secs(5), port.ask(KUBELET, PROBE));
        assert_eq!(probe.await.expect("an answer in time"), "HTTP/1.1 200 OK");
        for mut stream in stalled {
            to_close(&mut stream).await;
        }
        eventually("all places to be free", || port.metrics.connections() == 0).await;
    }
}

#[tokio::test]
async fn no_more_connections_are_held_than_there_are_places() {
    let port = Port::open().await;
    let mut more = filled(&port, |at| [127, 0, 1, at]).await;
    for at in 17..=64 {
        more.push(port.connect([127, 0, 1, at]).await);
    }
    assert_eq!(port.ask(KUBELET, PROBE).await, "HTTP/1.1 200 OK");
    eventually("one in, one out", || port.metrics.connections() <= 16).await;
    let h2 = port.ask(KUBELET, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(
        h2.is_empty() || h2.starts_with("HTTP/1.1 4"),
        "many requests at a time would escape the bound: {h2}"
    );
}
