//! What becomes of a bundle when the API server, a node or a process answers in any way.

use std::convert::Infallible;
use std::io::Read as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser as _;
use flate2::read::GzDecoder;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// HTTP status and body; without one there is never an answer.
type Answer = Option<(u16, String)>;

/// An API server that answers by a plain function of path and query.
struct Server {
    asked: Arc<Mutex<Vec<String>>>,
    connection: Connection,
}

impl Server {
    fn new(answer: impl Fn(&str) -> Answer + Clone + Send + 'static) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let answer = answer(&uri);
            seen.lock().unwrap().push(uri);
            async move {
                let Some((code, body)) = answer else { return std::future::pending().await };
                let response = Response::builder().status(code).body(Body::from(body.into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        let connection = Connection::of_test(Client::new(service, "default"), Duration::from_secs(30));
        Self { asked, connection }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Takes a bundle as the command line says; its files, and its index.
    async fn bundle(&self, arguments: &[&str]) -> anyhow::Result<(Vec<(String, String)>, Index)> {
        let arguments = ["sluice", "bundle"].into_iter().chain(arguments.iter().copied());
        let crate::Command::Bundle(args) = crate::Cli::try_parse_from(arguments)?.command else {
            unreachable!()
        };
        let reader = Reader::new(&self.connection);
        let bundle = while_saying(&reader, collect(&reader, &args, "b", Timestamp::UNIX_EPOCH)).await?;
        let mut written = Vec::new();
        bundle.archive.write(&[], &mut written)?;
        let mut archive = tar::Archive::new(GzDecoder::new(written.as_slice()));
        let files = archive.entries()?.map(|entry| {
            let (mut entry, mut text) = (entry.unwrap(), String::new());
            entry.read_to_string(&mut text).unwrap();
            (entry.path().unwrap().display().to_string().replacen("b/", "", 1), text)
        });
        Ok((files.collect(), bundle.index))
    }
}

fn ok(value: Value) -> Answer {
    Some((200, value.to_string()))
}

fn status(code: u16, reason: &str, message: &str, metadata: Value) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure", "message": message,
        "reason": reason, "code": code,
    });
    Some((code, status.to_string()))
}

fn not_found() -> Answer {
    status(404, "NotFound", "not found", json!({}))
}

/// A server with nothing but its version.
fn empty(uri: &str) -> Answer {
    if uri.starts_with("/version") {
        return ok(json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "", "buildDate": "",
            "goVersion": "", "compiler": "", "platform": "",
        }));
    }
    if uri.contains("limit=") { ok(json!({ "metadata": {}, "items": [] })) } else { not_found() }
}

fn held(name: usize) -> Value {
    json!({
        "metadata": { "name": format!("pod-{name:05}"), "namespace": "team" },
        "spec": { "schedulingGates": [{ "name": names::GATE }], "containers": [{ "name": "main", "env": ["secret"] }] },
    })
}

fn is_held_pods(uri: &str) -> bool {
    uri.starts_with("/api/v1/pods?") && uri.contains("fieldSelector")
}

fn file<'f>(files: &'f [(String, String)], path: &str) -> Option<&'f str> {
    files.iter().find(|(known, _)| known == path).map(|(_, text)| text.as_str())
}

fn what_is_missing(index: &Index) -> Vec<&str> {
    index.gaps.iter().flat_map(|gap| &gap.what).map(String::as_str).collect()
}

