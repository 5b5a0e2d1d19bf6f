use super::*;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;

/// Answers requests from a script and records what was asked. After the script, watches stay open in silence.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn then(self, code: u16, body: impl ToString) -> Self {
        self.answers.lock().push_back((code, body.to_string()));
        self
    }

    fn client(&self) -> Client {
        let script = self.clone();
        Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let script = script.clone();
                async move {
                    script.asked.lock().push(request.uri().to_string());
                    let next = script.answers.lock().pop_front();
                    let Some((code, body)) = next else { return std::future::pending().await };
                    Ok::<_, std::convert::Infallible>(
                        Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap(),
                    )
                }
            }),
            "default",
        )
    }
}

fn object(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a", "resourceVersion": version},
    })
}

fn page(names: &[&str], version: &str, more: Option<&str>) -> Value {
    let items: Vec<_> = names.iter().map(|name| object(name, "1")).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": items,
           "metadata": {"resourceVersion": version, "continue": more.unwrap_or_default()}})
}

fn event(kind: &str, object: Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn gone() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "too old", "reason": "Expired", "code": 410,
    })
}

fn label(event: &Event<ConfigMap>) -> String {
    let name = |object: &ConfigMap| object.metadata.name.clone().unwrap();
    match event {
        Event::Init => "begin".into(),
        Event::InitApply(o) => format!("listed {}", name(o)),
        Event::InitDone => "end".into(),
        Event::Apply(o) => format!("applied {}", name(o)),
        Event::Delete(o) => format!("deleted {}", name(o)),
    }
}

/// Runs a watch over the script until `requests` were made in all, and returns the events, the requests and the health.
async fn play(script: Script, requests: usize) -> (Vec<String>, Vec<String>, WatchHealth) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let health = WatchHealth::new("configmaps");
    let cancel = CancellationToken::new();
    let api: Api<ConfigMap> = Api::all(script.client());
    let sink = seen.clone();
    let task = tokio::spawn(watch(
        api,
        WatchOptions { page_size: 2, ..WatchOptions::default() }.labels("a=b"),
        move |event| sink.lock().push(label(&event)),
        health.clone(),
        cancel.clone(),
    ));
    let reached = async {
        while script.asked.lock().len() < requests {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), reached)
        .await
        .expect("the script was not played to its end");
    cancel.cancel();
    task.await.unwrap().unwrap();
    (seen.lock().clone(), script.asked.lock().clone(), health)
}

