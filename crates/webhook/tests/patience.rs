//! How long a target waits at most for head-room when an API server does not answer, by the clock of the test: KubeVirt's
//! controller creates no other target in the cluster meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, Response};
use common::{app, request, send};
use kube::Client;
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::{Endpoint, names};
use sluice_engine::ChargeRules;
use sluice_headroom::{Headroom, HeadroomMetrics, HeadroomSetup, ObservedLocks, Requests, StatusWriter};
use sluice_index::{KubeVirtWire, VmiWire, VmimWire};
use sluice_runtime::api_servers::Servers;
use sluice_runtime::client::ClientOptions;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::watch::Event;
use sluice_webhook::endpoints::headroom::HeadroomEndpoint;
use sluice_webhook::{Decision, router};
use tokio::sync::watch;
use tokio::time::Instant;

const CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";
const MIGRATION: &str = "0e5b1c52-51b5-4a1c-8a7d-9c1f2ad8a001";

/// What the watches have shown before the API server stops to answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    /// Not the pod in which the machine runs.
    MigrationAndMachine,
}

/// Head-room at an API server that takes requests and answers none.
fn headroom(known: Known) -> Arc<Headroom> {
    let service = tower::service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
    let client = Client::new(service, "default");
    let locks = ObservedLocks::new(Vec::new(), false);
    let observed = Arc::clone(locks.observed());
    let kubevirt: KubeVirtWire = serde_json::from_value(
        json!({ "metadata": { "name": "kubevirt", "namespace": "kubevirt", "uid": "k" } }),
    )
    .unwrap();
    observed.apply(&Event::Apply(kubevirt));
    if known == Known::MigrationAndMachine {
        let migration: VmimWire = serde_json::from_value(json!({
            "metadata": { "name": "mig", "namespace": "team", "uid": MIGRATION },
            "spec": { "vmiName": "web" }, "status": { "phase": "Pending" },
        }))
        .unwrap();
        let machine: VmiWire = serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "team", "uid": "v" },
            "status": { "phase": "Running", "nodeName": "node-1" },
        }))
        .unwrap();
        observed.apply(&Event::Apply(migration));
        observed.apply(&Event::Apply(machine));
    }
    let setup = HeadroomSetup {
        locks,
        requests: Requests::new(client.clone(), Arc::default()),
        writer: StatusWriter::new(client.clone(), client.clone(), Arc::default(), ApiWrites::default()),
        servers: Arc::new(Servers::new(client, ClientOptions::default())),
        metrics: HeadroomMetrics::default(),
        namespace: "sluice-system".to_owned(),
    };
    Headroom::new(setup, |_| {})
}

fn target() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "operation": "CREATE",
            "namespace": "team", "name": "virt-launcher-web-x", "dryRun": false, "userInfo": { "username": CONTROLLER },
            "object": {
                "metadata": {
                    "name": "virt-launcher-web-x", "namespace": "team", "uid": "7b0c6f7e-6a0e-4c9b-9d27-0d1f6f0f7a11",
                    "labels": { names::MIGRATION_JOB_LABEL: MIGRATION },
                    "annotations": { names::MIGRATION_NAME_ANNOTATION: "mig" },
                },
                "spec": { "containers": [{ "name": "compute", "resources": { "requests": { "memory": "1Gi" } } }] },
            },
        },
    })
}

#[rstest]
#[case::while_its_migration_is_read(Known::Nothing)]
#[case::while_the_pods_of_its_machine_are_read(Known::MigrationAndMachine)]
#[tokio::test(start_paused = true)]
async fn a_target_waits_for_a_second_at_most(#[case] known: Known) {
    let rules = watch::channel(ChargeRules::for_minor(36)).1;
    let endpoint = Arc::new(HeadroomEndpoint::new(headroom(known), rules));
    let service = router(&app(), [(Endpoint::Headroom, Decision::Async(endpoint))]);
    let asked = Instant::now();
    let (_, _, body) = send(service, request("/headroom", target().to_string())).await;
    let answer = serde_json::from_slice::<Value>(&body).unwrap()["response"].clone();
    assert_eq!(answer["allowed"], true, "the quota judges");
    assert_eq!(asked.elapsed(), Duration::from_secs(1), "{answer}");
}