fn why_left_out<'i>(index: &'i Index, what: &str) -> &'i str {
    let reason = index.left_out.iter().find(|(_, all)| all.contains(what));
    reason.unwrap_or_else(|| panic!("{what}: {:?}", index.left_out)).0
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_written_page_by_page_into_files_of_a_megabyte() {
    let pages = 20;
    let server = Server::new(move |uri: &str| {
        if !is_held_pods(uri) {
            return empty(uri);
        }
        let page = uri
            .split("continue=")
            .nth(1)
            .map_or(0, |token| token.split('&').next().unwrap().parse().unwrap());
        let next = if page + 1 < pages { json!((page + 1).to_string()) } else { json!("") };
        let items: Vec<Value> = (page * 500..(page + 1) * 500).map(held).collect();
        ok(json!({ "metadata": { "continue": next }, "items": items }))
    });
    let (files, index) = server.bundle(&[]).await.unwrap();
    assert!(index.is_whole(), "{:?}", index.gaps);
    let pods: Vec<_> = files.iter().filter(|(path, _)| path.starts_with("tenants/held-pods")).collect();
    assert_eq!(pods.first().unwrap().0, "tenants/held-pods.yaml");
    assert!(pods.len() > 1 && pods.iter().all(|(_, text)| text.len() < 2 << 20), "{}", pods.len());
    let count = |text: &str| text.matches("name: pod-").count();
    assert_eq!(pods.iter().map(|(_, text)| count(text)).sum::<usize>(), pages * 500);
    assert!(pods.iter().all(|(_, text)| !text.contains("secret")));
    assert_eq!(index.objects(), pages * 500);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_goes_on_where_it_can_and_says_so_where_not() {
    for (token, expected) in [(json!("fresh"), 2), (json!(""), 1)] {
        let server = Server::new(move |uri: &str| match uri {
            uri if !is_held_pods(uri) => empty(uri),
            uri if uri.contains("continue=old") => {
                status(410, "Expired", "too old", json!({ "continue": token }))
            }
            uri if uri.contains("continue=fresh") => ok(json!({ "metadata": {}, "items": [held(2)] })),
            _ => ok(json!({ "metadata": { "continue": "old" }, "items": [held(1)] })),
        });
        let (files, index) = server.bundle(&[]).await.unwrap();
        assert_eq!(file(&files, "tenants/held-pods.yaml").unwrap().matches("name: pod-").count(), expected);
        assert_eq!(index.is_whole(), expected == 2);
        match expected {
            2 => {
                assert!(why_left_out(&index, "pods that wait behind the gate").contains("not of one moment"));
            }
            _ => assert_eq!(what_is_missing(&index), ["pods that wait behind the gate after the first 1"]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_stops_to_answer_is_not_asked_for_ever() {
    let server = Server::new(|uri: &str| if uri.starts_with("/version") { empty(uri) } else { None });
    let begin = tokio::time::Instant::now();
    let (files, index) = server.bundle(&["-A"]).await.unwrap();
    assert!(!index.is_whole());
    // One round of concurrent requests, and the question for the version.
    assert!(server.asked().len() <= crate::requests::CONCURRENT + 1, "{}", server.asked().len());
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    assert!(file(&files, "versions.yaml").is_some());
}

#[tokio::test(start_paused = true)]
async fn without_a_version_there_is_no_bundle() {
    let error = Server::new(|_: &str| None).bundle(&[]).await.unwrap_err().to_string();
    assert!(error.contains("could not read the version of the API server"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_see_all_namespaces_gets_one() {
    let everywhere = |uri: &str| match uri {
        uri if uri.starts_with("/version") || uri.contains("/namespaces/default/") => empty(uri),
        uri => status(403, "Forbidden", &format!("{uri} is forbidden: User \"t\" cannot get it"), json!({})),
    };
    let server = Server::new(everywhere);
    let (_, index) = server.bundle(&[]).await.unwrap();
    assert_eq!(index.namespace.as_deref(), Some("default"));
    assert!(server.asked().iter().any(|uri| uri.starts_with("/api/v1/namespaces/default/pods?")));
    assert!(!what_is_missing(&index).contains(&"pods that wait behind the gate"));
    let (_, index) = Server::new(everywhere).bundle(&["-A"]).await.unwrap();
    assert_eq!(index.namespace, None);
    assert!(what_is_missing(&index).contains(&"pods that wait behind the gate"));
    let wants = |verb: &str, resource: &str| {
        index.missing_rights().iter().any(|right| right.verb == verb && right.resource == resource)
    };
    assert!(wants("list", "pods") && wants("get", "deployments") && wants("get", "clusterroles"));
    assert!(!wants("get", "secrets"));
}

const UNREACHED: &str = "error trying to reach service: dial tcp 10.0.0.1:8081: connect: connection refused";

/// The answer to requests about the one pod of Sluice, which another answers by its path.
fn with_pod(answer: fn(&str) -> Answer) -> Server {
    Server::new(move |uri: &str| {
        let pods = "/api/v1/namespaces/sluice-system/pods";
        let Some(rest) = uri.strip_prefix(pods) else { return empty(uri) };
        if rest.starts_with("?") {
            let containers = json!([{ "name": "injected" }, { "name": names::WEBHOOK }]);
            let pod = json!({ "metadata": { "name": "w" }, "spec": { "containers": containers } });
            return ok(json!({ "metadata": {}, "items": [pod] }));
        }
        answer(rest)
    })
}

#[tokio::test(start_paused = true)]
async fn processes_say_what_they_can() {
    let server = with_pod(|rest| match rest {
        "/http:w:8081/proxy/readyz" => Some((503, "waiting for the certificate\n".to_owned())),
        "/https:w:8444/proxy/metrics" => Some((401, "a token is needed\n".to_owned())),
        rest if rest.contains("previous=true") => {
            status(400, "BadRequest", "previous terminated container", json!({}))
        }
        rest if rest.starts_with("/w/log?") => {
            let path = "/0123456789abcdef0123456789abcdef/growth";
            Some((200, format!("asked {path}\nasked again\n")))
        }
        _ => None,
    });
    let (files, index) = server.bundle(&[]).await.unwrap();
    assert!(index.is_whole(), "{:?}", index.gaps);
    assert_eq!(file(&files, "processes/w/readyz.txt"), Some("waiting for the certificate (503)\n"));
    assert_eq!(file(&files, "logs/w/sluice-webhook.log"), Some("asked /REDACTED/growth\nasked again\n"));
    assert!(why_left_out(&index, "log of container injected of w").contains("not Sluice's"));
    assert!(why_left_out(&index, "metrics of w").contains("a token is asked for"));
    assert_eq!(index.left_out.len(), 2);
    assert!(!server.asked().iter().any(|uri| uri.contains("container=injected") || uri.contains("/secrets")));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_reached_is_told_of_and_a_silent_node_is_asked_once() {
    let server = with_pod(|rest| match rest {
        rest if rest.starts_with("/w/log?") => Some((200, "line\n".to_owned())),
        "/http:w:8081/proxy/readyz" => status(503, "ServiceUnavailable", UNREACHED, json!({})),
        _ => status(403, "Forbidden", "pods \"w\" is forbidden: User \"t\" cannot get resource", json!({})),
    });
    let (_, index) = server.bundle(&[]).await.unwrap();
    assert_eq!(what_is_missing(&index), ["whether w is ready", "metrics of w"]);
    assert_eq!(index.gaps[0].why.words(), format!("{UNREACHED} (503)"));
    assert_eq!(index.gaps[1].why.words(), "missing right: get pods/proxy in namespace sluice-system");

    let server = with_pod(|rest| match rest {
        rest if rest.starts_with("/w/log?") => {
            let told = "Get \"https://10.0.0.1:10250/x\": dial tcp: refused";
            status(500, "InternalError", told, json!({}))
        }
        _ => status(403, "Forbidden", "address not allowed", json!({})),
    });
    let (_, index) = server.bundle(&[]).await.unwrap();
    let told: Vec<_> = index.gaps.iter().map(|gap| (gap.why.words(), gap.what.len())).collect();
    assert_eq!(
        told,
        [("dial tcp: refused (500)".to_owned(), 1), ("address not allowed (403)".to_owned(), 2)]
    );

    let server = with_pod(|_| None);
    let (_, index) = server.bundle(&[]).await.unwrap();
    assert_eq!(what_is_missing(&index).len(), 4);
    assert_eq!(server.asked().iter().filter(|uri| uri.contains("/pods/")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_too_long_loses_its_oldest_lines() {
    let server = with_pod(|rest| match rest {
        rest if rest.starts_with("/w/log?") && !rest.contains("previous") => {
            assert!(rest.contains("tailLines=50000"), "{rest}");
            Some((200, (0..300_000).map(|line| format!("{line}\n")).collect()))
        }
        _ => not_found(),
    });
    let (files, index) = server.bundle(&[]).await.unwrap();
    let log = file(&files, "logs/w/sluice-webhook.log").unwrap();
    assert!(log.len() <= 1 << 20 && log.ends_with("\n299999\n") && !log.starts_with("0\n"), "{}", log.len());
    let cut = why_left_out(&index, "log of w");
    assert!(cut.contains("the oldest") && cut.contains("it was too long"), "{cut}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_log_is_no_file() {
    let server =
        with_pod(|rest| if rest.starts_with("/w/log?") { Some((200, String::new())) } else { not_found() });
    let (files, index) = server.bundle(&[]).await.unwrap();
    assert!(files.iter().all(|(path, _)| !path.starts_with("logs/")));
    assert_eq!(why_left_out(&index, "log of w"), "it is empty");
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_again() {
    let server = Server::new(|uri: &str| match uri {
        uri if uri.contains("/headroompolicies?") => Some((429, "Too many requests".to_owned())),
        uri => empty(uri),
    });
    let (_, index) = server.bundle(&["-A"]).await.unwrap();
    assert_eq!(what_is_missing(&index), ["head-room of many namespaces"]);
    assert!(index.empty.contains("quotas") && !index.empty.contains("head-room of many namespaces"));
    // Those of the list; the check asks once.
    let of_list = |uri: &&String| uri.contains("/headroompolicies?") && !uri.contains("continue=");
    assert_eq!(server.asked().iter().filter(of_list).count(), 3);
}

#[tokio::test]
async fn what_has_no_room_is_missing() {
    let server = Server::new(empty);
    let reader = Reader::new(&server.connection);
    let archive = Archive::new("b".to_owned(), Timestamp::UNIX_EPOCH);
    let (index, redactor) = (Index::default(), Redactor::default());
    let mut bundle = Bundle { reader: &reader, archive, index, redactor };
    assert!(bundle.add("small.yaml", "small", None, "a: 1\n").unwrap());
    assert!(!bundle.add("large.yaml", "large", None, &"x".repeat(archive::LARGEST)).unwrap());
    assert_eq!(what_is_missing(&bundle.index), ["large.yaml"]);
    assert_eq!(bundle.index.files.len(), 1);
}
