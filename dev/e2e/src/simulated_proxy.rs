//! HTTP and SOCKS 5 proxies with nothing but what leads to one server: they stand for those between a person and a cluster.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Longest head of a request.
const LONGEST: usize = 8 * 1_024;

/// What a proxy speaks, and to whom.
#[derive(Clone, Copy, Debug)]
pub enum Speaks {
    /// CONNECT, for who shows this value of `Proxy-Authorization`; `None`: for all.
    Http(Option<&'static str>),
    /// SOCKS 5, for this name and password; `None`: for all.
    Socks(Option<(&'static str, &'static str)>),
}

/// A proxy that leads whoever asks for any address to one server. It ends when it is dropped.
pub struct SimulatedProxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Drop for SimulatedProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl SimulatedProxy {
    /// Starts one in front of `server`.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(speaks: Speaks, server: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listening")?;
        let address = listener.local_addr()?;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&asked);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (server, told) = (server.clone(), Arc::clone(&told));
                // Who is refused, or goes, ends the connection.
                tokio::spawn(async move { lead(stream, speaks, &server, &told).await });
            }
        });
        Ok(Self { address, asked, accepting })
    }

    /// Its host and port.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The addresses that it was asked for and has led to, each as often as it was.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

async fn lead(
    mut client: TcpStream,
    speaks: Speaks,
    server: &str,
    asked: &Mutex<Vec<String>>,
) -> anyhow::Result<()> {
    let address = match speaks {
        Speaks::Http(password) => connect(&mut client, password).await?,
        Speaks::Socks(user) => socks(&mut client, user).await?,
    };
    asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(address);
    let mut server = TcpStream::connect(server).await?;
    let answer: &[u8] = match speaks {
        Speaks::Http(_) => b"HTTP/1.1 200 OK\r\n\r\n",
        // Version, succeeded, reserved, and an address of IPv4 that nobody reads.
        Speaks::Socks(_) => &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
    };
    client.write_all(answer).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// The address of a CONNECT.
async fn connect(client: &mut TcpStream, password: Option<&str>) -> anyhow::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < LONGEST, "the head is too long");
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let shown = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("proxy-authorization").then_some(value)
    });
    if password.is_some() && password != shown {
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n").await?;
    }
    ensure!(password.is_none() || password == shown, "another password");
    let mut words = head.split(' ');
    ensure!(words.next() == Some("CONNECT"), "no CONNECT");
    Ok(words.next().context("no address")?.to_owned())
}

/// The address that is asked for by RFC 1928, after a password by RFC 1929 where one is wanted.
async fn socks(client: &mut TcpStream, user: Option<(&str, &str)>) -> anyhow::Result<String> {
    ensure!(client.read_u8().await? == 5, "another version");
    let methods = text(client).await?;
    let method = if user.is_some() { 2 } else { 0 };
    if !methods.contains(&method) {
        client.write_all(&[5, 0xff]).await?;
    }
    ensure!(methods.contains(&method), "no method that fits");
    client.write_all(&[5, method]).await?;
    if let Some((name, password)) = user {
        ensure!(client.read_u8().await? == 1, "another version of passwords");
        let is_right = text(client).await? == name.as_bytes() && text(client).await? == password.as_bytes();
        client.write_all(&[1, u8::from(!is_right)]).await?;
        ensure!(is_right, "another password");
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    let host = match request {
        [5, 1, 0, 1] => Ipv4Addr::from(client.read_u32().await?).to_string(),
        [5, 1, 0, 3] => String::from_utf8(text(client).await?)?,
        other => anyhow::bail!("{other:?} is no request for a connection"),
    };
    Ok(format!("{host}:{}", client.read_u16().await?))
}

/// Bytes after their number.
async fn text(client: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}
