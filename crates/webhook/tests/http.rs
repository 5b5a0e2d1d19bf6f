//! The HTTP contract: paths, codes, texts, the shape of answers, and limits (reliability M2, M5).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use base64::Engine as _;
use common::{
    GATE, SERVE, STAMP, TENANT, VM_SIZE, app, pod_create, pod_update, request, review, send, service,
    serving, settings,
};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::Endpoint;
use sluice_engine::vm::Calculator;
use sluice_webhook::{AaqPresence, App, BodyLimits, SecretPath, WebhookMetrics, behind};

async fn answer(path: &str, review: &Value) -> Value {
    let (status, kind, body) = send(service(), request(path, serde_json::to_vec(review).unwrap())).await;
    assert_eq!((status, kind.as_str()), (StatusCode::OK, "application/json"));
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn the_answer_has_upstreams_shape() {
    let mut review =
        pod_create(TENANT, &json!({"metadata": {"annotations": {}}, "spec": {"schedulingGates": []}}));
    review["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let mut answer = answer(SERVE, &review).await;
    let patch = answer["response"]["patch"].take();
    let patch = base64::engine::general_purpose::STANDARD.decode(patch.as_str().unwrap()).unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&patch).unwrap(),
        json!([
            {"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": GATE}},
            {"op": "add", "path": "/metadata/annotations/quota.sluice.dev~1created-by", "value": TENANT},
        ])
    );
    assert_eq!(
        answer,
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "allowed": true,
            "status": {"metadata": {}, "message": "Pod has successfully gated", "code": 202},
            "patch": null,
            "patchType": "JSONPatch",
        }})
    );
}

#[tokio::test]
async fn an_answer_without_patch_or_warnings_has_no_such_fields() {
    let pod = json!({"metadata": {}, "spec": {}});
    let answer = answer(VM_SIZE, &pod_update(TENANT, &pod, &pod)).await;
    let fields: Vec<&String> = answer["response"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["allowed", "status", "uid"]);
}

#[tokio::test]
async fn each_kind_and_path_has_its_endpoint() {
    let forged = json!({"metadata": {"annotations": {STAMP: "bob"}}, "spec": {}});
    let open = json!({"metadata": {}, "spec": {}});
    let quota = json!({"metadata": {}, "spec": {"hard": {"services": "1"}}});
    let cases = [
        (SERVE, pod_create(TENANT, &forged), true, 202),
        (SERVE, pod_update(TENANT, &open, &open), false, 400),
        (SERVE, review("ApplicationAwareResourceQuota", "CREATE", TENANT, &quota, &Value::Null), true, 202),
        (SERVE, review("AAQ", "CREATE", TENANT, &open, &Value::Null), false, 503),
        (SERVE, review("Service", "CREATE", TENANT, &open, &Value::Null), false, 400),
        (SERVE, review("pod", "CREATE", TENANT, &open, &Value::Null), false, 400),
        (SERVE, review("", "", TENANT, &open, &Value::Null), false, 400),
    ];
    for (path, review, allowed, code) in cases {
        let response = answer(path, &review).await["response"].take();
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&json!(allowed), &json!(code)),
            "{review}"
        );
        assert_eq!(response["uid"], review["request"]["uid"]);
        assert!(!response["status"]["message"].as_str().unwrap().is_empty());
    }
}

/// The dispatch agrees with the table: what a webhook configuration sends reaches the endpoint that it is sent for.
#[tokio::test]
async fn each_rule_of_a_configuration_leads_to_its_endpoint() {
    let rules = |endpoint: &'static Endpoint| {
        let rules = endpoint.webhooks().iter().flat_map(|webhook| webhook.rules);
        rules.map(move |rule| (endpoint, rule))
    };
    for (endpoint, rule) in Endpoint::ALL.iter().flat_map(rules) {
        let kind = |resource: &str| match resource {
            "pods" | "pods/resize" => "Pod",
            "gateprobes" => "GateProbe",
            "evaluators" => "Evaluator",
            "quotareviews" => "QuotaReview",
            "virtualmachineinstances" => "VirtualMachineInstance",
            "virtualmachines" => "VirtualMachine",
            "aaqs" => "AAQ",
            "applicationawareclusterresourcequotas" => "ApplicationAwareClusterResourceQuota",
            "applicationawareresourcequotas" => "ApplicationAwareResourceQuota",
            other => panic!("{other}: of which kind?"),
        };
        let all = |resource| rule.operations.iter().map(move |operation| (resource, operation));
        for (resource, operation) in rule.resources.iter().flat_map(all) {
            let mut registry = Registry::default();
            let app = App::new(settings(), BodyLimits::default(), WebhookMetrics::register(&mut registry));
            let review = review(kind(resource), operation, TENANT, &json!({}), &json!({}));
            send(serving(&app), request(endpoint.path(), serde_json::to_vec(&review).unwrap())).await;
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let label = format!("requests_total{{endpoint=\"{}\"", endpoint.name());
            assert!(text.contains(&label), "{operation} of {resource} at {}\n{text}", endpoint.path());
        }
    }
}

