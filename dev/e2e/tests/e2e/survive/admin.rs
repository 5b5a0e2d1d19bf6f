//! Admins and tenants change things while pods wait.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use sluice_testbed::proxy::{Action, Rule};
use sluice_testbed::wait;
use tokio::sync::Notify;

use super::world::{
    Overseer, controller_through, delete_released, installed, proxy, released, settles_at, stop,
};
use crate::context::{SOON, idle_bed, used_of};
use crate::team::Team;

async fn set(team: &Team, spec: serde_json::Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    team.quotas.patch("compute", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_lowered_raised_deleted_recreated_and_edited_while_pods_wait() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let controller = installation.controller().await.unwrap();
    let team = Team::on(&bed, "edited").await;
    team.quota("compute", &[("pods", "4")]).await;
    team.gated_pods(30).await;
    team.until_released_count(4).await;
    // Lowered below what is used: no pod is evicted, no pod is released.
    set(&team, json!({"hard": {"pods": "2"}})).await;
    wait::wait_for(&team.quotas, "compute", SOON, "status.hard to follow", |quota| {
        quota.and_then(|quota| quota.status.as_ref()?.hard.get("pods").map(|hard| hard.0 == "2"))
            == Some(true)
    })
    .await
    .unwrap();
    delete_released(&team, 1).await;
    team.until_used("compute", "pods", "3").await;
    assert_eq!(released(&team.pods).await, 3);
    // Raised.
    set(&team, json!({"hard": {"pods": "6"}})).await;
    team.until_released_count(6).await;
    // Another resource: the pods take 100m each, six of them run.
    set(&team, json!({"hard": {"pods": null, "requests.cpu": "800m"}})).await;
    team.until_released_count(8).await;
    team.until_used("compute", "requests.cpu", "800m").await;
    let quota = team.quotas.get("compute").await.unwrap();
    assert_eq!(
        used_of(Some(&quota), "pods"),
        None,
        "keys that are gone from the spec are gone from the status"
    );
    // A scope that no pod of these matches: they are not limited any more.
    set(&team, json!({"scopes": ["Terminating"]})).await;
    team.until_released_count(29).await;
    // Deleted and created again: what runs is counted at once.
    team.quotas.delete("compute", &DeleteParams::default()).await.unwrap();
    team.quota("compute", &[("pods", "29")]).await;
    team.until_used("compute", "pods", "29").await;
    team.gated_pod("late", &[]).await;
    delete_released(&team, 1).await;
    team.until_released("late").await;
    stop(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_deleted_with_waiting_pods() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let controller = installation.controller().await.unwrap();
    let team = Team::on(&bed, "doomed").await;
    let other = Team::on(&bed, "other").await;
    team.quota("compute", &[("pods", "3")]).await;
    team.gated_pods(20).await;
    team.until_released_count(3).await;
    let namespaces: Api<Namespace> = Api::all(bed.admin().unwrap());
    namespaces.delete(&team.namespace.name, &DeleteParams::default()).await.unwrap();
    wait::wait_for(&namespaces, &team.namespace.name, SOON, "the namespace to be gone", |found| {
        found.is_none()
    })
    .await
    .unwrap();
    other.quota("compute", &[("pods", "2")]).await;
    let overseer = Overseer::of(&other);
    other.gated_pods(5).await;
    settles_at(&other, &overseer, 2).await;
    stop(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_deleted_between_its_charge_and_its_release() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let team = Team::on(&bed, "vanishes").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "1")]).await;
    let proxy = proxy(&bed).await;
    let go = Arc::new(Notify::new());
    let path = format!("{}/pods/first", team.namespace);
    let hold = Rule::new(Action::HoldUntil(Arc::clone(&go))).method(Method::PATCH).path(&path).unwrap();
    let held = proxy.add(hold);
    let controller = controller_through(&installation, &proxy).await;
    team.gated_pod("first", &[]).await;
    held.wait_applied(1, Duration::from_secs(20)).await.unwrap();
    team.until_used("compute", "pods", "1").await;
    team.gated_pod("second", &[]).await;
    team.pods.delete("first", &DeleteParams::default()).await.unwrap();
    // A pod of the same name is another pod: it has to wait for its own turn.
    team.gated_pod("first", &[]).await;
    proxy.remove(&held);
    go.notify_waiters();
    settles_at(&team, &overseer, 1).await;
    assert_eq!(team.held().await, ["first"], "the second pod is older than the new first one");
    stop(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_edited_by_hand_is_restored() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let controller = installation.controller().await.unwrap();
    let team = Team::on(&bed, "scribbled").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "5")]).await;
    team.gated_pods(12).await;
    settles_at(&team, &overseer, 5).await;
    for status in [
        json!({"hard": {"pods": "100"}, "used": {"pods": "0"}}),
        json!({"hard": {"pods": "100"}, "used": {"pods": "5"}}),
        json!({"hard": null, "used": null}),
        json!({"used": {"pods": "77"}}),
        json!({"used": {"pods": "5", "services": "3"}}),
    ] {
        let patch = Patch::Merge(json!({"status": status}));
        team.quotas.patch_status("compute", &PatchParams::default(), &patch).await.unwrap();
        wait::wait_for(&team.quotas, "compute", SOON, "the status to be restored", |quota| {
            quota.and_then(|quota| quota.status.as_ref()).is_some_and(|status| {
                let text = |map: &std::collections::BTreeMap<
                    String,
                    k8s_openapi::apimachinery::pkg::api::resource::Quantity,
                >| {
                    map.iter().map(|(key, value)| format!("{key}={}", value.0)).collect::<Vec<_>>().join(",")
                };
                text(&status.hard) == "pods=5" && text(&status.used) == "pods=5"
            })
        })
        .await
        .unwrap();
    }
    settles_at(&team, &overseer, 5).await;
    stop(controller).await;
}
