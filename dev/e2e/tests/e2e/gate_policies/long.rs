//! Pods of which a tenant has made a list or a map as long as etcd takes: what is written of them costs API servers no more time
//! for our policies than a part of what it costs without.

use std::time::{Duration, Instant};

use http::Method;
use kube::Client;
use serde_json::{Map, Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON_PATCH, MERGE, Response, STRATEGIC, call};
use sluice_e2e::{Running, Setup};
use sluice_testbed::wait;

use crate::context::{SOON, idle_bed};
use crate::gate_policies::world::{asleep, assert_refused, delete, pod, policy_path, with_gates};
use crate::team::Team;

/// So many items fit into a request.
const MANY: usize = 32_000;

fn owned(name: &str) -> Value {
    let mut pod = pod(name);
    let owner = |n: usize| json!({ "apiVersion": "v1", "kind": "A", "name": "a", "uid": format!("{n:x}") });
    pod["metadata"]["ownerReferences"] = (0..MANY).map(owner).collect();
    pod
}

fn gated(name: &str) -> Value {
    // etcd takes no more: who manages each of them is recorded too.
    let gates: Vec<String> = (0..MANY / 2).map(|n| format!("{n:x}")).collect();
    with_gates(pod(name), &gates.iter().map(String::as_str).collect::<Vec<_>>())
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

/// How long a patch of a label takes.
async fn labelling(team: &Team, name: &str) -> Duration {
    let mut took = Vec::new();
    for round in 0..5 {
        let (path, label) = (
            team.path(&format!("pods/{name}")),
            json!({ "metadata": { "labels": { "r": round.to_string() } } }),
        );
        let start = Instant::now();
        let answer = patch(&team.client, &path, MERGE, &label).await;
        took.push(start.elapsed());
        assert!(answer.is_ok(), "{name}: {}", answer.message());
    }
    took.sort_unstable();
    took[2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_cost_no_more_than_a_part_of_what_they_cost_without_us() {
    let bed = idle_bed().await;
    Running::on(&bed, Setup::default()).await.unwrap().kill_all().await.unwrap();
    let team = Team::with(&bed, "long", &[]).await;
    let pods =
        [("owned", owned("owned")), ("gated", gated("gated")), ("labelled", labelled("labelled", MANY))];
    let mut with = Vec::new();
    for (name, pod) in &pods {
        let answer = team.create(pod).await;
        assert!(answer.is_ok(), "{name}: {}", answer.message());
        with.push(labelling(&team, name).await);
    }
    assert!(team.create(&pod("plain")).await.is_ok());
    for (kind, name) in [("validating", names::GUARD_POLICY), ("mutating", names::STAMP_POLICY)] {
        delete(&team.client, &policy_path(&format!("{kind}admissionpolicybindings"), name)).await;
    }
    // By no webhook.
    let forged = json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x", "controller": true }] } });
    let path = team.path("pods/plain?dryRun=All");
    let unguarded = || async { patch(&team.client, &path, MERGE, &forged).await.is_ok().then_some(()) };
    wait::eventually(SOON, unguarded, "the guard to be gone").await.unwrap();
    for ((name, _), with) in pods.iter().zip(with) {
        let without = labelling(&team, name).await;
        println!("{name}: {with:?} with our policies, {without:?} without");
        assert!(with < without * 2, "{name}: {with:?} instead of {without:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_too_many_owners_is_still_written_by_those_who_have_to() {
    let bed = asleep().await;
    let team = Team::with(bed, "owned", &[]).await;
    let answer = team.create(&owned("owned")).await;
    assert!(answer.is_ok(), "{}", answer.message());
    let (path, first) =
        (team.path("pods/owned"), json!([{ "op": "remove", "path": "/metadata/ownerReferences/0" }]));
    let kubelet = bed.client_as_user("system:node:n", &["system:nodes", "system:masters"]).unwrap();
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let answer = patch(&kubelet.client().unwrap(), &format!("{path}/status"), STRATEGIC, &ready).await;
    assert!(answer.is_ok(), "{}", answer.message());
    // Among so many nobody looks for a virtual machine.
    let answer = patch(&team.client, &path, JSON_PATCH, &first).await;
    assert_refused(&answer, &[names::GUARD_POLICY, "metadata.ownerReferences"]);
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let collector = bed.client_as_user(collector, &["system:masters"]).unwrap();
    let answer = patch(&collector.client().unwrap(), &path, JSON_PATCH, &first).await;
    assert!(answer.is_ok(), "{}", answer.message());
}

/// In the time that a release is given.
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
    let start = Instant::now();
    let answer = patch(&controller, &team.path("pods/labelled"), JSON_PATCH, &release).await;
    assert!(answer.is_ok(), "{}", answer.message());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
