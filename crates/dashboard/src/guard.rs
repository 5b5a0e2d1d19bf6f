//! Who may read: the browser that has come by the address that was printed, and nobody else.
//!
//! Any program of the machine can connect, and any page in the same browser can send it here. So a request needs the cookie
//! that the printed token was exchanged for, and its `Host` has to be the address that is listened on: a foreign name that
//! resolves to this machine is refused.

use aws_lc_rs::rand;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;

/// Before the token in the address that is printed.
const ENTRANCE: &str = "/enter/";
/// What a page may load: its own two files and its changes.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What every answer says to the browser.
pub(crate) fn headers() -> [(HeaderName, HeaderValue); 8] {
    let own = HeaderName::from_static;
    [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (own("cross-origin-resource-policy"), "same-origin"),
        (own("cross-origin-opener-policy"), "same-origin"),
        (own("x-dns-prefetch-control"), "off"),
    ]
    .map(|(name, value)| (name, HeaderValue::from_static(value)))
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is answered.
    Allowed,
    /// The token was right: the answer sets this cookie. The token is of no use any more.
    Enters(String),
    /// It is refused, and why.
    Refused(StatusCode, &'static str),
}

/// Why a token cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRandomness;

/// What is expected of requests.
pub(crate) struct Guard {
    host: String,
    cookie: String,
    secret: String,
    token: Mutex<String>,
}

impl Guard {
    /// For what listens at `host`, an address with its port.
    pub fn new(host: String, port: u16) -> Result<Self, NoRandomness> {
        // Cookies know no ports: each dashboard of the machine has its own.
        let cookie = format!("sluice-{port}");
        Ok(Self { host, cookie, secret: random()?, token: Mutex::new(random()?) })
    }

    /// The address by which a browser enters, once.
    pub fn entrance(&self) -> String {
        format!("http://{}{ENTRANCE}{}", self.host, self.token.lock())
    }

    /// Judges a request by its head.
    pub fn judge(&self, head: &Parts) -> Verdict {
        let refused = Verdict::Refused;
        let mut hosts = head.headers.get_all(header::HOST).iter();
        let host = hosts.next().filter(|_| hosts.next().is_none());
        if host.and_then(|host| host.to_str().ok()) != Some(self.host.as_str()) {
            return refused(StatusCode::MISDIRECTED_REQUEST, "this host is not served here");
        }
        if head.method != Method::GET {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "only GET: nothing can be changed here");
        }
        if let Some(token) = head.uri.path().strip_prefix(ENTRANCE) {
            return self.enter(token);
        }
        let cookies = head.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        if pairs.any(|(name, value)| name == self.cookie && is_same(value, &self.secret)) {
            return Verdict::Allowed;
        }
        refused(StatusCode::UNAUTHORIZED, "open the address that `sluice dashboard` has printed")
    }

    fn enter(&self, token: &str) -> Verdict {
        let mut expected = self.token.lock();
        if !is_same(token, &expected) {
            return Verdict::Refused(
                StatusCode::UNAUTHORIZED,
                "this address was used or is wrong: `sluice dashboard` has printed a new one",
            );
        }
        let Ok(next) = random() else {
            return Verdict::Refused(StatusCode::SERVICE_UNAVAILABLE, "no randomness for the next token");
        };
        *expected = next;
        Verdict::Enters(format!("{}={}; HttpOnly; SameSite=Strict; Path=/", self.cookie, self.secret))
    }
}

fn is_same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// 256 bits as hexadecimal digits.
fn random() -> Result<String, NoRandomness> {
    let mut bytes = [0_u8; 32];
    rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: Method, path: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:4000");

    fn code(guard: &Guard, method: Method, path: &str, headers: &[(&str, &str)]) -> u16 {
        match guard.judge(&head(method, path, headers)) {
            Verdict::Allowed => 200,
            Verdict::Enters(_) => 303,
            Verdict::Refused(code, _) => code.as_u16(),
        }
    }

    #[test]
    fn a_token_opens_once_and_its_cookie_as_long_as_the_process_lives() {
        let guard = Guard::new("127.0.0.1:4000".to_owned(), 4000).unwrap();
        let entrance = guard.entrance();
        let path = entrance.strip_prefix("http://127.0.0.1:4000").unwrap();
        let Verdict::Enters(cookie) = guard.judge(&head(Method::GET, path, &[HOST])) else { panic!() };
        assert!(
            cookie.starts_with("sluice-4000=") && cookie.contains("; HttpOnly; SameSite=Strict; "),
            "{cookie}"
        );
        assert_eq!(code(&guard, Method::GET, path, &[HOST]), 401, "a token is for once");
        assert_ne!(guard.entrance(), entrance);
        let pair = cookie.split(';').next().unwrap();
        let both = format!("other=1; {pair}");
        assert_eq!(code(&guard, Method::GET, "/", &[HOST, ("cookie", &both)]), 200);
        for method in [Method::POST, Method::HEAD, Method::OPTIONS, Method::DELETE] {
            assert_eq!(code(&guard, method, "/", &[HOST, ("cookie", &both)]), 405);
        }
    }

    #[test]
    fn strangers_are_refused() {
        let guard = Guard::new("127.0.0.1:4000".to_owned(), 4000).unwrap();
        let secret = format!("sluice-4000={}", guard.secret);
        let cookie = ("cookie", secret.as_str());
        for host in ["evil.example", "evil.example:4000", "localhost:4000", "127.0.0.1", "127.0.0.1:4001"] {
            assert_eq!(code(&guard, Method::GET, "/", &[("host", host), cookie]), 421, "{host}");
        }
        assert_eq!(code(&guard, Method::GET, "/", &[cookie]), 421, "no host");
        assert_eq!(
            code(&guard, Method::GET, "/", &[HOST, ("host", "evil.example"), cookie]),
            421,
            "two hosts"
        );
        let of_other = format!("sluice-4001={}", guard.secret);
        for wrong in ["", "sluice-4000=", "sluice-4000=0", of_other.as_str()] {
            assert_eq!(code(&guard, Method::GET, "/", &[HOST, ("cookie", wrong)]), 401, "{wrong}");
        }
        assert_eq!(code(&guard, Method::GET, "/enter/", &[HOST, cookie]), 401);
        assert_eq!(code(&guard, Method::GET, "/style.css", &[HOST]), 401);
    }
}
