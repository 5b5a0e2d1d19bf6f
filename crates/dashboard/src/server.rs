//! The HTTP server: on loopback, for GET alone.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use tokio::net::TcpListener;

use crate::answer::Cluster;
use crate::guard::{Guard, NoRandomness, Verdict, headers};
use crate::model::Shared;
use crate::page::{Page, Place};
use crate::pages::{View, document, refusal};
use crate::stream;

const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/page.js");
const ICON: &str = include_str!("../assets/icon.svg");
/// Before the path of a page: its changes.
const CHANGES: &str = "/changes";

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
        Verdict::Allowed => answer(&served, &head).await,
        Verdict::Enters(cookie) => {
            (served.on_entered)(&served.guard.entrance());
            enters(&cookie)
        }
        Verdict::Refused(code, why) => refused(code, why),
    };
    for (name, value) in headers() {
        response.headers_mut().insert(name, value);
    }
    response
}

fn enters(cookie: &str) -> Response {
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response();
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
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

async fn answer(served: &Arc<Served>, head: &Parts) -> Response {
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
    match path {
        "/style.css" => return typed("text/css; charset=utf-8", STYLE),
        "/page.js" => return typed("text/javascript; charset=utf-8", SCRIPT),
        "/icon.svg" => return typed("image/svg+xml", ICON),
        _ => {}
    }
    let (of_page, is_stream) = path.strip_prefix(CHANGES).map_or((path, false), |page| (page, true));
    match Page::of(of_page, query) {
        None => refused(StatusCode::NOT_FOUND, "there is no such page"),
        Some(Place::Moved(to)) => match HeaderValue::from_str(&to) {
            Ok(to) => (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response(),
            Err(_) => refused(StatusCode::NOT_FOUND, "there is no such page"),
        },
        Some(Place::Page(page)) if is_stream => {
            let changes = stream::changes(served.model.clone(), Arc::clone(&served.cluster), page);
            Sse::new(changes).keep_alive(KeepAlive::default()).into_response()
        }
        Some(Place::Page(page)) => {
            let drain = match &page {
                Page::Drain { node: Some(node) } => Some(served.cluster.drain(node.clone()).await),
                _ => None,
            };
            let stream = match head.uri.query() {
                Some(query) => format!("{CHANGES}{path}?{query}"),
                None => format!("{CHANGES}{path}"),
            };
            let now = served.cluster.now();
            html(served.model.look(|model| {
                document(&page, &View { model, answer: None, drain: drain.as_ref(), now }, &stream)
            }))
        }
    }
}

#[cfg(test)]
mod tests;
