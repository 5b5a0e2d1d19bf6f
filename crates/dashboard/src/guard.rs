//! Who may read: the browser that has come by the address that was printed, and nobody else.
//!
//! Any program of the machine can connect, and any page in the same browser can send it here. So a request needs the cookie
//! that the printed token was exchanged for, and its `Host` has to be the address that is listened on: a foreign name that
//! resolves to this machine is refused.
//!
//! A browser sends a cookie to every port of a host: another user's server on this machine would be told it by a page that
//! it has led the browser to. So everything is served below a root that nobody can guess, and the cookie is for that root.

use aws_lc_rs::rand;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;

/// Before the token, below the root, in the address that is printed.
const ENTRANCE: &str = "/enter/";
/// What a page may load: its own two files and its changes.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'self'; frame-ancestors 'none'";

/// What somebody is told who has not come in.
const STRANGER: &str = "open the address that `sluice dashboard` has printed";

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
    /// It is answered; its path below the root.
    Allowed(String),
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
    /// `/` and what nobody can guess.
    root: String,
    secret: String,
    token: Mutex<String>,
}

impl Guard {
    /// For what listens at `host`, an address with its port.
    pub fn new(host: String, port: u16) -> Result<Self, NoRandomness> {
        // Cookies know no ports: each dashboard of the machine has its own.
        let cookie = format!("sluice-{port}");
        let root = format!("/{}", random()?);
        Ok(Self { host, cookie, root, secret: random()?, token: Mutex::new(random()?) })
    }

    /// Below it everything is served: `/` and what nobody can guess, told only to those who are let in.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The address by which a browser enters, once.
    pub fn entrance(&self) -> String {
        format!("http://{}{}{ENTRANCE}{}", self.host, self.root, self.token.lock())
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
        let path = head.uri.path().split_at_checked(self.root.len());
        let Some((_, path)) = path.filter(|(root, path)| is_same(root, &self.root) && path.starts_with('/'))
        else {
            return refused(StatusCode::UNAUTHORIZED, STRANGER);
        };
        if let Some(token) = path.strip_prefix(ENTRANCE) {
            return self.enter(token);
        }
        let cookies = head.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        if pairs.any(|(name, value)| name == self.cookie && is_same(value, &self.secret)) {
            return Verdict::Allowed(path.to_owned());
        }
        refused(StatusCode::UNAUTHORIZED, STRANGER)
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
        Verdict::Enters(format!(
            "{}={}; HttpOnly; SameSite=Strict; Path={}/",
            self.cookie, self.secret, self.root
        ))
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
            Verdict::Allowed(_) => 200,
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
        let root = guard.root();
        assert!(
            root.len() == 65 && cookie.ends_with(&format!("; Path={root}/")),
            "for this root alone: {cookie}"
        );
        assert_eq!(code(&guard, Method::GET, path, &[HOST]), 401, "a token is for once");
        assert_ne!(guard.entrance(), entrance);
        let pair = cookie.split(';').next().unwrap();
        let both = format!("other=1; {pair}");
        let (known, page) = (("cookie", both.as_str()), format!("{root}/q/a/b"));
        let allowed = guard.judge(&head(Method::GET, &page, &[HOST, known]));
        assert_eq!(allowed, Verdict::Allowed("/q/a/b".to_owned()));
        for method in [Method::POST, Method::HEAD, Method::OPTIONS, Method::DELETE] {
            assert_eq!(code(&guard, method, &page, &[HOST, known]), 405);
        }
        for outside in ["/", "/q/a/b", "/0000/", root, &format!("{root}x/"), &format!("{root}0/q/a/b")] {
            assert_eq!(code(&guard, Method::GET, outside, &[HOST, known]), 401, "{outside}");
        }
    }

    #[test]
    fn strangers_are_refused() {
        let guard = Guard::new("127.0.0.1:4000".to_owned(), 4000).unwrap();
        let secret = format!("sluice-4000={}", guard.secret);
        let cookie = ("cookie", secret.as_str());
        let root = guard.root().to_owned();
        let (page, style) = (format!("{root}/"), format!("{root}/style.css"));
        for host in ["evil.example", "evil.example:4000", "localhost:4000", "127.0.0.1", "127.0.0.1:4001"] {
            assert_eq!(code(&guard, Method::GET, &page, &[("host", host), cookie]), 421, "{host}");
        }
        assert_eq!(code(&guard, Method::GET, &page, &[cookie]), 421, "no host");
        assert_eq!(
            code(&guard, Method::GET, &page, &[HOST, ("host", "evil.example"), cookie]),
            421,
            "two hosts"
        );
        let of_other = format!("sluice-4001={}", guard.secret);
        for wrong in ["", "sluice-4000=", "sluice-4000=0", of_other.as_str()] {
            assert_eq!(code(&guard, Method::GET, &page, &[HOST, ("cookie", wrong)]), 401, "{wrong}");
        }
        assert_eq!(code(&guard, Method::GET, &format!("{root}/enter/"), &[HOST, cookie]), 401);
        assert_eq!(code(&guard, Method::GET, &style, &[HOST]), 401);
    }
}
