//! Sockets that servers listen on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Connections that wait to be accepted; the kernel may allow fewer.
const BACKLOG: i32 = 1024;

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {address}")]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// All addresses of this host at `port`, for [`listen`].
#[must_use]
pub const fn anywhere(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)
}

/// A listener at `address`. `[::]` stands for all addresses of IPv6 and IPv4, and for those of IPv4 alone where the kernel
/// has no IPv6.
///
/// # Errors
/// When the address is taken or none of this host.
pub fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    listen_by(open, address).map_err(|source| ListenError { address, source })
}

fn listen_by<T>(open: impl Fn(SocketAddr) -> io::Result<T>, address: SocketAddr) -> io::Result<T> {
    match open(address) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && is_without_ipv6(&error) => {
            let instead = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
            tracing::info!(%address, %instead, %error, "no IPv6 here");
            open(instead)
        }
        opened => opened,
    }
}

/// What socket(2) and bind(2) say where IPv6 was not built in or is disabled: that there is no such family or no such
/// address.
fn is_without_ipv6(error: &io::Error) -> bool {
    /// `EAFNOSUPPORT` of Linux, on every architecture (`include/uapi/asm-generic/errno.h`) that Sluice is built for.
    const NO_SUCH_FAMILY: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(NO_SUCH_FAMILY)
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Otherwise a setting of the node (net.ipv6.bindv6only) decides.
        socket.set_only_v6(false)?;
    }
    // A process that starts anew must not wait for connections of the one before.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use tokio::net::TcpStream;

    /// What is opened, one after the other, where the first attempt ends with `error`.
    fn opened(address: &str, error: io::Error) -> (Vec<String>, bool) {
        let (tried, error) = (RefCell::new(Vec::new()), RefCell::new(Some(error)));
        let open = |address: SocketAddr| {
            tried.borrow_mut().push(address.to_string());
            error.borrow_mut().take().map_or(Ok(()), Err)
        };
        let is_open = listen_by(open, address.parse().unwrap()).is_ok();
        (tried.into_inner(), is_open)
    }

    #[test]
    fn where_the_kernel_has_no_ipv6_it_is_ipv4_alone() {
        let no_family = || io::Error::from_raw_os_error(97);
        for error in [no_family(), io::ErrorKind::AddrNotAvailable.into()] {
            assert_eq!(
                opened("[::]:8443", error),
                (vec!["[::]:8443".to_owned(), "0.0.0.0:8443".to_owned()], true)
            );
        }
        for (address, error) in [
            ("[::]:8443", io::ErrorKind::AddrInUse.into()),
            ("[::]:80", io::ErrorKind::PermissionDenied.into()),
            ("[::1]:8443", no_family()),
            ("0.0.0.0:8443", no_family()),
        ] {
            assert_eq!(opened(address, error), (vec![address.to_owned()], false));
        }
    }

    #[tokio::test]
    async fn anywhere_is_reached_by_both_families() {
        let listener = listen(anywhere(0)).unwrap();
        let address = listener.local_addr().unwrap();
        let reached = async |ip: IpAddr| {
            let _stream = TcpStream::connect((ip, address.port())).await.unwrap();
            listener.accept().await.unwrap().1.ip().to_canonical()
        };
        assert_eq!(reached(Ipv4Addr::LOCALHOST.into()).await, Ipv4Addr::LOCALHOST);
        // Where the kernel has no IPv6 this is the other path.
        let has_loopback = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        if address.is_ipv6() && has_loopback {
            assert_eq!(reached(Ipv6Addr::LOCALHOST.into()).await, Ipv6Addr::LOCALHOST);
        }
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let taken = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = taken.local_addr().unwrap();
        assert_eq!(listen(address).unwrap_err().to_string(), format!("could not listen on {address}"));
    }
}
