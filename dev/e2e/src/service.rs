//! A Service of a cluster, as far as new connections go: an address, and behind it the replica that is ready.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Context as _;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Hands connections on to a port. It ends when it is dropped; connections go on.
pub struct Service {
    port: Arc<AtomicU16>,
    serving: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Service {
    /// Listens at `address` and hands on to `port` of the same host.
    ///
    /// # Errors
    /// When the address is taken.
    pub async fn start(address: &str, port: u16) -> anyhow::Result<Self> {
        let address: SocketAddr = address.parse().with_context(|| format!("{address} is no address"))?;
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening at {address}"))?;
        let port = Arc::new(AtomicU16::new(port));
        let serving = tokio::spawn(accept(listener, address.ip(), Arc::clone(&port)));
        Ok(Self { port, serving })
    }

    /// New connections go to this port.
    pub fn hand_on_to(&self, port: u16) {
        self.port.store(port, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, host: IpAddr, port: Arc<AtomicU16>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let to = SocketAddr::new(host, port.load(Ordering::SeqCst));
        tokio::spawn(async move {
            // Where nobody listens the connection is closed, as a client of a Service without endpoints sees it.
            if let Ok(mut replica) = TcpStream::connect(to).await {
                let _ = copy_bidirectional(&mut client, &mut replica).await;
            }
        });
    }
}
