//! Fifty namespaces release at once from one cluster quota while the controller is killed and the API server restarts.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use sluice_api::{ApplicationAwareClusterResourceQuota as Acrq, names};
use sluice_e2e::objects::{TARGETED, apply_aaq, from_json, is_held};
use sluice_testbed::{Bed, wait};

use super::world::{Overseer, delete_released, installed, kill, stop};
use crate::context::{SOON, idle_bed};
use crate::team::Team;

const NAMESPACES: usize = 50;
const PODS: usize = 6;
/// Of 300.
const FIT: usize = 100;

async fn owner(bed: &Bed) -> Vec<Team> {
    let client = bed.admin().unwrap();
    let spec = json!({ "configuration": { "allowApplicationAwareClusterResourceQuota": true } });
    apply_aaq(&client, spec).await.unwrap();
    let quota: Acrq = from_json(json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
        "metadata": { "name": "fifty" },
        "spec": {
            "quota": { "hard": { "pods": FIT.to_string() } },
            "selector": { "labels": { "matchLabels": { "owner": "fifty" } } },
        },
    }));
    Api::<Acrq>::all(client).create(&PostParams::default(), &quota).await.unwrap();
    let labels: Vec<(&str, &str)> = TARGETED.iter().copied().chain([("owner", "fifty")]).collect();
    let teams = (0..NAMESPACES).map(|_| async {
        let team = Team::with(bed, "fifty", &labels).await;
        team.gated_pods(PODS).await;
        team
    });
    futures::stream::iter(teams).buffer_unordered(4).collect().await
}

async fn until_released(pods: &Api<Pod>, count: usize) {
    let go = || async {
        let pods = pods.list(&ListParams::default()).await.ok()?;
        (pods.items.iter().filter(|pod| !is_held(pod)).count() >= count).then_some(())
    };
    wait::eventually(SOON, go, &format!("{count} pods to be released")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_fits_whoever_is_killed() {
    let bed = idle_bed().await;
    let mut installation = installed(&bed).await;
    let teams = owner(&bed).await;
    let pods: Api<Pod> = Api::all(bed.admin().unwrap());
    let overseer = Overseer::over(pods.clone());
    // Each time in the middle of its releases.
    for so_many in [1, 20, 60] {
        let controller = installation.controller().await.unwrap();
        until_released(&pods, so_many).await;
        kill(controller).await;
    }
    // A server that restarts takes longer than a short lease lives.
    installation.add_controller_args(&["--lease-duration=20s", "--lease-renew-deadline=15s"]);
    let controller = installation.controller().await.unwrap();
    until_released(&pods, FIT).await;
    bed.restart_api_server().await.unwrap();
    for team in teams.iter().take(10) {
        delete_released(team, 1).await;
    }
    let quotas = Api::<Acrq>::all(bed.admin().unwrap());
    let sums_up = |quota: Option<&Acrq>| {
        let Some(status) = quota.and_then(|quota| quota.status.as_ref()) else { return false };
        let number = |amounts: &sluice_api::QuotaAmounts| {
            amounts.used.get("pods").and_then(|used| used.0.parse().ok())
        };
        let each = status.namespaces.iter().flatten().filter_map(|entry| number(&entry.status));
        number(&status.total) == Some(FIT) && each.sum::<usize>() == FIT
    };
    wait::wait_for(&quotas, "fifty", Duration::from_secs(90), "a status that sums up", sums_up)
        .await
        .unwrap();
    // The last ones are charged before they go.
    until_released(&pods, FIT).await;
    assert!(overseer.most() <= FIT, "{} pods were released at the same time, {FIT} fit", overseer.most());
    stop(controller).await;
}
