//! The managed quota stays as it should be.

use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use sluice_e2e::objects::from_json;

use super::stand_in::{Crq, Managed, openshift};

#[tokio::test]
async fn it_has_the_keys_that_no_gate_governs_and_follows_the_quota() {
    let managed = Managed::on(openshift().await.bed, "follows", 1).await;
    managed.owner.limit(json!({ "pods": "3", "services": "2", "count/deployments.apps": "4" })).await;
    let first = managed.until_limited(json!({ "services": "2", "count/deployments.apps": "4" })).await;
    assert_eq!(first.metadata.name.as_deref(), Some("follows-non-schedulable-resources-managed-crq-x"));
    managed
        .owner
        .edit(json!({ "quota": { "hard": { "services": "5", "count/deployments.apps": null } } }))
        .await;
    let second = managed.until_limited(json!({ "services": "5" })).await;
    assert_eq!(first.metadata.uid, second.metadata.uid);
    let selector = json!({ "matchLabels": null, "matchExpressions": [{ "key": "example.com/owner", "operator": "In",
        "values": ["follows", "other"] }] });
    managed.owner.edit(json!({ "selector": { "labels": selector } })).await;
    managed.until_limited(json!({ "services": "5" })).await;
    managed.owner.edit(json!({ "quota": { "hard": { "services": null } } })).await;
    managed.until_no_managed().await;
    managed.owner.edit(json!({ "quota": { "hard": { "services": "1" } } })).await;
    managed.until_limited(json!({ "services": "1" })).await;
}

#[tokio::test]
async fn what_is_edited_or_deleted_is_put_back() {
    let managed = Managed::on(openshift().await.bed, "kept", 1).await;
    managed.owner.limit(json!({ "services": "2" })).await;
    let first = managed.until_limited(json!({ "services": "2" })).await.metadata.uid;
    let edits = [
        json!({ "spec": { "quota": { "hard": { "services": "9", "secrets": "1" } } } }),
        json!({ "spec": { "selector": { "labels": { "matchLabels": { "a": "b" } }, "annotations": { "c": "d" } } } }),
        json!({ "metadata": { "labels": { "aaq.kubevirt.io": "no" } } }),
        json!({ "metadata": { "ownerReferences": null } }),
    ];
    for (n, edit) in edits.into_iter().enumerate() {
        managed.tamper(edit).await;
        let uid = managed.until_limited(json!({ "services": "2" })).await.metadata.uid;
        assert_eq!(uid, first, "it is the same object");
        // The quota wants something else and then the same again: what was repaired does not put off what follows.
        for services in [(100 + n).to_string(), "2".to_owned()] {
            managed.owner.edit(json!({ "quota": { "hard": { "services": services } } })).await;
            managed.until_limited(json!({ "services": services })).await;
        }
    }
    managed.quotas.delete(&managed.name, &DeleteParams::default()).await.unwrap();
    let second = managed.until_limited(json!({ "services": "2" })).await.metadata.uid;
    assert_ne!(first, second);
}

#[tokio::test]
async fn it_goes_with_its_quota() {
    let managed = Managed::on(openshift().await.bed, "gone", 1).await;
    for params in [DeleteParams::foreground(), DeleteParams::background()] {
        managed.owner.limit(json!({ "services": "2" })).await;
        managed.until_limited(json!({ "services": "2" })).await;
        managed.owner.quotas.delete("gone", &params).await.unwrap();
        managed.until_no_managed().await;
        let what = "the quota to be gone";
        let gone = |quota: Option<&_>| quota.is_none();
        sluice_testbed::wait::wait_for(&managed.owner.quotas, "gone", crate::context::SOON, what, gone)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn one_of_others_is_left_alone_and_told_of() {
    let managed = Managed::on(openshift().await.bed, "foreign", 1).await;
    let spec = json!({
        "quota": { "hard": { "services": "7" } }, "selector": { "labels": { "matchLabels": { "a": "b" } } },
    });
    let own: Crq = from_json(json!({
        "apiVersion": "quota.openshift.io/v1", "kind": "ClusterResourceQuota",
        "metadata": { "name": managed.name }, "spec": spec,
    }));
    let made = managed.quotas.create(&PostParams::default(), &own).await.unwrap();
    managed.owner.limit(json!({ "services": "2", "pods": "1" })).await;
    managed.until_told(&["spec.quota.hard: not enforced: services: ", &managed.name, "not Sluice's"]).await;
    let kept = managed.quotas.get(&managed.name).await.unwrap();
    assert_eq!((kept.metadata.resource_version, kept.spec), (made.metadata.resource_version, made.spec));
    managed.quotas.delete(&managed.name, &DeleteParams::default()).await.unwrap();
    managed.until_limited(json!({ "services": "2" })).await;
    managed.until_told(&[]).await;
}