#[tokio::test(start_paused = true)]
async fn pages_then_events_in_order() {
    let events = event("ADDED", object("d", "11"))
        + &event("MODIFIED", object("d", "12"))
        + &event("DELETED", object("a", "13"))
        + &event("BOOKMARK", object("", "20"));
    let script = Script::default()
        .then(200, page(&["a", "b"], "9", Some("more")))
        .then(200, page(&["c"], "10", None))
        .then(200, events);
    let (seen, asked, health) = play(script, 4).await;
    assert_eq!(
        seen,
        ["begin", "listed a", "listed b", "listed c", "end", "applied d", "applied d", "deleted a"]
    );
    assert!(asked[0].contains("limit=2") && asked[0].contains("labelSelector=a%3Db"), "{asked:?}");
    assert!(!asked[0].contains("resourceVersion"), "the list must ask for the most recent state: {asked:?}");
    assert!(asked[1].contains("continue=more"), "{asked:?}");
    assert!(asked[2].contains("watch=true") && asked[2].contains("resourceVersion=10"), "{asked:?}");
    assert!(asked[3].contains("resourceVersion=20"), "a bookmark moves the version: {asked:?}");
    assert!(health.is_synced());
    assert_eq!(health.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_leads_to_a_new_list_in_both_forms() {
    let script = Script::default()
        .then(200, page(&["a"], "10", None))
        .then(200, event("ERROR", gone()))
        .then(200, page(&["b"], "20", None))
        .then(410, gone())
        .then(200, page(&["c"], "30", None));
    let (seen, asked, health) = play(script, 6).await;
    assert_eq!(seen, ["begin", "listed a", "end", "begin", "listed b", "end", "begin", "listed c", "end"]);
    assert!(asked[5].contains("resourceVersion=30"), "{asked:?}");
    assert_eq!((health.lists(), health.failures()), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_between_pages_begins_again() {
    let script = Script::default()
        .then(200, page(&["a", "b"], "9", Some("more")))
        .then(410, gone())
        .then(200, page(&["a"], "11", None));
    let (seen, ..) = play(script, 4).await;
    assert_eq!(seen, ["begin", "listed a", "listed b", "begin", "listed a", "end"]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_resumes_without_a_list() {
    let script = Script::default()
        .then(200, page(&[], "10", None))
        .then(200, event("ADDED", object("a", "11")))
        .then(500, json!({"kind": "Status", "status": "Failure", "message": "x", "reason": "InternalError", "code": 500}))
        .then(200, event("ADDED", object("b", "12")));
    let (seen, asked, _) = play(script, 5).await;
    assert_eq!(seen, ["begin", "end", "applied a", "applied b"]);
    assert!(asked[3].contains("resourceVersion=11"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_and_a_missing_right_are_retried_ever_more_slowly() {
    let start = Instant::now();
    let mut script = Script::default();
    for code in [404_u16, 403].into_iter().cycle().take(14) {
        script = script.then(
            code,
            json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "", "code": code}),
        );
    }
    let (seen, _, health) = play(script, 15).await;
    assert!(seen.iter().all(|event| event == "begin"), "{seen:?}");
    assert!(!health.is_synced());
    let missing = health.check().unwrap_err();
    assert!(missing.starts_with("first list not complete: no"), "{missing}");
    assert!(health.interruption().is_some());
    assert!(start.elapsed() > Duration::from_secs(90), "14 failures took only {:?}", start.elapsed());
}

/// A right that is taken away ends no watch, but the next one is refused.
#[tokio::test(start_paused = true)]
async fn what_was_read_and_is_refused_now_is_unread_and_what_time_may_cure_is_not() {
    let cases: [(&[u16], _); 4] =
        [(&[403], Some("no")), (&[503], None), (&[401], None), (&[403, 503], Some("no"))];
    for (codes, unread) in cases {
        let mut script = Script::default().then(200, page(&[], "10", None)).then(200, "");
        for code in codes {
            let status =
                json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "", "code": code});
            script = script.then(*code, status);
        }
        let (_, _, health) = play(script, 3 + codes.len()).await;
        assert!(health.is_synced() && health.interruption().is_some(), "{codes:?}");
        assert_eq!(health.unread().as_deref(), unread, "{codes:?}");
    }
    assert!(WatchHealth::new("configmaps").unread().is_some_and(|why| why.starts_with("first list")));
}

#[tokio::test(start_paused = true)]
async fn watches_that_close_at_once_do_not_spin() {
    let start = Instant::now();
    let mut script = Script::default().then(200, page(&[], "10", None));
    for _ in 0..10 {
        script = script.then(200, "");
    }
    let (seen, ..) = play(script, 12).await;
    assert_eq!(seen, ["begin", "end"]);
    assert!(start.elapsed() > Duration::from_secs(20), "10 closed watches took only {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_given_up() {
    let health = WatchHealth::new("configmaps");
    let open = Arc::new(Mutex::new(0));
    let opened = open.clone();
    let client = Client::new(
        tower::service_fn(move |request: Request<Body>| {
            let watching = request.uri().to_string().contains("watch=true");
            if watching {
                *opened.lock() += 1;
            }
            async move {
                let body = if watching {
                    let silent = futures::stream::pending::<
                        Result<hyper::body::Frame<bytes::Bytes>, std::io::Error>,
                    >();
                    axum::body::Body::new(http_body_util::StreamBody::new(silent))
                } else {
                    axum::body::Body::from(page(&[], "10", None).to_string())
                };
                Ok::<_, std::convert::Infallible>(Response::new(body))
            }
        }),
        "default",
    );
    let cancel = CancellationToken::new();
    let api: Api<ConfigMap> = Api::all(client);
    let task = tokio::spawn(watch(api, WatchOptions::default(), |_| {}, health.clone(), cancel.clone()));
    tokio::time::timeout(Duration::from_secs(182), async {
        while *open.lock() < 2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
    .await
    .expect("the silent watch was never replaced");
    assert_eq!((health.lists(), health.failures()), (2, 1), "it lists again");
    assert_eq!((health.check(), health.alive()), (Ok(()), Ok(())));
    cancel.cancel();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_list_of_an_earlier_store_ends_it() {
    let script = Script::default()
        .then(200, page(&["a"], "10", None))
        .then(200, event("ADDED", object("b", "20")))
        .then(410, gone())
        .then(200, page(&["a"], "15", None));
    let (health, cancel) = (WatchHealth::new("configmaps"), CancellationToken::new());
    let api: Api<ConfigMap> = Api::all(script.client());
    let watching = watch(api, WatchOptions::default(), |_| {}, health, cancel);
    let ended = tokio::time::timeout(Duration::from_secs(60), watching).await.expect("it goes on");
    let error = ended.unwrap_err();
    assert_eq!(error.to_string(), "resource versions went back from 20 to 15: etcd was restored");
}

/// While a list is under way it has come nowhere; one that is asked for begins after that.
#[tokio::test(start_paused = true)]
async fn it_says_how_far_it_is_and_lists_again_when_asked() {
    let mark = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "30"}});
    let script = Script::default()
        .then(200, page(&["a"], "10", None))
        .then(200, event("ADDED", object("b", "20")) + &event("BOOKMARK", mark))
        .then(200, page(&["a", "b"], "40", None));
    let asked = script.asked.clone();
    let (health, cancel) = (WatchHealth::new("configmaps"), CancellationToken::new());
    let versions = Arc::new(Mutex::new(Vec::new()));
    let (seen, at) = (versions.clone(), health.clone());
    let sink = move |_| seen.lock().push(at.version());
    let api: Api<ConfigMap> = Api::all(script.client());
    let task = tokio::spawn(watch(api, WatchOptions::default(), sink, health.clone(), cancel.clone()));
    tokio::time::timeout(Duration::from_secs(5), health.reached(30)).await.expect("the bookmark counts");
    // The begin, the object and the end of the list, and the event: each was handed on before it counts.
    assert_eq!(*versions.lock(), [None, None, None, Some(10)]);
    tokio::time::timeout(Duration::from_secs(5), health.list_again()).await.expect("no list came");
    assert_eq!(health.version(), Some(40));
    assert_eq!(asked.lock().iter().filter(|uri| !uri.contains("watch=true")).count(), 2);
    cancel.cancel();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_malformed_object_does_not_hide_the_others() {
    let mut list = page(&["good", "bad"], "10", None);
    list["items"][1]["data"] = json!(["not", "a", "map"]);
    let script = Script::default().then(200, list);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    let cancel = CancellationToken::new();
    let done = cancel.clone();
    let api: Api<Lenient<ConfigMap>> = Api::all(script.client());
    let task = watch(
        api,
        WatchOptions::default(),
        move |event| match event {
            Event::InitApply(Lenient(object)) => sink.lock().push(object.is_ok()),
            Event::InitDone => done.cancel(),
            _ => {}
        },
        WatchHealth::new("configmaps"),
        cancel,
    );
    tokio::time::timeout(Duration::from_secs(5), task).await.expect("the list did not end").unwrap();
    assert_eq!(*seen.lock(), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_is_absent_counts_as_empty_until_it_is_served() {
    let absent =
        json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "NotFound", "code": 404});
    let bookmark = event("BOOKMARK", object("", "7"));
    // The first watch of definitions ends, as they do: the kind may have come without one.
    let script = Script::default()
        .then(404, absent.clone())
        .then(200, bookmark)
        .then(404, absent)
        .then(200, event("ADDED", object("configmaps.", "9")))
        .then(200, page(&["a"], "10", None));
    let asked = script.asked.clone();
    let health = WatchHealth::new("configmaps");
    assert_eq!(health.is_served(), None);
    let cancel = CancellationToken::new();
    let done = cancel.clone();
    let api: Api<ConfigMap> = Api::all(script.client());
    let options = WatchOptions { absent_is_empty: true, ..WatchOptions::default() };
    let (seen, now) = (Arc::new(Mutex::new(Vec::new())), health.clone());
    let ends = Arc::clone(&seen);
    let sink = move |event| {
        if matches!(event, Event::InitDone) {
            ends.lock().push(now.is_served());
            if now.is_served() == Some(true) {
                done.cancel();
            }
        }
    };
    let task = watch(api, options, sink, health.clone(), cancel);
    tokio::time::timeout(Duration::from_secs(5), task).await.expect("the list did not come").unwrap();
    assert!(health.is_synced());
    assert_eq!(*seen.lock(), [Some(false), Some(false), Some(true)]);
    let paths: Vec<_> = asked.lock().iter().map(|uri| uri.split('?').next().unwrap().to_owned()).collect();
    let (list, definition) =
        ("/api/v1/configmaps", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    assert_eq!(paths[..5], [list, definition, list, definition, list]);
    // The watch may have begun before the end was noticed.
    assert!(paths[5..].is_empty() || paths[5..] == [list], "{paths:?}");
    assert!(asked.lock()[1].contains("fieldSelector=metadata.name%3Dconfigmaps."), "{:?}", asked.lock());
}

/// The kind of type that hot watches use: of the object only what is needed.
#[derive(Debug, Clone, serde::Deserialize, kube::Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
struct Tiny {
    metadata: kube::api::ObjectMeta,
}

#[tokio::test(start_paused = true)]
async fn a_narrow_type_is_watched_like_its_kind() {
    let script = Script::default().then(200, page(&["a"], "10", None));
    let (cancel, asked) = (CancellationToken::new(), script.asked.clone());
    let done = cancel.clone();
    let mut names = Vec::new();
    let sink = |event: Event<Tiny>| match event {
        Event::InitApply(tiny) => names.push(tiny.metadata.name),
        Event::InitDone => done.cancel(),
        _ => {}
    };
    let task =
        watch(Api::all(script.client()), WatchOptions::default(), sink, WatchHealth::new("pods"), cancel);
    tokio::time::timeout(Duration::from_secs(5), task).await.expect("the list did not end").unwrap();
    assert_eq!(names, [Some("a".to_owned())]);
    assert!(asked.lock()[0].starts_with("/api/v1/pods?"), "{:?}", asked.lock());
}
