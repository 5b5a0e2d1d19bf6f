//! Through which proxy the API server is reached, if through one.
//!
//! As kubectl has it: `proxy-url` of a kubeconfig holds always, `HTTPS_PROXY` unless `NO_PROXY` names the API server.

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// The way to the API server.
#[derive(Debug)]
pub(crate) enum Way {
    /// Without a proxy.
    Direct(HttpConnector),
    /// By CONNECT of an HTTP proxy.
    Http(Tunnel<HttpConnector>),
    /// By a SOCKS 5 proxy, which also resolves names.
    Socks(SocksV5<HttpConnector>),
}

/// A proxy of another kind: its address, without a password.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownProxy(pub String);

/// What the environment says of proxies.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// `HTTPS_PROXY`.
    pub proxy: Option<String>,
    /// `NO_PROXY`.
    pub none_for: String,
}

impl Environment {
    pub(crate) fn of_process() -> Self {
        let first = |names: [&str; 2]| {
            names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        };
        Self {
            proxy: first(["HTTPS_PROXY", "https_proxy"]),
            none_for: first(["NO_PROXY", "no_proxy"]).unwrap_or_default(),
        }
    }
}

/// The way to `server`. `proxy` is that of the kubeconfig, or else of the environment: the configuration does not tell
/// which.
///
/// # Errors
/// When the proxy is of another kind than `http` and `socks5`.
pub(crate) fn way(
    proxy: Option<&Uri>,
    server: &Uri,
    environment: &Environment,
    tcp: HttpConnector,
) -> Result<Way, UnknownProxy> {
    let Some(proxy) = proxy else { return Ok(Way::Direct(tcp)) };
    let is_of_environment =
        environment.proxy.as_ref().is_some_and(|text| text.parse::<Uri>().is_ok_and(|uri| uri == *proxy));
    let none_for = if is_of_environment { environment.none_for.as_str() } else { "" };
    let matcher = |none_for: &str| Matcher::builder().all(proxy.to_string()).no(none_for).build();
    let Some(found) = matcher("").intercept(server) else { return Err(unknown(proxy)) };
    if matcher(none_for).intercept(server).is_none() {
        return Ok(Way::Direct(tcp));
    }
    match found.uri().scheme_str() {
        Some("http") => Ok(Way::Http(tunnel(&found, tcp))),
        Some("socks5" | "socks5h") => Ok(Way::Socks(socks(&found, tcp))),
        _ => Err(unknown(proxy)),
    }
}

fn tunnel(proxy: &Intercept, tcp: HttpConnector) -> Tunnel<HttpConnector> {
    let tunnel = Tunnel::new(proxy.uri().clone(), tcp);
    match proxy.basic_auth() {
        Some(auth) => tunnel.with_auth(auth.clone()),
        None => tunnel,
    }
}

fn socks(proxy: &Intercept, tcp: HttpConnector) -> SocksV5<HttpConnector> {
    let socks = SocksV5::new(proxy.uri().clone(), tcp);
    match proxy.raw_auth() {
        Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
        None => socks,
    }
}

fn unknown(proxy: &Uri) -> UnknownProxy {
    let host = proxy.host().unwrap_or_default();
    UnknownProxy(format!("{}://{host}", proxy.scheme_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a word, with the proxy's address.
    fn chosen(proxy: &str, server: &str, environment: &Environment) -> String {
        let proxy = proxy.parse().ok();
        match way(proxy.as_ref(), &server.parse().unwrap(), environment, HttpConnector::new()) {
            Ok(Way::Direct(_)) => "direct".to_owned(),
            Ok(Way::Http(_)) => "http".to_owned(),
            Ok(Way::Socks(_)) => "socks".to_owned(),
            Err(UnknownProxy(address)) => address,
        }
    }

    #[test]
    fn the_kind_of_the_proxy_is_that_of_its_address() {
        let none = Environment::default();
        let chosen = |proxy: &str| chosen(proxy, "https://10.0.0.1:6443", &none);
        assert_eq!(chosen(""), "direct");
        assert_eq!(chosen("http://proxy.example:3128"), "http");
        assert_eq!(chosen("http://user:pass@proxy.example:3128"), "http");
        assert_eq!(chosen("socks5://proxy.example:1080"), "socks");
        for other in ["https", "socks4", "ftp"] {
            assert_eq!(
                chosen(&format!("{other}://user:secret@proxy.example:1")),
                format!("{other}://proxy.example")
            );
        }
    }

    #[test]
    fn no_proxy_holds_for_that_of_the_environment_alone() {
        let proxy = "http://proxy.example:3128";
        let environment =
            |none_for: &str| Environment { proxy: Some(proxy.to_owned()), none_for: none_for.to_owned() };
        let server = "https://api.cluster.example:6443";
        assert_eq!(chosen(proxy, server, &environment("")), "http");
        assert_eq!(chosen(proxy, server, &environment("other.example")), "http");
        for none_for in ["*", "cluster.example", "a, .cluster.example"] {
            assert_eq!(chosen(proxy, server, &environment(none_for)), "direct", "{none_for}");
        }
        assert_eq!(chosen(proxy, "https://10.1.2.3:6443", &environment("10.0.0.0/8")), "direct");
        let of_kubeconfig = "socks5://other.example:1080";
        assert_eq!(chosen(of_kubeconfig, server, &environment("*")), "socks");
    }
}
