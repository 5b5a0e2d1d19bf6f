//! Resizes without `pods/resize`: up to Kubernetes 1.31, with the feature gate `InPlacePodVerticalScaling`, an update of the
//! pod itself changes its resources. There is no mutating policy either, so the webhook gates.
//!
//! `make soak` runs it with `SLUICE_KUBERNETES_VERSION=1.31`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[allow(dead_code, reason = "the suites of `e2e` need more of it")]
#[path = "../e2e/context.rs"]
mod context;
#[allow(dead_code, reason = "the suites of `e2e` need more of it")]
#[path = "../e2e/team.rs"]
mod team;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::WebhookEntry;
use sluice_e2e::objects::is_held;
use sluice_e2e::{Running, Setup, call};
use sluice_manifests::Gating;
use sluice_testbed::{Bed, BedOptions};

use crate::context::{idle_options, used_of};
use crate::team::Team;

/// What a client is told; `None` if the request was done.
type Refusal = Option<(u16, String)>;

/// An update of the pod, not of a subresource.
async fn update(team: &Team, name: &str, requests: &[(&str, &str)], dry_run: bool) -> Refusal {
    let requests: serde_json::Map<_, _> =
        requests.iter().map(|(key, amount)| ((*key).to_owned(), json!(amount))).collect();
    let resources = json!({ "containers": [{ "name": "main", "resources": { "requests": requests } }] });
    let params = PatchParams { dry_run, ..PatchParams::default() };
    match team.pods.patch(name, &params, &Patch::Strategic(json!({ "spec": resources }))).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some((status.code, status.message.clone())),
        Err(error) => panic!("no answer: {error}"),
    }
}

fn exceeded(requested: &str, used: &str, limited: &str) -> Refusal {
    let words = format!("exceeded quota: compute, requested: {requested}, used: {used}, limited: {limited}");
    let webhook = WebhookEntry::GROWTH.name;
    Some((403, format!("admission webhook \"{webhook}\" denied the request: {words}")))
}

/// What the pod asks for of CPU.
async fn cpu(team: &Team, name: &str) -> String {
    let pod: Pod = team.pods.get(name).await.unwrap();
    pod.spec.unwrap().containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0.clone()
}

async fn used(team: &Team) -> Option<String> {
    used_of(team.quotas.get_opt("compute").await.unwrap().as_ref(), "requests.cpu")
}

/// Nothing but updates can resize there, and nothing but a webhook can gate.
async fn assert_old(client: &Client) {
    let version = client.apiserver_version().await.unwrap();
    assert_eq!(version.minor, "31", "run it with SLUICE_KUBERNETES_VERSION=1.31");
    for (group_version, absent) in
        [("/api/v1", "pods/resize"), ("/apis/admissionregistration.k8s.io/v1", "mutatingadmissionpolicies")]
    {
        let served = call::get(client, group_version).await.unwrap().body;
        let resources = served["resources"].as_array().unwrap();
        assert!(
            resources.len() > 1 && resources.iter().all(|resource| resource["name"] != absent),
            "{served}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_takes_what_there_is_and_no_more() {
    let api_server_args = vec!["--feature-gates=InPlacePodVerticalScaling=true".to_owned()];
    let bed = Bed::start(BedOptions { api_server_args, ..idle_options() }).await.unwrap();
    assert_old(&bed.admin().unwrap()).await;
    let sluice = Running::on(&bed, Setup::default()).await.unwrap();
    sluice.installation.until_gated_by(&bed.admin().unwrap(), Gating::Webhook).await.unwrap();
    let team = Team::plain(&bed, "update").await;
    team.quota("compute", &[("requests.cpu", "1"), ("requests.memory", "1Gi")]).await;
    for (name, cpu) in [("a", "300m"), ("b", "200m")] {
        let created = team.pod(name, &[("cpu", cpu), ("memory", "100Mi")]).await;
        assert!(is_held(&created), "gated when it is created");
        team.until_released(name).await;
    }
    team.until_used("compute", "requests.cpu", "500m").await;

    assert_eq!(update(&team, "a", &[("cpu", "700m")], false).await, None);
    assert_eq!(used(&team).await.as_deref(), Some("900m"), "recorded before it was done");
    assert_eq!(cpu(&team, "a").await, "700m");

    let refused = exceeded("requests.cpu=101m", "requests.cpu=900m", "requests.cpu=1");
    assert_eq!(update(&team, "b", &[("cpu", "301m")], false).await, refused);
    assert_eq!(cpu(&team, "b").await, "200m");
    let refused = exceeded("requests.memory=901Mi", "requests.memory=200Mi", "requests.memory=1Gi");
    assert_eq!(update(&team, "b", &[("memory", "1001Mi")], false).await, refused);
    assert_eq!(update(&team, "b", &[("cpu", "300m")], true).await, None, "a dry run");
    assert_eq!(used(&team).await.as_deref(), Some("900m"), "takes nothing");

    // A pod that is held takes nothing yet, and waits for the room that it asks for at last.
    team.pod("c", &[("cpu", "200m"), ("memory", "100Mi")]).await;
    assert_eq!(update(&team, "c", &[("cpu", "600m")], false).await, None);
    // Less makes room, and lets it in.
    assert_eq!(update(&team, "a", &[("cpu", "150m")], false).await, None);
    team.until_released("c").await;
    team.until_used("compute", "requests.cpu", "950m").await;
    assert_eq!(update(&team, "b", &[("cpu", "250m")], false).await, None);
    assert_eq!(used(&team).await.as_deref(), Some("1"));
}
