//! Pods of which a tenant has made a list or a map as long as etcd takes: those who have to write them still can.

use http::Method;
use kube::Client;
use serde_json::{Map, Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON_PATCH, Response, STRATEGIC, call};

use crate::gate_policies::world::asleep;
use crate::pods::{assert_refused, pod};
use crate::team::Team;

/// So many items fit into a request.
const MANY: usize = 32_000;

fn owned(name: &str) -> Value {
    let mut pod = pod(name);
    let owner = |n: usize| json!({ "apiVersion": "v1", "kind": "A", "name": "a", "uid": format!("{n:x}") });
    pod["metadata"]["ownerReferences"] = (0..MANY).map(owner).collect();
    pod
}

fn labelled(name: &str, count: usize) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["labels"] =
        (0..count).map(|n| (format!("k{n:x}"), json!(""))).collect::<Map<_, _>>().into();
    pod
}

async fn patch(client: &Client, path: &str, content_type: &str, patch: &Value) -> Response {
    call(client, Method::PATCH, path, content_type, patch).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_too_many_owners_is_still_written_by_those_who_have_to() {
    let bed = asleep().await;
    let team = Team::with(bed, "owned", &[]).await;
    let answer = team.create(&owned("owned")).await;
    assert!(answer.is_ok(), "{}", answer.message());
    let (path, first) =
        (team.path("pods/owned"), json!([{ "op": "remove", "path": "/metadata/ownerReferences/0" }]));
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let answer = patch(&team.client, &format!("{path}/status"), STRATEGIC, &ready).await;
    assert!(answer.is_ok(), "{}", answer.message());
    // The guard does not search a list of this length for a virtual machine.
    let answer = patch(&team.client, &path, JSON_PATCH, &first).await;
    assert_refused(&answer, &[names::GUARD_POLICY, "metadata.ownerReferences"]);
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let collector = bed.client_as_user(collector, &["system:masters"]).unwrap();
    let answer = patch(&collector.client().unwrap(), &path, JSON_PATCH, &first).await;
    assert!(answer.is_ok(), "{}", answer.message());
}

/// With as many labels as etcd takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_the_most_labels_is_released() {
    let bed = asleep().await;
    let team = Team::on(bed, "labels").await;
    let answer = team.create(&labelled("labelled", 45_000)).await;
    assert!(answer.is_ok(), "{}", answer.message());
    let controller = bed.service_account(names::INSTALL_NAMESPACE, names::CONTROLLER).await.unwrap();
    let controller = controller.client().unwrap();
    let release = json!([
        { "op": "test", "path": "/spec/schedulingGates", "value": [{ "name": names::GATE }] },
        { "op": "remove", "path": "/spec/schedulingGates" },
    ]);
    let answer = patch(&controller, &team.path("pods/labelled"), JSON_PATCH, &release).await;
    assert!(answer.is_ok(), "{}", answer.message());
}
