//! QuotaReviews: what is asked, and how each reply is told.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::sync::Arc;

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{TENANT, app, request, review, send};
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::{Endpoint, QuotaReviewStatus};
use sluice_runtime::leader::LeaderLink;
use sluice_webhook::endpoints::explain::{About, ExplainLeader, ExplainRelay, Question, Reply};
use sluice_webhook::{AsyncEndpoint, Decision, router};

const PATH: &str = "/explain";

fn serving(explain: impl AsyncEndpoint + 'static) -> axum::Router {
    router(&app(), [(Endpoint::Explain, Decision::Async(Arc::new(explain)))])
}

/// As an API server asks in a dry run.
fn asking(spec: Value) -> Value {
    let object = json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "QuotaReview",
        "metadata": { "generateName": "why-", "namespace": "team-a" }, "spec": spec,
    });
    let mut review = review("QuotaReview", "CREATE", TENANT, &object, &Value::Null);
    review["request"]["dryRun"] = json!(true);
    review
}

async fn answer(service: axum::Router, review: &Value) -> Value {
    let (status, _, body) = send(service, request(PATH, serde_json::to_vec(review).unwrap())).await;
    assert_eq!(status, StatusCode::OK);
    serde_json::from_slice::<Value>(&body).unwrap()["response"].clone()
}

type Questions = Arc<Mutex<Vec<Question>>>;

/// A leader that gives this reply, and what it is asked.
fn leader(reply: Reply) -> (axum::Router, Questions) {
    let asked = Questions::default();
    let seen = Arc::clone(&asked);
    let tell = Box::new(move |question: &Question| {
        seen.lock().push(question.clone());
        reply.clone()
    });
    (serving(ExplainLeader::new(tell)), asked)
}

fn status() -> QuotaReviewStatus {
    QuotaReviewStatus { held: true, text: "train waits".to_owned(), ..QuotaReviewStatus::default() }
}

#[rstest]
#[case("pod", About::Pod)]
#[case("quota", About::Quota)]
#[case("clusterQuota", About::ClusterQuota)]
#[case("virtualMachine", About::VirtualMachine)]
#[tokio::test]
async fn the_answer_is_put_into_the_status_of_the_review(
    #[case] field: &str,
    #[case] about: impl Fn(String) -> About,
) {
    let (service, asked) = leader(Reply::Answered(Box::new(status())));
    let answer = answer(service, &asking(json!({ field: "train" }))).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let patch = STANDARD.decode(answer["patch"].as_str().unwrap()).unwrap();
    let expected = json!([{ "op": "add", "path": "/status", "value": status() }]);
    assert_eq!(serde_json::from_slice::<Value>(&patch).unwrap(), expected);
    let question = Question { namespace: "team-a".to_owned(), about: about("train".to_owned()) };
    assert_eq!(*asked.lock(), [question]);
}

/// A review, changed at one place.
fn asking_but(path: &str, value: Value) -> Value {
    let mut review = asking(json!({ "pod": "train" }));
    *review.pointer_mut(path).unwrap() = value;
    review
}

#[rstest]
#[case::to_be_stored(asking_but("/request/dryRun", json!(false)), 403, "answered and never stored: create it in a dry run")]
#[case::update(asking_but("/request/operation", json!("UPDATE")), 400, "expected a new QuotaReview")]
#[case::another_kind(asking_but("/request/kind/kind", json!("Pod")), 400, "expected a new QuotaReview")]
#[case::no_namespace(asking_but("/request/namespace", json!("")), 400, "name one in metadata.namespace")]
#[case::no_object(asking_but("/request/object", json!(null)), 400, "has no object")]
#[case::text(asking_but("/request/object", json!("a")), 400, "could not read object")]
#[case::spec_of_another_type(asking_but("/request/object/spec", json!([1])), 400, "could not read object")]
#[case::name_of_another_type(asking(json!({ "pod": 5 })), 400, "could not read object")]
#[case::nothing(asking(json!({})), 422, "spec: set exactly one of pod, quota, clusterQuota, virtualMachine")]
#[case::two(asking(json!({ "pod": "a", "quota": "b" })), 422, "spec: set exactly one of")]
#[case::no_name(asking(json!({ "quota": "" })), 422, "spec.quota: write the name")]
#[case::long_name(asking(json!({ "pod": "x".repeat(254) })), 422, "spec.pod: write the name")]
#[case::long(asking(json!({ "pod": "x".repeat(64 * 1024) })), 413, "at most 65536 bytes")]
#[tokio::test]
async fn what_is_no_question_is_refused_and_asked_of_nobody(
    #[case] review: Value,
    #[case] code: u16,
    #[case] words: &str,
) {
    let (service, asked) = leader(Reply::Answered(Box::new(status())));
    let link = LeaderLink::new("sluice-metrics.sluice-system.svc".to_owned());
    for service in [service, serving(ExplainRelay::new(link))] {
        let answer = answer(service, &review).await;
        assert_eq!(
            (&answer["allowed"], &answer["status"]["code"]),
            (&json!(false), &json!(code)),
            "{answer}"
        );
        assert!(answer["status"]["message"].as_str().unwrap().contains(words), "{answer}");
        assert!(answer["patch"].is_null());
    }
    assert!(asked.lock().is_empty());
}

/// Clients of Kubernetes repeat by themselves what has a time to wait.
#[tokio::test]
async fn without_a_leader_it_is_said_at_once_and_not_to_be_repeated() {
    let question = asking(json!({ "pod": "train" }));
    let link = LeaderLink::new("sluice-metrics.sluice-system.svc".to_owned());
    let (follower, _) = leader(Reply::Unknown("this process does not lead"));
    for (service, why) in
        [(serving(ExplainRelay::new(link)), "no leader is known"), (follower, "this process does not lead")]
    {
        let answer = answer(service, &question).await;
        assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(503)));
        assert!(answer["status"]["details"].is_null());
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(message.contains(why) && message.contains("sluice why --recompute"), "{message}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_given() {
    let long = QuotaReviewStatus { text: "x".repeat(64 * 1024), ..status() };
    let (service, _) = leader(Reply::Answered(Box::new(long)));
    let answer = answer(service, &asking(json!({ "pod": "train" }))).await;
    assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(422)));
    assert!(answer["status"]["message"].as_str().unwrap().contains("longer than 65536 bytes"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn more_than_are_answered_in_a_second_are_put_off() {
    let (service, asked) = leader(Reply::Answered(Box::new(status())));
    let question = asking(json!({ "pod": "train" }));
    let mut allowed = 0;
    for _ in 0..100 {
        let answer = answer(service.clone(), &question).await;
        if answer["allowed"] == true {
            allowed += 1;
            continue;
        }
        let status = &answer["status"];
        assert_eq!((&status["code"], &status["details"]["retryAfterSeconds"]), (&json!(429), &json!(1)));
    }
    assert_eq!((allowed, asked.lock().len()), (20, 20));
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(answer(service, &question).await["allowed"], true);
}
