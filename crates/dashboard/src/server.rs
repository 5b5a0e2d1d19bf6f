//! The HTTP server: on loopback, for GET alone.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};
use tokio::net::TcpListener;

use crate::answer::Cluster;
use crate::guard::{Guard, NoRandomness, Verdict, headers};
use crate::model::Shared;
use crate::page::{CHANGES, Page, Place};
use crate::pages::{Address, View, document, refusal};
use crate::stream;

const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/page.js");
const ICON: &str = include_str!("../assets/icon.svg");
/// What is told the new address when the last one was used.
type OnEntered = Box<dyn Fn(&str) + Send + Sync>;

struct Served {
    guard: Guard,
    model: Shared,
    cluster: Arc<dyn Cluster>,
    on_entered: OnEntered,
}

/// A server that listens and does not answer yet.
pub struct Bound {
    listener: TcpListener,
    served: Arc<Served>,
}

/// Listens on loopback; port 0 is any that is free. `on_entered` is told the next address, for another browser, whenever one
/// has come in.
///
/// # Errors
/// When the port is taken.
pub async fn bind(
    port: u16,
    model: Shared,
    cluster: Arc<dyn Cluster>,
    on_entered: impl Fn(&str) + Send + Sync + 'static,
) -> io::Result<Bound> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address: SocketAddr = listener.local_addr()?;
    let guard = Guard::new(address.to_string(), address.port())
        .map_err(|NoRandomness| io::Error::other("the system has no randomness for a token"))?;
    let served = Served { guard, model, cluster, on_entered: Box::new(on_entered) };
    Ok(Bound { listener, served: Arc::new(served) })
}

impl Bound {
    /// The address that lets one browser in.
    #[must_use]
    pub fn entrance(&self) -> String {
        self.served.guard.entrance()
    }

    /// Answers until it is dropped.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self) -> io::Result<()> {
        axum::serve(self.listener, router(self.served)).await
    }
}

fn router(served: Arc<Served>) -> Router {
    Router::new().fallback(handle).with_state(served)
}

async fn handle(State(served): State<Arc<Served>>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let mut response = match served.guard.judge(&head) {
        Verdict::Allowed(path) => answer(&served, &path, head.uri.query()).await,
        Verdict::Enters(cookie) => {
            (served.on_entered)(&served.guard.entrance());
            enters(&format!("{}/", served.guard.root()), &cookie)
        }
        Verdict::Refused(code, why) => refused(code, why),
    };
    for (name, value) in headers() {
        response.headers_mut().insert(name, value);
    }
    response
}

fn enters(to: &str, cookie: &str) -> Response {
    let mut response = moved(to);
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn moved(to: &str) -> Response {
    match HeaderValue::from_str(to) {
        Ok(to) => (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response(),
        Err(_) => refused(StatusCode::NOT_FOUND, "there is no such page"),
    }
}

fn refused(code: StatusCode, why: &str) -> Response {
    let mut response = (code, html(refusal(code, why))).into_response();
    if code == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
    }
    response
}

fn html(text: String) -> Response {
    typed("text/html; charset=utf-8", text)
}

fn typed(kind: &'static str, body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, kind)], body.into()).into_response()
}

/// The answer to somebody who has come in. `path`: below the root.
async fn answer(served: &Arc<Served>, path: &str, query: Option<&str>) -> Response {
    match path {
        "/style.css" => return typed("text/css; charset=utf-8", STYLE),
        "/page.js" => return typed("text/javascript; charset=utf-8", SCRIPT),
        "/icon.svg" => return typed("image/svg+xml", ICON),
        _ => {}
    }
    let (of_page, is_stream) = path
        .strip_prefix(CHANGES)
        .filter(|page| page.starts_with('/'))
        .map_or((path, false), |page| (page, true));
    match Page::of(of_page, query.unwrap_or_default()) {
        None => refused(StatusCode::NOT_FOUND, "there is no such page"),
        Some(Place::Moved(to)) => moved(&format!("{}/{to}", served.guard.root())),
        Some(Place::Page(page)) if is_stream => {
            let changes = stream::changes(served.model.clone(), Arc::clone(&served.cluster), page);
            Sse::new(changes).keep_alive(KeepAlive::default()).into_response()
        }
        Some(Place::Page(page)) => {
            let drain = match &page {
                Page::Drain { node: Some(node) } => Some(served.cluster.drain(node.clone()).await),
                _ => None,
            };
            let own = format!(
                "{}{}",
                path.trim_start_matches('/'),
                query.map(|query| format!("?{query}")).unwrap_or_default()
            );
            let address = Address { root: served.guard.root(), own: &own };
            let now = served.cluster.now();
            html(served.model.look(|model| {
                document(&page, &View { model, answer: None, drain: drain.as_ref(), now }, address)
            }))
        }
    }
}

#[cfg(test)]
mod tests;
