//! The managed quota stays as it should be, and nothing is written without need.

use kube::api::DeleteParams;
use serde_json::json;
use sluice_api::names;
use sluice_e2e::metrics::Samples;
use sluice_e2e::{Running, Setup};
use sluice_testbed::wait;

use super::team::Managed;
use crate::context::{SOON, idle, idle_bed};

const HARD: &[(&str, &str)] = &[("configmaps", "5"), ("services", "2")];

#[tokio::test]
async fn what_is_edited_or_deleted_is_put_back() {
    let managed = Managed::on(idle().await.bed, "kept").await;
    managed.team.quota("q", HARD).await;
    let first = managed.until_limited("q", HARD).await.metadata.uid;
    let edits = [
        json!({ "spec": { "hard": { "services": "9" } } }),
        json!({ "spec": { "hard": { "services": null } } }),
        json!({ "spec": { "hard": { "secrets": "0", "pods": "0" } } }),
        json!({ "metadata": { "labels": { "aaq.kubevirt.io": null } } }),
        json!({ "metadata": { "labels": { "aaq.kubevirt.io": "false" } } }),
        json!({ "metadata": { "ownerReferences": null } }),
    ];
    for (n, edit) in edits.into_iter().enumerate() {
        managed.tamper("q", edit).await;
        let uid = managed.until_limited("q", HARD).await.metadata.uid;
        assert_eq!(uid, first, "it is the same object");
        managed.wish_again("q", n).await;
    }
    managed.delete_managed("q").await;
    let second = managed.until_limited("q", HARD).await.metadata.uid;
    assert_ne!(first, second);
    managed.wish_again("q", 9).await;
    // A selector cannot be told from what kube-controller-manager has counted with it: the quota is replaced.
    let selector = json!({ "matchExpressions": [{ "scopeName": "PriorityClass", "operator": "Exists" }] });
    managed
        .tamper(
            "q",
            json!({ "spec": { "hard": { "configmaps": null, "services": null, "pods": "1" },
        "scopeSelector": selector } }),
        )
        .await;
    managed.until_limited("q", HARD).await;
    managed.until_used("q", &[("configmaps", Some("1")), ("services", Some("0"))]).await;
}

#[tokio::test]
async fn it_goes_with_its_quota() {
    let managed = Managed::on(idle().await.bed, "gone").await;
    managed.team.quota("q", HARD).await;
    managed.until_limited("q", HARD).await;
    managed.team.quotas.delete("q", &DeleteParams::foreground()).await.unwrap();
    managed.until_no_managed("q").await;
    let gone = |quota: Option<&sluice_api::ApplicationAwareResourceQuota>| quota.is_none();
    wait::wait_for(&managed.team.quotas, "q", SOON, "the quota to be gone", gone).await.unwrap();
    // One of the same name is another one: what was counted for the first is not said of it.
    managed.team.quota("q", HARD).await;
    managed.until_limited("q", HARD).await;
    managed.team.quotas.delete("q", &DeleteParams::background()).await.unwrap();
    managed.until_no_managed("q").await;
}

/// While nothing happens nothing is written, and a client that undoes each repair is answered ever more slowly.
#[tokio::test]
async fn writes_are_bounded() {
    let bed = idle_bed().await;
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    let managed = Managed::on(&bed, "writes").await;
    managed.team.quota("q", HARD).await;
    managed.until_limited("q", HARD).await;
    managed.until_used("q", &[("configmaps", Some("1")), ("services", Some("0"))]).await;
    let writes = async || -> f64 {
        let samples = Samples::of(&running.controller.admin).await.unwrap();
        let of = |resource: &str| samples.sum("sluice_api_writes_total", &[("resource", resource)]);
        of("resourcequotas").unwrap() + of(names::ARQS).unwrap()
    };
    let before = writes().await;
    // Another quota goes through all of it meanwhile.
    managed.team.quota("other", HARD).await;
    managed.until_used("other", &[("configmaps", Some("1"))]).await;
    let after = writes().await;
    assert!(after - before <= 4.0, "one creation and some statuses: {before} and {after}");

    let managed_quota = names::managed_quota("q");
    let mut undone = 0;
    let began = std::time::Instant::now();
    while began.elapsed().as_secs() < 12 {
        let now = managed.quotas.get(&managed_quota).await.unwrap();
        if now.metadata.labels.is_some_and(|labels| labels.contains_key("aaq.kubevirt.io")) {
            managed.tamper("q", json!({ "metadata": { "labels": null } })).await;
            undone += 1;
        }
    }
    assert!((2..=9).contains(&undone), "repaired {undone} times in 12 s");
    // A change of the quota itself is followed at once all the same.
    managed.edit("q", json!({ "hard": { "services": "3" } })).await;
    managed.until_limited("q", &[("configmaps", "5"), ("services", "3")]).await;
}
