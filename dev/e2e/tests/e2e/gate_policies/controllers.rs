//! Of which virtual machine a pod is stays as it is, whatever a client that may update pods writes.

use http::Method;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, MERGE, Response, call, get};

use crate::gate_policies::world::{asleep, assert_refused, pod};
use crate::team::Team;

fn reference(kind: &str, uid: &str, controller: bool) -> Value {
    let version = if kind == "VirtualMachineInstance" { "kubevirt.io/v1" } else { "v1" };
    json!({ "apiVersion": version, "kind": kind, "name": "x", "uid": uid, "controller": controller })
}

async fn refer(client: &kube::Client, team: &Team, name: &str, references: &[Value]) -> Response {
    let path = team.path(&format!("pods/{name}"));
    let body = json!({ "metadata": { "ownerReferences": references } });
    call(client, Method::PATCH, &path, MERGE, &body).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_a_virtual_machine_stays_one_of_it() {
    let bed = asleep().await;
    let team = Team::on(bed, "owners").await;
    let vm = |uid| reference("VirtualMachineInstance", uid, true);
    for (name, references) in [("launcher", vec![vm("a")]), ("plain", vec![])] {
        let mut pod = pod(name);
        pod["metadata"]["ownerReferences"] = json!(references);
        assert!(team.create(&pod).await.is_ok());
    }
    for (name, references) in [
        ("launcher", vec![vm("b")]),
        ("launcher", vec![]),
        ("launcher", vec![reference("VirtualMachineInstance", "a", false)]),
        ("launcher", vec![reference("VirtualMachineInstance", "a", false), reference("Pod", "a", true)]),
        ("plain", vec![vm("a")]),
        ("plain", vec![reference("Pod", "a", true)]),
    ] {
        let answer = refer(&team.client, &team, name, &references).await;
        assert_refused(&answer, &[names::GUARD_POLICY, "metadata.ownerReferences"]);
    }
    let mut put = get(&team.client, &team.path("pods/launcher")).await.unwrap().body;
    put["metadata"]["ownerReferences"] = json!([vm("b")]);
    let answer = call(&team.client, Method::PUT, &team.path("pods/launcher"), JSON, &put).await.unwrap();
    assert_refused(&answer, &[names::GUARD_POLICY, "metadata.ownerReferences"]);

    // Others may be added and taken away, before it too.
    let other = || reference("ConfigMap", "c", false);
    for references in [vec![other(), vm("a")], vec![vm("a")]] {
        let answer = refer(&team.client, &team, "launcher", &references).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    for references in [vec![reference("ReplicaSet", "r", true)], vec![]] {
        let answer = refer(&team.client, &team, "plain", &references).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    // As when a virtual machine is deleted and its pods are to stay.
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let collector = bed.client_as_user(collector, &["system:masters"]).unwrap();
    let answer = refer(&collector.client().unwrap(), &team, "launcher", &[]).await;
    assert!(answer.is_ok(), "{answer:?}");
}
