//! Growth of pods: what is asked, and how each decision is told.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::sync::Arc;

use axum::http::StatusCode;
use common::{TENANT, app, pod_create, pod_update, request, send};
use futures::FutureExt as _;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::Endpoint;
use sluice_runtime::leader::LeaderLink;
use sluice_webhook::endpoints::growth::{Growth, GrowthLeader, GrowthRelay, GrowthVerdict};
use sluice_webhook::{AsyncEndpoint, Decision, router};

const PATH: &str = "/growth";

fn serving(growth: impl AsyncEndpoint + 'static) -> axum::Router {
    router(&app(), [(Endpoint::Growth, Decision::Async(Arc::new(growth)))])
}

fn pod(cpu: &str) -> Value {
    let requests = json!({ "cpu": cpu });
    json!({
        "metadata": { "name": "a", "namespace": "team", "uid": "1", "resourceVersion": "7" },
        "spec": { "containers": [{ "name": "main", "resources": { "requests": requests } }] },
    })
}

/// The answer of a leader that decides like this, and what it was asked.
async fn judged(review: &Value, verdict: GrowthVerdict) -> (Value, Option<Growth>) {
    let asked = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&asked);
    let judge = Box::new(move |growth: Growth| {
        *seen.lock() = Some(growth);
        let verdict = verdict.clone();
        async move { verdict }.boxed()
    });
    let answer = answer(serving(GrowthLeader(judge)), review).await;
    let asked = asked.lock().take();
    (answer, asked)
}

async fn answer(service: axum::Router, review: &Value) -> Value {
    let (status, _, body) = send(service, request(PATH, serde_json::to_vec(review).unwrap())).await;
    assert_eq!(status, StatusCode::OK);
    serde_json::from_slice::<Value>(&body).unwrap()["response"].clone()
}

#[tokio::test]
async fn the_leader_is_asked_about_the_pod_as_it_is_and_as_it_is_to_be() {
    let mut review = pod_update(TENANT, &pod("1"), &pod("2"));
    review["request"]["dryRun"] = json!(true);
    let (answer, asked) = judged(&review, GrowthVerdict::Allowed).await;
    assert_eq!(answer["allowed"], true);
    let asked = asked.unwrap();
    let cpu = |pod: &sluice_index::PodWire| {
        let list = pod.spec.containers[0].resources.as_ref().unwrap().requests.clone().unwrap();
        list.0[0].1.0.to_string()
    };
    assert_eq!(
        (cpu(&asked.before), cpu(&asked.after), asked.dry_run),
        ("1".to_owned(), "2".to_owned(), true)
    );
}

#[tokio::test]
async fn a_refusal_has_the_words_of_the_quota() {
    let review = pod_update(TENANT, &pod("1"), &pod("2"));
    let (answer, _) = judged(&review, GrowthVerdict::Refused("exceeded quota: q".to_owned())).await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(answer["status"], json!({ "metadata": {}, "message": "exceeded quota: q", "code": 403 }));
}

/// client-go tries again by itself when there is a time to wait.
fn is_to_be_tried_again(answer: &Value, why: &str) {
    let message = format!("could not charge the pod's quotas: {why}; try again");
    let status = json!({
        "metadata": {}, "message": message, "reason": "TooManyRequests", "details": { "retryAfterSeconds": 1 }, "code": 429,
    });
    assert_eq!((&answer["allowed"], &answer["status"]), (&json!(false), &status));
}

#[tokio::test]
async fn what_is_not_decided_is_to_be_tried_again() {
    let review = pod_update(TENANT, &pod("1"), &pod("2"));
    let (answer, _) = judged(&review, GrowthVerdict::Undecided("the leader changes".to_owned())).await;
    is_to_be_tried_again(&answer, "the leader changes");
}

#[tokio::test]
async fn without_a_leader_nothing_is_let_in() {
    let review = pod_update(TENANT, &pod("1"), &pod("2"));
    let link = LeaderLink::new("sluice-metrics.sluice-system.svc".to_owned());
    let answer = answer(serving(GrowthRelay::new(link)), &review).await;
    is_to_be_tried_again(&answer, "no leader is known");
}

#[rstest]
#[case::creation(pod_create(TENANT, &pod("1")))]
#[case::no_pod(pod_update(TENANT, &json!("a"), &pod("1")))]
#[case::containers_of_another_type(pod_update(TENANT, &pod("1"), &json!({ "spec": { "containers": 5 } })))]
#[tokio::test]
async fn what_is_no_update_of_a_pod_is_refused(#[case] review: Value) {
    let (answer, asked) = judged(&review, GrowthVerdict::Allowed).await;
    assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(400)), "{answer}");
    assert!(asked.is_none());
}
