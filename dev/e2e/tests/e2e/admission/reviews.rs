//! The webhook's port can be reached by others than the API server: whatever they send, it answers and lives on.

use http::Request;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use sluice_api::{Endpoint, names};
use sluice_e2e::wire::Wire;
use sluice_e2e::{Running, objects};

use crate::context::shared;
use crate::team::Team;

async fn wire(shared: &Running<'_>) -> Wire {
    let secrets: Api<Secret> = Api::namespaced(shared.bed.admin().unwrap(), names::INSTALL_NAMESPACE);
    let secret = secrets.get(names::CA_SECRET).await.unwrap();
    Wire::new(&shared.installation.webhook_address(), &secret.data.unwrap()[names::CA_BUNDLE].0).unwrap()
}

fn review(kind: &str, operation: &str, object: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": kind},
            "operation": operation, "namespace": "anywhere", "name": "x",
            "userInfo": {"username": "somebody"}, "object": object,
        },
    })
}

fn pod_review() -> Value {
    review("Pod", "CREATE", serde_json::to_value(objects::pod("x", &[])).unwrap())
}

fn post(path: &str, content_type: Option<&str>, body: impl Into<Vec<u8>>) -> Request<Vec<u8>> {
    let request = Request::post(path).header("Host", "webhook");
    let request = match content_type {
        Some(value) => request.header("Content-Type", value),
        None => request,
    };
    request.body(body.into()).unwrap()
}

/// A path of the shared webhook.
async fn at(path: &str) -> String {
    shared().await.installation.webhook_path(path).await.unwrap()
}

async fn still_serves(wire: &Wire, after: &str) {
    let request =
        post(&at(Endpoint::PodGate.path()).await, Some("application/json"), pod_review().to_string());
    let (code, body) = wire.send(request).await.unwrap_or_else(|error| panic!("after {after}: {error:#}"));
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(code, 200, "after {after}: {body}");
    assert_eq!(answer["response"]["allowed"], true, "after {after}: {body}");
    assert_eq!(answer["response"]["patchType"], "JSONPatch", "after {after}: {body}");
}

