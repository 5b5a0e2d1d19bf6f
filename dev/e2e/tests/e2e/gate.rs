//! Pods wait for their quota and go when there is room.

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use sluice_e2e::objects::is_held;
use sluice_testbed::wait;

use crate::context::{SOON, shared, used_of};
use crate::team::Team;

#[tokio::test]
async fn a_pod_that_fits_is_charged_and_released() {
    let team = Team::on(shared().await.bed, "fits").await;
    team.quota("compute", &[("requests.cpu", "2"), ("pods", "5")]).await;
    let created = team.pod("a", &[("cpu", "500m")]).await;
    assert!(is_held(&created), "a new pod is gated");
    team.until_released("a").await;
    team.until_used("compute", "requests.cpu", "500m").await;
    team.until_used("compute", "pods", "1").await;
}

#[tokio::test]
async fn a_pod_that_does_not_fit_waits_and_is_told_why() {
    let team = Team::on(shared().await.bed, "waits").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.pod("a", &[("cpu", "800m")]).await;
    team.until_released("a").await;
    team.pod("b", &[("cpu", "300m")]).await;
    let events: kube::Api<k8s_openapi::api::events::v1::Event> =
        kube::Api::namespaced(team.client.clone(), &team.namespace.name);
    let told = || async {
        let events = events.list(&ListParams::default()).await.ok()?;
        events.items.into_iter().find_map(|event| event.note.filter(|note| note.contains("exceeded quota")))
    };
    let note = wait::eventually(SOON, told, "an event about the held pod").await.unwrap();
    assert_eq!(
        note,
        "exceeded quota: compute, requested: requests.cpu=300m, used: requests.cpu=800m, limited: requests.cpu=1"
    );
    assert_eq!(team.held().await, ["b"]);
    let what = "the number of held pods";
    wait::wait_for(&team.quotas, "compute", SOON, what, |quota| {
        quota.and_then(|quota| quota.status.as_ref()?.held) == Some(1)
    })
    .await
    .unwrap();
    team.pods.delete("a", &DeleteParams::default()).await.unwrap();
    team.until_released("b").await;
    team.until_used("compute", "requests.cpu", "300m").await;
}

#[tokio::test]
async fn a_raised_quota_releases() {
    let team = Team::on(shared().await.bed, "raised").await;
    team.quota("compute", &[("requests.memory", "500Mi")]).await;
    team.pod("a", &[("memory", "600Mi")]).await;
    let raise = json!({"spec": {"hard": {"requests.memory": "600Mi"}}});
    team.quotas.patch("compute", &PatchParams::default(), &Patch::Merge(raise)).await.unwrap();
    team.until_released("a").await;
    team.until_used("compute", "requests.memory", "600Mi").await;
}

#[tokio::test]
async fn a_finished_pod_frees_its_charge() {
    let team = Team::on(shared().await.bed, "finished").await;
    team.quota("compute", &[("requests.cpu", "1"), ("count/pods", "10")]).await;
    team.pod("a", &[("cpu", "1")]).await;
    team.until_released("a").await;
    team.pod("b", &[("cpu", "1")]).await;
    let done = json!({"status": {"phase": "Succeeded"}});
    team.pods.patch_status("a", &PatchParams::default(), &Patch::Merge(done)).await.unwrap();
    team.until_released("b").await;
    team.until_used("compute", "count/pods", "2").await;
}

#[tokio::test]
async fn without_a_quota_pods_go_at_once() {
    let team = Team::on(shared().await.bed, "free").await;
    team.pod("a", &[("cpu", "100")]).await;
    team.until_released("a").await;
}

#[tokio::test]
async fn fifty_pods_share_a_quota_for_ten() {
    let team = Team::on(shared().await.bed, "fifty").await;
    team.quota("compute", &[("pods", "10")]).await;
    for n in 0..50 {
        team.pod(&format!("p{n:02}"), &[]).await;
    }
    team.until_used("compute", "pods", "10").await;
    team.until_released_count(10).await;
    let quota = team.quotas.get("compute").await.unwrap();
    assert_eq!(used_of(Some(&quota), "pods").as_deref(), Some("10"));
}
