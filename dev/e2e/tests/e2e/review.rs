//! QuotaReviews on a real control plane: the leader answers, nothing is stored, and who may view a namespace may ask there.

use kube::Client;
use serde_json::{Value, json};
use sluice_api::{QuotaReviewSpec, names};
use sluice_e2e::call::{Response, get, post};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, idle_bed, kubectl, kubectl_tries, manifest, shared};
use crate::team::Team;
use crate::why::said;

const PATH: &str = "/apis/quota.sluice.dev/v1alpha1/namespaces";

fn path(namespace: &str) -> String {
    format!("{PATH}/{namespace}/{}", names::QUOTA_REVIEWS)
}

fn review(spec: &Value) -> Value {
    json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": names::QUOTA_REVIEW,
        "metadata": { "generateName": "ask-" }, "spec": spec,
    })
}

async fn ask(client: &Client, namespace: &str, spec: &Value) -> Response {
    post(client, &format!("{}?dryRun=All", path(namespace)), &review(spec)).await.unwrap()
}

/// Asks until the answer is this: more questions than are answered in a second may be under way, and the leader may see a
/// moment later what is there.
async fn until_told(client: &Client, namespace: &str, spec: Value, is_it: impl Fn(&Value) -> bool) -> Value {
    let told = || async {
        let answer = ask(client, namespace, &spec).await;
        Some(answer.body["status"].clone()).filter(|status| answer.is_ok() && is_it(status))
    };
    wait::eventually(SOON, told, &format!("the answer to {spec}")).await.unwrap()
}

