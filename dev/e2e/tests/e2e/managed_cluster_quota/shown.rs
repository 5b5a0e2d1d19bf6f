//! What OpenShift counts is shown in the status of the quota, in all and by namespace, and in its mirrors.

use serde_json::json;
use sluice_api::{ApplicationAwareClusterResourceQuota as Acrq, QuotaAmounts};
use sluice_testbed::wait;

use super::stand_in::{Managed, openshift};
use crate::cluster_quotas::used;
use crate::context::SOON;

fn services(amounts: &QuotaAmounts) -> Option<String> {
    amounts.used.get("services").map(|used| used.0.clone())
}

#[tokio::test]
async fn what_is_counted_is_shown_and_there_is_no_zero_before() {
    let managed = Managed::on(openshift().await.bed, "shown", 2).await;
    let owner = &managed.owner;
    let quotas = owner.quotas.clone();
    let watching = tokio::spawn(async move {
        let is_counted = |quota: Option<&Acrq>| {
            let Some(status) = quota.and_then(|quota| quota.status.as_ref()) else { return false };
            let each = status.namespaces.iter().flatten().map(|entry| services(&entry.status));
            let all: Vec<_> = each.chain([services(&status.total)]).flatten().collect();
            assert!(!all.contains(&"0".to_owned()), "no count has said 0: {status:?}");
            services(&status.total).as_deref() == Some("3")
        };
        wait::wait_for(&quotas, "shown", SOON * 2, "3 services", is_counted).await.unwrap();
    });
    owner.limit(json!({ "services": "5", "pods": "4" })).await;
    managed.until_limited(json!({ "services": "5" })).await;
    owner.until_used("pods", "0", &["0", "0"]).await;
    let shown = owner.quotas.get("shown").await.unwrap().status.unwrap();
    assert_eq!(services(&shown.total), None);
    assert_eq!(shown.total.hard.len(), 2, "the limit is shown");

    managed
        .fake_openshift_counts(
            json!({ "services": "3" }),
            &[json!({ "services": "1" }), json!({ "services": "2" })],
        )
        .await;
    owner.until_used("services", "3", &["1", "2"]).await;
    owner.until_used("pods", "0", &["0", "0"]).await;
    watching.await.unwrap();
    owner
        .until("the column to have it", |status| {
            status.requests.as_deref() == Some("pods: 0/4, services: 3/5")
        })
        .await;
    for (team, own) in owner.teams.iter().zip(["1", "2"]) {
        let wanted = Some(("3".to_owned(), vec![(team.namespace.name.clone(), own.to_owned())]));
        owner.mirror(team, &format!("{wanted:?}"), |mirror| used(mirror, "services") == wanted).await;
    }
    // One namespace has fewer, and then 0 is what was counted.
    managed
        .fake_openshift_counts(
            json!({ "services": "2" }),
            &[json!({ "services": "0" }), json!({ "services": "2" })],
        )
        .await;
    owner.until_used("services", "2", &["0", "2"]).await;
    managed.until_told(&[]).await;
}

#[tokio::test]
async fn a_kind_that_is_not_counted_is_told_of() {
    let managed = Managed::on(openshift().await.bed, "unknown", 1).await;
    managed.owner.limit(json!({ "services": "5", "count/service.core": "4" })).await;
    managed.until_limited(json!({ "services": "5", "count/service.core": "4" })).await;
    managed.fake_openshift_counts(json!({ "services": "3" }), &[json!({ "services": "3" })]).await;
    managed.owner.until_used("services", "3", &["3"]).await;
    managed.until_told(&["count/service.core: Kubernetes counts no such objects"]).await;
}