/// What it is, content type, body, status and words of the answer.
type NoReview = (&'static str, Option<&'static str>, Vec<u8>, u16, &'static str);

/// Bodies that cannot be read.
fn unreadable() -> Vec<NoReview> {
    let json = Some("application/json");
    let good = pod_review().to_string();
    vec![
        (
            "text",
            Some("text/plain"),
            good.clone().into(),
            400,
            "Content-Type: \"text/plain\" should be \"application/json\"",
        ),
        ("no type", None, good.clone().into(), 400, "Content-Type: \"\" should be \"application/json\""),
        (
            "form",
            Some("application/x-www-form-urlencoded"),
            good.clone().into(),
            400,
            "should be \"application/json\"",
        ),
        ("empty", json, vec![], 400, "admission request body is empty"),
        (
            "truncated",
            json,
            good.as_bytes()[..good.len() / 2].to_vec(),
            400,
            "could not parse admission review request",
        ),
        ("not JSON", json, b"\x00\x01\x02".to_vec(), 400, "could not parse admission review request"),
        (
            "not UTF-8",
            json,
            b"{\"kind\":\"\xff\xfe\"}".to_vec(),
            400,
            "could not parse admission review request",
        ),
        ("an array", json, b"[1,2,3]".to_vec(), 400, "could not parse admission review request"),
        (
            "deep",
            json,
            [vec![b'['; 100_000], vec![b']'; 100_000]].concat(),
            400,
            "could not parse admission review request",
        ),
    ]
}

/// JSON that is no review.
fn no_reviews() -> Vec<NoReview> {
    let json = Some("application/json");
    let changed = |pointer: &str, value: Value| {
        let mut review = pod_review();
        *review.pointer_mut(pointer).unwrap() = value;
        review.to_string().into_bytes()
    };
    vec![
        ("another kind", json, changed("/kind", json!("Pod")), 400, "want AdmissionReview"),
        (
            "another version",
            json,
            changed("/apiVersion", json!("admission.k8s.io/v9")),
            400,
            "want AdmissionReview",
        ),
        ("no request", json, changed("/request", Value::Null), 400, "request field is nil"),
        ("no uid", json, changed("/request/uid", json!("")), 400, "request.uid is empty"),
        (
            "uid of another type",
            json,
            changed("/request/uid", json!(7)),
            400,
            "could not parse admission review request",
        ),
    ]
}

#[tokio::test]
async fn a_body_that_is_no_review_gets_an_error_that_says_why() {
    let wire = wire(shared().await).await;
    for path in [at(Endpoint::PodGate.path()).await, at(Endpoint::VmSize.path()).await] {
        for (what, content_type, body, code, words) in unreadable().into_iter().chain(no_reviews()) {
            // The server may close before it has read all of a body that is too large.
            let answered = wire.send(post(&path, content_type, body)).await;
            let (status, text) = answered.unwrap_or_else(|error| panic!("{path} {what}: {error:#}"));
            assert_eq!(status, code, "{path} {what}: {text}");
            assert!(text.contains(words), "{path} {what}: {text}");
            still_serves(&wire, what).await;
        }
    }
}

#[tokio::test]
async fn a_review_that_cannot_be_judged_is_refused_under_its_uid() {
    let wire = wire(shared().await).await;
    let pod = serde_json::to_value(objects::pod("x", &[])).unwrap();
    let serve = Endpoint::PodGate.path();
    for (path, body, code, words) in [
        (serve, review("Node", "CREATE", pod.clone()), 400, "kind \"Node\""),
        (serve, review("", "CREATE", pod.clone()), 400, "kind \"\""),
        (serve, review("Pod", "DESTROY", pod.clone()), 400, "\"DESTROY\""),
        (serve, review("ApplicationAwareResourceQuota", "PONDER", json!({})), 400, "\"PONDER\""),
        (serve, review("Pod", "CREATE", Value::Null), 400, "object"),
        (serve, review("Pod", "CREATE", json!("a pod")), 400, "object"),
        (serve, review("Pod", "CREATE", json!({"spec": {"schedulingGates": 5}})), 400, "object"),
        (serve, review("ApplicationAwareResourceQuota", "CREATE", Value::Null), 400, "object"),
    ] {
        let (status, text) =
            wire.send(post(&at(path).await, Some("application/json"), body.to_string())).await.unwrap();
        assert_eq!(status, 200, "{body}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1", "{text}");
        let response = &answer["response"];
        assert_eq!(response["uid"], body["request"]["uid"], "{text}");
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&json!(false), &json!(code)),
            "{body}: {text}"
        );
        assert!(response["status"]["message"].as_str().unwrap().contains(words), "{body}: {text}");
    }
    still_serves(&wire, "refusals").await;
}

#[tokio::test]
async fn absurd_quantities_in_a_review_cost_no_time() {
    let wire = wire(shared().await).await;
    let digits = "9".repeat(1 << 20);
    for amount in ["1e2147483648", "1e-2147483648", &digits] {
        let started = std::time::Instant::now();
        let pod = serde_json::to_value(objects::pod("x", &[("cpu", amount)])).unwrap();
        let quota = serde_json::to_value(objects::quota("x", &[("requests.cpu", amount)])).unwrap();
        for (kind, object, allowed) in [("Pod", pod, true), ("ApplicationAwareResourceQuota", quota, false)] {
            let body = review(kind, "CREATE", object).to_string();
            let (code, text) = wire
                .send(post(&at(Endpoint::PodGate.path()).await, Some("application/json"), body))
                .await
                .unwrap();
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(allowed)), "{kind}: {text}");
            assert!(text.len() < 2_000, "{kind}: {text}");
        }
        // Generous: the machine may be busy. A parser that computes the number would take hours.
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn old_reviews_and_content_types_with_parameters_are_answered() {
    let wire = wire(shared().await).await;
    let mut old = pod_review();
    old["apiVersion"] = json!("admission.k8s.io/v1beta1");
    for (content_type, body) in
        [("application/json", old.to_string()), ("application/json; charset=utf-8", pod_review().to_string())]
    {
        let (code, text) =
            wire.send(post(&at(Endpoint::PodGate.path()).await, Some(content_type), body)).await.unwrap();
        assert_eq!(code, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["response"]["allowed"], true, "{text}");
        assert_eq!(answer["response"]["status"]["code"], 202, "{text}");
        assert_eq!(answer["response"]["status"]["message"], "Pod has successfully gated", "{text}");
    }
}