/// The stored reviews of a namespace. A server that has not yet read a kind that is new answers 429.
async fn stored_reviews(client: &Client, namespace: &str) -> Value {
    let path = path(namespace);
    let all = || async {
        let answer = get(client, &path).await.ok()?;
        answer.is_ok().then(|| answer.body["items"].clone())
    };
    wait::eventually(SOON, all, "the list of reviews").await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_answers_and_nothing_is_stored() {
    let bed = shared().await.bed;
    let team = Team::plain(bed, "review").await;
    let name = team.namespace.name.as_str();
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.pod("web", &[("cpu", "800m")]).await;
    team.until_released("web").await;
    team.pod("train", &[("cpu", "300m")]).await;
    let words = "exceeded quota: compute, requested: requests.cpu=300m, used: requests.cpu=800m, limited: requests.cpu=1";
    let waits = |status: &Value| status["explanations"][0]["reason"] == "QuotaExceeded";
    let status = until_told(&team.client, name, json!({ "pod": "train" }), waits).await;
    assert_eq!((&status["held"], &status["explanations"][0]["message"]), (&json!(true), &json!(words)));
    assert!(status["text"].as_str().unwrap().starts_with("train waits for quota: held "), "{status}");
    assert!(!status["source"]["leader"].as_str().unwrap().is_empty(), "{status}");
    let is_quota = |status: &Value| status["explanations"][0]["held"] == 1;
    until_told(&team.client, name, json!({ "quota": "compute" }), is_quota).await;

    let stored = post(&team.client, &path(name), &review(&json!({ "pod": "train" }))).await.unwrap();
    assert_eq!(stored.code, 403, "{stored:?}");
    assert!(stored.message().contains("create it in a dry run"), "{stored:?}");
    assert_eq!(stored_reviews(&team.client, name).await, json!([]));

    let none = until_told(&team.client, name, json!({ "pod": "trian" }), |it| it["notFound"] == true).await;
    assert_eq!((&none["near"], &none["held"]), (&json!(["train"]), &json!(false)));
    for (spec, code) in [
        (json!({}), 422),
        (json!({ "pod": "a", "quota": "b" }), 422),
        (json!({ "pod": "x".repeat(70_000) }), 413),
    ] {
        let answer = ask(&team.client, name, &spec).await;
        assert_eq!((answer.code, answer.body["status"]["source"].is_null()), (code, true), "{answer:?}");
    }
}

/// The webhook refuses one that is to be stored; should it not be asked, the admission policy does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_webhook_a_review_is_not_stored_either() {
    let bed = idle_bed().await;
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    running.end_operator().await.unwrap();
    kubectl(&bed, &["delete", "mutatingwebhookconfiguration", names::MUTATING_CONFIG]).await;
    let team = Team::plain(&bed, "unasked").await;
    let name = team.namespace.name.as_str();
    let refused = || async {
        let stored = post(&team.client, &path(name), &review(&json!({ "pod": "p" }))).await.ok()?;
        (stored.code == 403 && stored.message().contains(names::REVIEW_POLICY)).then_some(())
    };
    wait::eventually(SOON, refused, "the policy to refuse it").await.unwrap();
    assert_eq!(stored_reviews(&team.client, name).await, json!([]));
    let answer = ask(&team.client, name, &json!({ "pod": "p" })).await;
    assert_eq!((answer.code, &answer.body["status"]), (201, &Value::Null), "nobody answers: {answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_asks_without_a_plug_in() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "review-kubectl").await;
    let name = team.namespace.name.as_str();
    team.quota("none", &[("pods", "0")]).await;
    team.pod("held", &[]).await;
    until_told(&team.client, name, json!({ "pod": "held" }), |it| it["held"] == true).await;
    let spec = json!(QuotaReviewSpec { pod: Some("held".to_owned()), ..QuotaReviewSpec::default() });
    let file = manifest(bed, "review.json", &review(&spec).to_string());
    let create = ["create", "-n", name, "-f", &file, "--dry-run=server", "-o", "jsonpath={.status.text}"];
    let asked = || async {
        let (is_done, text, _) = kubectl_tries(bed, &create).await;
        (is_done && text.contains("held can never go")).then_some(())
    };
    wait::eventually(SOON, asked, "the answer").await.unwrap();
    let (is_done, _, error) = kubectl_tries(bed, &create[..5]).await;
    assert!(!is_done && error.contains("never stored"), "{error}");
}

fn bound(namespace: &str, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": user, "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_view_edit_or_administer_a_namespace_asks_there_and_nowhere_else() {
    let bed = shared().await.bed;
    let (team, other) = (Team::on(bed, "review-own").await, Team::on(bed, "review-other").await);
    let (own, others) = (team.namespace.name.as_str(), other.namespace.name.as_str());
    for team in [&team, &other] {
        team.quota("none", &[("pods", "0")]).await;
        team.pod("held", &[]).await;
    }
    for role in ["view", "edit", "admin"] {
        let user = format!("reviewer-who-may-{role}");
        bed.apply_objects([bound(own, role, &user)]).await.unwrap();
        let asked = || async {
            let (code, text) = ask_as(bed, &user, own).await;
            (code == Some(3) && text.contains("Source: leader ")).then_some(text)
        };
        let text = wait::eventually(SOON, asked, &format!("the answer to {user}")).await.unwrap();
        assert!(text.contains("held can never go") && !text.contains(others), "{text}");
        let (code, text) = ask_as(bed, &user, others).await;
        assert!(code == Some(4) && !text.contains("never go"), "{text}");
    }
}

async fn ask_as(bed: &Bed, user: &str, namespace: &str) -> (Option<i32>, String) {
    let output = crate::why::sluice(bed, &["why", "pod", "held", "-n", namespace, "--as", user]).await;
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_leader_the_answer_is_recomputed_and_says_why() {
    let bed = idle_bed().await;
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    let team = Team::plain(&bed, "review-gone").await;
    let name = team.namespace.name.as_str();
    team.quota("none", &[("pods", "0")]).await;
    team.pod("held", &[]).await;
    until_told(&team.client, name, json!({ "pod": "held" }), |it| it["held"] == true).await;
    running.controller.program.kill();
    running.controller.program.wait().await;
    let answer = ask(&team.client, name, &json!({ "pod": "held" })).await;
    assert!(
        !answer.is_ok() && answer.message().contains("no answer from the leading controller"),
        "{answer:?}"
    );
    let (text, _) = said(&bed, 3, &["why", "pod", "held", "-n", name]).await;
    assert!(text.contains("held can never go"), "{text}");
    assert!(text.contains("Source: recomputed from lists; the leader did not answer"), "{text}");
    running.webhook.program.kill();
    running.webhook.program.wait().await;
    let (text, _) = said(&bed, 3, &["why", "pod", "held", "-n", name]).await;
    assert!(text.contains("Source: recomputed from lists; the leader did not answer"), "{text}");
}
