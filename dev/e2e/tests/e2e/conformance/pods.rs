//! Pods under the standard quota: held, counted, released.

use http::Method;
use serde_json::json;
use sluice_e2e::call::{JSON, call, get};

use super::spec::{ARQ_COUNT, Amounts, DONGLES, QUOTA, Spec, pod};
use crate::context::gates;

#[tokio::test]
async fn life_of_a_pod() {
    let spec = Spec::standard("pod", &[]).await;
    let dongles = ("example.com/dongle", "2");
    let requests = &[("cpu", "500m"), ("memory", "252Mi"), ("ephemeral-storage", "30Gi"), dongles];
    let used: Amounts<'_> = &[
        (ARQ_COUNT, "1"),
        ("pods", "1"),
        ("cpu", "500m"),
        ("memory", "252Mi"),
        ("ephemeral-storage", "30Gi"),
        (DONGLES, "2"),
    ];
    spec.pod(&pod("test-pod", requests, &[dongles])).await;
    spec.until_not_gated("test-pod").await;
    spec.assert_used(QUOTA, used).await;

    let more_cpu = pod("fail-pod", &[("cpu", "600m"), ("memory", "100Mi")], &[]);
    let requests = &[("cpu", "500m"), ("memory", "100Mi"), ("ephemeral-storage", "30Gi"), dongles];
    let more_dongles = pod("fail-pod-for-extended-resource", requests, &[dongles]);
    for pod in [more_cpu, more_dongles] {
        let name = pod["metadata"]["name"].as_str().unwrap();
        spec.pod(&pod).await;
        spec.until_gated(name, QUOTA).await;
        spec.delete_pod(name).await;
    }

    let path = spec.team.path("pods/test-pod");
    let mut there = get(&spec.team.client, &path).await.unwrap().body;
    there["spec"]["containers"][0]["resources"]["requests"] =
        json!({ "cpu": "100m", "memory": "100Mi", "ephemeral-storage": "10Gi" });
    let refused = call(&spec.team.client, Method::PUT, &path, JSON, &there).await.unwrap();
    assert_eq!(refused.code, 422, "{refused:?}");
    spec.assert_used(QUOTA, used).await;

    spec.delete_pod("test-pod").await;
    let none: Vec<_> = used[1..].iter().map(|(key, _)| (*key, "0")).collect();
    spec.until_used(QUOTA, &none).await;
    spec.assert_used(QUOTA, &[(ARQ_COUNT, "1")]).await;
}

#[tokio::test]
async fn a_gated_pod_is_released_by_a_raised_quota() {
    let spec = Spec::standard("raised", &[]).await;
    spec.pod(&pod("test-pod", &[("memory", "600Mi")], &[])).await;
    spec.until_gated("test-pod", QUOTA).await;
    let raise = kube::api::Patch::Merge(json!({ "spec": { "hard": { "memory": "600Mi" } } }));
    spec.team.quotas.patch(QUOTA, &Default::default(), &raise).await.unwrap();
    spec.until_not_gated("test-pod").await;
}

#[tokio::test]
async fn a_gated_pod_is_released_when_another_is_deleted() {
    let spec = Spec::standard("room", &[]).await;
    spec.pod(&pod("test-pod1", &[("memory", "300Mi")], &[])).await;
    spec.until_not_gated("test-pod1").await;
    spec.pod(&pod("test-pod2", &[("memory", "300Mi")], &[])).await;
    spec.until_gated("test-pod2", QUOTA).await;
    spec.delete_pod("test-pod1").await;
    spec.until_not_gated("test-pod2").await;
}

/// That it is not decided on while another gate holds it shows in a later pod, which gets all the room.
#[tokio::test]
async fn a_pod_with_another_gate_is_released_when_that_is_removed() {
    let spec = Spec::standard("other-gate", &[]).await;
    let mut two_gates = pod("test-pod1", &[("memory", "300Mi")], &[]);
    two_gates["spec"]["schedulingGates"] = json!([{ "name": "testGate" }]);
    spec.pod(&two_gates).await;
    spec.pod(&pod("later", &[("memory", "500Mi")], &[])).await;
    spec.until_not_gated("later").await;
    spec.delete_pod("later").await;
    let path = spec.team.path("pods/test-pod1");
    let mut there = get(&spec.team.client, &path).await.unwrap().body;
    assert_eq!(gates(&there), ["testGate", sluice_api::names::GATE]);
    there["spec"]["schedulingGates"] = json!([{ "name": sluice_api::names::GATE }]);
    let answer = call(&spec.team.client, Method::PUT, &path, JSON, &there).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    spec.until_not_gated("test-pod1").await;
}

/// A pod without a node selector, as upstream has it here: only the gate keeps it from nodes.
#[tokio::test]
async fn a_held_pod_has_an_event_that_says_why() {
    let spec = Spec::standard("event", &[]).await;
    let mut blocked = pod("pod-test", &[("cpu", "500m"), ("memory", "50Gi")], &[]);
    blocked["spec"].as_object_mut().unwrap().remove("nodeSelector");
    spec.pod(&blocked).await;
    spec.until_gated("pod-test", QUOTA).await;
}