#[tokio::test]
async fn only_the_documented_paths_and_methods_exist() {
    let wire = wire(shared().await).await;
    let [serve, size] = [at(Endpoint::PodGate.path()).await, at(Endpoint::VmSize.path()).await];
    let [root, debug, deeper] = [at("/").await, at("/debug/pprof").await, at("/serve-path/../x").await];
    for (method, path, code) in [
        ("GET", serve.as_str(), 405),
        ("PUT", &serve, 405),
        ("DELETE", &size, 405),
        ("GET", &root, 404),
        ("GET", "/metrics", 404),
        ("GET", &debug, 404),
        ("POST", &deeper, 404),
        ("GET", "/healthz", 404),
        // Without the secret, or with a wrong one, there is nothing.
        ("POST", Endpoint::PodGate.path(), 404),
        ("POST", Endpoint::Headroom.path(), 404),
        ("POST", "/0123456789abcdef0123456789abcdef/headroom", 404),
    ] {
        let request = Request::builder().method(method).uri(path).header("Host", "webhook");
        let (status, text) = wire.send(request.body(vec![]).unwrap()).await.unwrap();
        assert_eq!(status, code, "{method} {path}: {text}");
    }
}

#[tokio::test]
async fn broken_connections_do_not_disturb_the_others() {
    let shared = shared().await;
    let wire = wire(shared).await;
    let path = at(Endpoint::PodGate.path()).await;
    let head = format!("POST {path} HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n");
    let cut = format!("{head}Content-Length: 1000\r\n\r\n{{\"kind\":");
    // Announced, not sent: it is refused before it is read.
    let oversized = format!("{head}Content-Length: {}\r\n\r\n", 9 << 20);
    let answer = wire.send_raw(oversized.as_bytes()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    still_serves(&wire, "an oversized body").await;
    let mut growing = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..9 {
        growing.extend_from_slice(b"100000\r\n");
        growing.resize(growing.len() + (1 << 20), b' ');
        growing.extend_from_slice(b"\r\n");
    }
    // The server may close while it is still being written to; an answer that arrives says why.
    let answer = wire.send_raw(&growing).await.unwrap_or_default();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    still_serves(&wire, "a body that grows beyond the limit").await;
    let cut_chunk = format!("{head}Transfer-Encoding: chunked\r\n\r\nffff\r\n{{");
    let long_header = format!("{head}X-Long: {}\r\n\r\n", "a".repeat(200_000));
    let both = format!("{head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    for (what, bytes) in [
        ("a body that is cut off", cut.as_bytes()),
        ("a chunk that is cut off", cut_chunk.as_bytes()),
        ("a header without end", long_header.as_bytes()),
        ("two lengths", both.as_bytes()),
        ("something that is not HTTP", b"\x16\x03\x01\x00\x00garbage\r\n\r\n"),
    ] {
        let answer = wire.send_raw(bytes).await.unwrap_or_default();
        assert!(!answer.starts_with("HTTP/1.1 200") && !answer.starts_with("HTTP/1.1 5"), "{what}: {answer}");
        still_serves(&wire, what).await;
    }
    // Not even TLS.
    let plain = plain_http(&shared.installation.webhook_address()).await;
    assert!(!plain.contains("200"), "{plain}");
    still_serves(&wire, "plain HTTP").await;
    // And the API server still gets its answers.
    let team = Team::on(shared.bed, "still-gated").await;
    assert!(objects::is_held(&team.pod("p", &[]).await));
    assert!(shared.webhook.program.is_running());
}

/// Plain HTTP to the TLS port.
async fn plain_http(address: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}