#[tokio::test]
async fn what_the_app_learns_of_aaqs_changes_its_answers() {
    let app = app();
    let review = serde_json::to_vec(&review("AAQ", "CREATE", "admin", &json!({}), &Value::Null)).unwrap();
    for (aaq, allowed) in [
        (AaqPresence::Absent, true),
        (
            AaqPresence::Present {
                cluster_quotas: false,
                calculator: Calculator::default(),
                gives_way: false,
            },
            false,
        ),
        (AaqPresence::Absent, true),
    ] {
        app.set_aaq(aaq);
        let (_, _, body) = send(serving(&app), request(SERVE, review.clone())).await;
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["response"]["allowed"], allowed);
    }
}

#[rstest]
#[case::plain("application/json", 200)]
#[case::charset("application/json; charset=utf-8", 200)]
#[case::case("Application/JSON", 200)]
#[case::text("text/plain", 400)]
#[case::empty("", 400)]
#[case::longer("application/json-patch+json", 400)]
#[tokio::test]
async fn content_types(#[case] value: &str, #[case] expected: u16) {
    let review = serde_json::to_vec(&pod_create(TENANT, &json!({"spec": {}}))).unwrap();
    let request = Request::post(SERVE).header("content-type", value).body(Body::from(review)).unwrap();
    let (status, _, body) = send(service(), request).await;
    assert_eq!(status.as_u16(), expected);
    if expected == 400 {
        assert_eq!(body, format!("Content-Type: \"{value}\" should be \"application/json\"\n"));
    }
}

#[rstest]
#[case("GET", SERVE, 405)]
#[case("PUT", VM_SIZE, 405)]
#[case("GET", "/metrics", 404)]
#[case("GET", "/debug/pprof", 404)]
#[case("POST", "/", 404)]
#[case("POST", "/serve-path/", 404)]
#[tokio::test]
async fn other_paths_and_methods(#[case] method: &str, #[case] path: &str, #[case] expected: u16) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let (status, ..) = send(service(), request).await;
    assert_eq!(status.as_u16(), expected);
}

#[tokio::test]
async fn behind_a_secret_path_there_is_nothing_without_it() {
    let secret = Arc::new(SecretPath::default());
    secret.set(Some("0123456789abcdef"));
    let service = behind(secret, service());
    let review = serde_json::to_vec(&pod_create(TENANT, &json!({"spec": {}}))).unwrap();
    for (path, expected) in [
        ("/0123456789abcdef/serve-path", StatusCode::OK),
        (SERVE, StatusCode::NOT_FOUND),
        ("/0123456789abcdee/serve-path", StatusCode::NOT_FOUND),
        ("/0123456789abcdef/other", StatusCode::NOT_FOUND),
        ("/0123456789abcdef", StatusCode::NOT_FOUND),
    ] {
        let (status, ..) = send(service.clone(), request(path, review.clone())).await;
        assert_eq!(status, expected, "{path}");
    }
    // Who does not know it is turned away before a byte of the body is read.
    let never = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let (status, ..) = send(service.clone(), request(SERVE, never)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let probe = Request::get("/healthz").body(Body::empty()).unwrap();
    let (status, ..) = send(service, probe).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "a success would prove the connection");
}

