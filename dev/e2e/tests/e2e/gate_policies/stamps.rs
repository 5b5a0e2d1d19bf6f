//! The stamp says who created a pod, by whatever way a client writes annotations, while no process of Sluice is alive.

use http::Method;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names::{self, CREATED_BY_ANNOTATION as STAMP};
use sluice_e2e::call::{APPLY, JSON, MERGE, call, get, post};

use crate::context::gates;
use crate::gate_policies::world::asleep;
use crate::pods::{assert_gated, assert_refused, pod, stamp, with_stamp};
use crate::team::Team;

const FORGED: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

/// In a namespace that is targeted, and in one that may be targeted later.
#[rstest]
#[case::targeted(true)]
#[case::banked(false)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stamp_is_forged_in_no_way(#[case] targeted: bool) {
    let bed = asleep().await;
    let team = if targeted { Team::on(bed, "forge").await } else { Team::with(bed, "bank", &[]).await };
    assert!(team.create(&pod("p")).await.is_ok());
    let before = get(&team.client, &team.path("pods/p")).await.unwrap().body;
    let truth = stamp(&before).map(str::to_owned);
    assert_eq!(truth.is_some(), targeted);
    let forged = json!({ "metadata": { "annotations": { STAMP: FORGED } } });
    let mut put = with_stamp(before.clone(), FORGED);
    put["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let mut applied = pod("p");
    applied["metadata"]["annotations"] = json!({ STAMP: FORGED });
    let status_apply = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "annotations": { STAMP: FORGED } },
        "status": { "message": "x" },
    });
    for (method, path, kind, body) in [
        (Method::PATCH, "pods/p", MERGE, &forged),
        (Method::PUT, "pods/p", JSON, &put),
        (Method::PATCH, "pods/p?fieldManager=x&force=true", APPLY, &applied),
        (Method::PATCH, "pods/p/status", MERGE, &forged),
        (Method::PUT, "pods/p/status", JSON, &put),
        (Method::PATCH, "pods/p/status?fieldManager=x&force=true", APPLY, &status_apply),
    ] {
        let answer = call(&team.client, method.clone(), &team.path(path), kind, body).await.unwrap();
        assert_refused(&answer, &[names::GUARD_POLICY, STAMP]);
    }
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p", "annotations": { STAMP: FORGED } },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "n" },
    });
    for path in ["pods/p/binding", "bindings"] {
        let answer = post(&team.client, &team.path(path), &binding).await.unwrap();
        assert_refused(&answer, &[names::GUARD_POLICY, STAMP]);
    }
    // Subresources that carry no annotations have none to refuse.
    for path in ["pods/p/ephemeralcontainers", "pods/p/resize"] {
        let _ = call(&team.client, Method::PATCH, &team.path(path), MERGE, &forged).await.unwrap();
    }
    let after = get(&team.client, &team.path("pods/p")).await.unwrap().body;
    assert_eq!(stamp(&after).map(str::to_owned), truth);
    // What is normal passes.
    for (path, body) in [
        ("pods/p/status", json!({ "status": { "message": "x" } })),
        ("pods/p", json!({ "metadata": { "annotations": { "other": "x" } } })),
    ] {
        let answer = call(&team.client, Method::PATCH, &team.path(path), MERGE, &body).await.unwrap();
        assert!(answer.is_ok(), "{path}: {answer:?}");
    }
    if !targeted {
        let mut binding = binding;
        binding["metadata"]["annotations"] = json!({ "other": "x" });
        let answer = post(&team.client, &team.path("pods/p/binding"), &binding).await.unwrap();
        assert!(answer.is_ok(), "schedulers bind as ever: {answer:?}");
        banked_does_not_count(&team).await;
    }
}

/// Targeted now: new pods are stamped with the truth, and nothing of before can be made to look like it.
async fn banked_does_not_count(team: &Team) {
    team.label(json!({ names::TARGET_LABEL: "true" })).await;
    let gated =
        || async { Some(team.tries(&pod("probe")).await).filter(|answer| !gates(&answer.body).is_empty()) };
    sluice_testbed::wait::eventually(crate::context::SOON, gated, "the namespace to be targeted")
        .await
        .unwrap();
    let banked = get(&team.client, &team.path("pods/p")).await.unwrap();
    assert_eq!(stamp(&banked.body), None);
}

/// `kubectl replace` and reconcilers send objects without what they do not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_leaves_the_stamp_out_keeps_it() {
    let bed = asleep().await;
    let team = Team::on(bed, "put").await;
    let tenant = bed.tenant(&team.namespace).await.unwrap();
    assert!(team.create_by(&tenant.client().unwrap(), &pod("p")).await.is_ok());
    let drop_annotations = |mut pod: Value| {
        pod["metadata"].as_object_mut().unwrap().remove("annotations");
        pod["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        pod
    };
    let mut put = drop_annotations(get(&team.client, &team.path("pods/p")).await.unwrap().body);
    put["metadata"]["labels"] = json!({ "round": "1" });
    let answer = call(&team.client, Method::PUT, &team.path("pods/p"), JSON, &put).await.unwrap();
    assert_gated(&answer, tenant.user());
    // Kubelets patch the status. Who replaces it has to send all of the pod.
    let answer = call(&team.client, Method::PUT, &team.path("pods/p/status"), JSON, &put).await.unwrap();
    assert_refused(&answer, &[names::GUARD_POLICY, STAMP]);
    let file = bed.dir().join("replace.json");
    let mut bare = drop_annotations(get(&team.client, &team.path("pods/p")).await.unwrap().body);
    bare["metadata"]["labels"] = json!({ "replaced": "yes" });
    std::fs::write(&file, bare.to_string()).unwrap();
    let output = bed.kubectl(["replace", "--filename", &file.display().to_string()]).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let after = get(&team.client, &team.path("pods/p")).await.unwrap();
    assert_gated(&after, tenant.user());
    assert_eq!(after.body["metadata"]["labels"]["replaced"], "yes");
}
