//! Requests as a browser and as strangers send them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::*;
use crate::answer::{Answer, Asked, Drain, Followed};
use crate::model::Model;
use crate::seen::{Kind, Line, Quota};
use crate::table::Change;

struct Fake {
    answers: watch::Sender<Option<Arc<Answer>>>,
    /// How often a node was looked at.
    looks: AtomicUsize,
}

impl Cluster for Fake {
    fn now(&self) -> i64 {
        1_800_000_000
    }
    fn follow(&self, _: Asked) -> Followed {
        self.answers.subscribe()
    }
    fn drain(&self, node: String) -> BoxFuture<'static, Result<Drain, String>> {
        let look = 1 + self.looks.fetch_add(1, Ordering::SeqCst);
        async move { Err(format!("no node {node}, look {look}")) }.boxed()
    }
}

fn quota(used: &str) -> Quota {
    let amount = |text: &str| sluice_engine::Quantity::parse(text).ok();
    let line = Line { key: "pods".to_owned(), used: amount(used), limit: amount("10") };
    Quota { lines: vec![line], ..Quota::default() }
}

/// A server that does not listen, its model, and how often a browser has come in.
fn served() -> (Arc<Served>, Shared, Arc<AtomicUsize>) {
    let model = Shared::new(Model::default());
    let name = || ("team".to_owned(), "compute".to_owned());
    model.change(|model| model.on_quota(Kind::Namespaced, Change::Is(name(), quota("3")), 0));
    let entered = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&entered);
    let served = Served {
        guard: Guard::new("127.0.0.1:4000".to_owned(), 4000).unwrap(),
        model: model.clone(),
        cluster: Arc::new(Fake { answers: watch::Sender::new(None), looks: AtomicUsize::new(0) }),
        on_entered: Box::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        }),
    };
    (Arc::new(served), model, entered)
}

/// `path`: below the root.
async fn send(served: &Arc<Served>, method: Method, path: &str, cookie: Option<&str>) -> Response<Body> {
    let path = format!("{}{path}", served.guard.root());
    let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:4000");
    if let Some(cookie) = cookie {
        request = request.header("cookie", cookie);
    }
    router(Arc::clone(served)).oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

/// The cookie of a browser that has come in.
async fn enter(served: &Arc<Served>) -> String {
    let entrance = served.guard.entrance();
    let root = format!("http://127.0.0.1:4000{}", served.guard.root());
    let answer = send(served, Method::GET, entrance.strip_prefix(&root).unwrap(), None).await;
    assert_eq!(answer.status(), 303);
    assert_eq!(answer.headers()["location"], format!("{}/", served.guard.root()));
    answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_browser_that_came_in_is_answered_and_each_answer_is_armed() {
    let (served, _, entered) = served();
    let cookie = enter(&served).await;
    assert_eq!(entered.load(Ordering::SeqCst), 1);
    for (path, code) in [
        ("/", 200),
        ("/q/team/compute", 200),
        ("/q/team/none", 200),
        ("/migrations", 200),
        ("/drain?node=n", 200),
        ("/why/pod/team/train", 200),
        ("/why?kind=pod&namespace=team&name=train", 303),
        ("/style.css", 200),
        ("/page.js", 200),
        ("/icon.svg", 200),
        ("/../etc/passwd", 404),
        ("/changes", 404),
        ("/favicon.ico", 404),
        ("/changesq/team/compute", 404),
    ] {
        let answer = send(&served, Method::GET, path, Some(&cookie)).await;
        assert_eq!(answer.status(), code, "{path}");
        for (name, value) in headers() {
            assert_eq!(answer.headers()[&name], value, "{path}");
        }
        assert!(answer.headers().get("access-control-allow-origin").is_none());
    }
    let posted = send(&served, Method::POST, "/", Some(&cookie)).await;
    assert_eq!(
        (posted.status().as_u16(), &posted.headers()["allow"]),
        (405, &HeaderValue::from_static("GET"))
    );
}

#[tokio::test]
async fn a_stranger_is_told_nothing_of_the_cluster() {
    let (served, ..) = served();
    for path in ["/", "/q/team/compute", "/changes/", "/style.css", "/nothing"] {
        let answer = send(&served, Method::GET, path, Some("sluice-4000=guess")).await;
        assert_eq!(answer.status(), 401, "{path}");
        assert!(answer.headers().get("set-cookie").is_none());
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains("compute") && !text.contains(&served.guard.root()[1..]), "{path}: {text}");
    }
}

/// The next sections that come, by id.
async fn next(body: &mut Body) -> Vec<(String, String)> {
    loop {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        let Some(data) = text.strip_prefix("data: ") else { continue };
        let sections: Vec<serde_json::Value> = serde_json::from_str(data.trim_end()).unwrap();
        let text = |section: &serde_json::Value, key: &str| section[key].as_str().unwrap().to_owned();
        return sections.iter().map(|section| (text(section, "id"), text(section, "html"))).collect();
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_open_gets_all_of_it_and_then_what_changes() {
    let (served, model, _) = served();
    let cookie = enter(&served).await;
    let answer = send(&served, Method::GET, "/changes/?filter=comp", Some(&cookie)).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut body = answer.into_body();
    let ids = |sections: &[(String, String)]| sections.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&next(&mut body).await), ["clock", "banner", "summary", "quotas"]);
    let name = || ("team".to_owned(), "compute".to_owned());
    model.change(|model| model.on_quota(Kind::Namespaced, Change::Is(name(), quota("4")), 0));
    let changed = next(&mut body).await;
    assert_eq!(ids(&changed), ["quotas"]);
    assert!(changed[0].1.contains("4 of 10, 40%"), "{changed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_is_looked_at_again_while_its_page_is_open() {
    let (served, ..) = served();
    let cookie = enter(&served).await;
    let mut body = send(&served, Method::GET, "/changes/drain?node=n", Some(&cookie)).await.into_body();
    let first = next(&mut body).await;
    assert!(first.iter().any(|(id, html)| id == "drain" && html.contains("no node n, look 1")), "{first:?}");
    let begun = tokio::time::Instant::now();
    let second = next(&mut body).await;
    assert_eq!(second.len(), 1);
    assert!(second[0].1.contains("no node n, look 2"), "{second:?}");
    assert!(begun.elapsed() >= std::time::Duration::from_secs(9), "{:?}", begun.elapsed());
}