/// A body of unknown length, in pieces.
fn pieces(count: usize, size: usize) -> Body {
    let piece = Bytes::from(vec![b' '; size]);
    Body::from_stream(futures::stream::iter((0..count).map(move |_| Ok::<_, std::io::Error>(piece.clone()))))
}

#[tokio::test]
async fn large_bodies_are_refused_early() {
    let limits = BodyLimits { body: 100_000, bodies: 1 << 20, ..BodyLimits::default() };
    let service = serving(&App::new(settings(), limits, WebhookMetrics::default()));
    for body in [Body::from(vec![b' '; 100_001]), pieces(11, 10_000)] {
        let (status, _, text) = send(service.clone(), request(SERVE, body)).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(text, "admission request body is larger than 100000 bytes\n");
    }
    let (status, _, _) = send(service, request(SERVE, pieces(10, 10_000))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "read to its end, then found to be no JSON");
}

#[tokio::test]
async fn large_bodies_share_a_budget_that_small_ones_do_not_need() {
    let limits = BodyLimits { body: 1 << 20, bodies: 400 << 10, ..BodyLimits::default() };
    let service = serving(&App::new(settings(), limits, WebhookMetrics::default()));
    // One body that takes what one sender may, half of the budget, and does not end.
    let (mut feed, end) = futures::channel::mpsc::channel::<Result<Bytes, std::io::Error>>(0);
    let held = tokio::spawn(send(service.clone(), request(SERVE, Body::from_stream(end))));
    for _ in 0..4 {
        // With no buffer, the next piece is taken only after the one before was counted.
        futures::SinkExt::send(&mut feed, Ok(Bytes::from(vec![b' '; 50 << 10]))).await.unwrap();
    }
    let (status, _, _) = send(service.clone(), request(SERVE, vec![b' '; 150 << 10])).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let mut other = request(SERVE, vec![b' '; 150 << 10]);
    other.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 2], 1))));
    let (status, _, _) = send(service.clone(), other).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "another sender has room: read, and found to be no JSON");
    let small = serde_json::to_vec(&pod_create(TENANT, &json!({"spec": {}}))).unwrap();
    let (status, _, _) = send(service.clone(), request(SERVE, small)).await;
    assert_eq!(status, StatusCode::OK);
    drop(feed);
    assert_eq!(held.await.unwrap().0, StatusCode::BAD_REQUEST);
    let (status, _, _) = send(service, request(SERVE, vec![b' '; 150 << 10])).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the budget is free again");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_times_out() {
    let limits = BodyLimits { time: Duration::from_secs(5), ..BodyLimits::default() };
    let service = serving(&App::new(settings(), limits, WebhookMetrics::default()));
    let never = || futures::stream::pending::<Result<Bytes, std::io::Error>>();
    let started = tokio::time::Instant::now();
    let (status, _, _) = send(service.clone(), request(SERVE, Body::from_stream(never()))).await;
    assert_eq!((status, started.elapsed().as_secs()), (StatusCode::REQUEST_TIMEOUT, 5));
    // What holds a share of the budget has to go on.
    let begun = futures::stream::iter([Ok(Bytes::from(vec![b' '; 100 << 10]))]);
    let stalled = Body::from_stream(futures::StreamExt::chain(begun, never()));
    let started = tokio::time::Instant::now();
    let (status, _, _) = send(service, request(SERVE, stalled)).await;
    assert_eq!((status, started.elapsed().as_secs()), (StatusCode::REQUEST_TIMEOUT, 2));
}

#[tokio::test]
async fn requests_are_counted_by_endpoint_verdict_and_code() {
    let mut registry = Registry::default();
    let metrics = WebhookMetrics::register(&mut registry);
    let service = serving(&App::new(settings(), BodyLimits::default(), metrics));
    let review = serde_json::to_vec(&pod_create(TENANT, &json!({"spec": {}}))).unwrap();
    for body in [review, Vec::new()] {
        send(service.clone(), request(SERVE, body)).await;
    }
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        "sluice_webhook_requests_total{endpoint=\"pod_gate\",allowed=\"true\",code=\"202\"} 1",
        "sluice_webhook_requests_total{endpoint=\"none\",allowed=\"false\",code=\"400\"} 1",
        "sluice_webhook_request_duration_seconds_count{endpoint=\"pod_gate\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}
