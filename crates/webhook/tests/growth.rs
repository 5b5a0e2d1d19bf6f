//! Growth of pods and VMs: what is asked, and how each decision is told.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::sync::Arc;

use axum::http::StatusCode;
use common::{TENANT, app, pod_create, pod_update, request, review, send};
use futures::FutureExt as _;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::Endpoint;
use sluice_index::{VmiRecord, VmiWire};
use sluice_runtime::leader::LeaderLink;
use sluice_webhook::endpoints::growth::{Growth, GrowthLeader, GrowthRelay, GrowthVerdict, Update};
use sluice_webhook::{AsyncEndpoint, Decision, router};

const PATH: &str = "/growth";
const VIRT_CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

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

/// As virt-controller updates it, with more CPUs.
fn machine_update() -> Value {
    let vmi = |sockets: u32| {
        json!({
            "metadata": { "name": "vm", "namespace": "team", "uid": "1", "resourceVersion": "7" },
            "spec": { "domain": { "cpu": { "sockets": sockets }, "memory": { "guest": "1Gi" } } },
            "status": { "currentCPUTopology": { "sockets": 1 } },
        })
    };
    review("VirtualMachineInstance", "UPDATE", VIRT_CONTROLLER, &vmi(2), &vmi(1))
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
    let Growth { update: Update::Pod(pod, _), dry_run } = asked.unwrap() else { panic!("no pod") };
    let cpu = |pod: &sluice_index::PodWire| {
        let list = pod.spec.containers[0].resources.as_ref().unwrap().requests.clone().unwrap();
        list.0[0].1.0.to_string()
    };
    assert_eq!((cpu(&pod.before), cpu(&pod.after), dry_run), ("1".to_owned(), "2".to_owned(), true));
}

#[rstest]
#[tokio::test]
async fn the_leader_is_asked_about_the_vm_as_it_is_and_as_it_is_to_be(#[values(false, true)] dry: bool) {
    let mut review = machine_update();
    review["request"]["dryRun"] = json!(dry);
    let (answer, asked) = judged(&review, GrowthVerdict::Allowed).await;
    assert_eq!(answer["allowed"], true);
    let Growth { update: Update::Machine(vm), dry_run } = asked.unwrap() else { panic!("no VM") };
    let sockets = |vmi: &VmiWire| VmiRecord::read(vmi).size.clone().unwrap().topology.unwrap().sockets;
    assert_eq!((sockets(&vm.before), sockets(&vm.after), dry_run), (1, 2, dry));
}

#[rstest]
#[case::pod(pod_update(TENANT, &pod("1"), &pod("2")))]
#[case::vm(machine_update())]
#[tokio::test]
async fn a_refusal_has_the_words_of_the_quota(#[case] review: Value) {
    let (answer, _) = judged(&review, GrowthVerdict::Refused("exceeded quota: q".to_owned())).await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(answer["status"], json!({ "metadata": {}, "message": "exceeded quota: q", "code": 403 }));
}

/// client-go tries again by itself when there is a time to wait.
fn is_to_be_tried_again(answer: &Value, whose: &str, why: &str) {
    let message = format!("could not charge the {whose}'s quotas: {why}; try again");
    let status = json!({
        "metadata": {}, "message": message, "reason": "TooManyRequests", "details": { "retryAfterSeconds": 1 }, "code": 429,
    });
    assert_eq!((&answer["allowed"], &answer["status"]), (&json!(false), &status));
}

#[rstest]
#[case::pod("pod", pod_update(TENANT, &pod("1"), &pod("2")))]
#[case::vm("VM", machine_update())]
#[tokio::test]
async fn what_is_not_decided_is_to_be_tried_again(#[case] whose: &str, #[case] review: Value) {
    let (answer, _) = judged(&review, GrowthVerdict::Undecided("the leader changes".to_owned())).await;
    is_to_be_tried_again(&answer, whose, "the leader changes");
}

#[rstest]
#[case::pod("pod", pod_update(TENANT, &pod("1"), &pod("2")))]
#[case::vm("VM", machine_update())]
#[tokio::test]
async fn without_a_leader_nothing_is_let_in(#[case] whose: &str, #[case] review: Value) {
    let link = LeaderLink::new("sluice-metrics.sluice-system.svc".to_owned());
    let answer = answer(serving(GrowthRelay::new(link)), &review).await;
    is_to_be_tried_again(&answer, whose, "no leader is known");
}

/// The update of a VM, changed at one place.
fn machine_update_but(path: &str, value: Value) -> Value {
    let mut review = machine_update();
    *review.pointer_mut(path).unwrap() = value;
    review
}

#[rstest]
#[case::creation(pod_create(TENANT, &pod("1")))]
#[case::no_pod(pod_update(TENANT, &json!("a"), &pod("1")))]
#[case::containers_of_another_type(pod_update(TENANT, &pod("1"), &json!({ "spec": { "containers": 5 } })))]
#[case::creation_of_a_vm(machine_update_but("/request/operation", json!("CREATE")))]
#[case::deletion_of_a_vm(machine_update_but("/request/operation", json!("DELETE")))]
#[case::no_vm(machine_update_but("/request/oldObject", json!("a")))]
#[case::no_vm_before(machine_update_but("/request/oldObject", json!(null)))]
#[case::domain_of_another_type(machine_update_but("/request/object/spec/domain", json!(5)))]
#[case::another_kind(machine_update_but("/request/kind/kind", json!("VirtualMachine")))]
#[tokio::test]
async fn what_is_no_update_of_a_pod_or_a_vm_is_refused(#[case] review: Value) {
    let (answer, asked) = judged(&review, GrowthVerdict::Allowed).await;
    assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(400)), "{answer}");
    assert!(asked.is_none());
}
