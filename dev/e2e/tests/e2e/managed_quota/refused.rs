//! What cannot be limited is said on the quota, or refused with it.

use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use sluice_api::names;
use sluice_e2e::objects;
use sluice_testbed::wait;

use super::team::Managed;
use crate::context::{SOON, idle, kubectl_tries, manifest};

#[tokio::test]
async fn a_resource_quota_of_that_name_that_is_not_ours_is_left_alone_and_told_of() {
    let managed = Managed::on(idle().await.bed, "foreign").await;
    let name = names::managed_quota("q");
    let own =
        objects::from_json(json!({ "metadata": { "name": name }, "spec": { "hard": { "services": "7" } } }));
    let made = managed.quotas.create(&PostParams::default(), &own).await.unwrap();
    managed.team.quota("q", &[("services", "2"), ("pods", "1")]).await;
    managed.until_told("q", &["services: ", &name, "not Sluice's"]).await;
    managed.until_used("q", &[("services", None), ("pods", Some("0"))]).await;
    let kept = managed.quotas.get(&name).await.unwrap();
    assert_eq!((kept.metadata.uid, kept.spec, kept.metadata.labels), (made.metadata.uid, made.spec, None));
    // Nor is it deleted with the keys.
    managed.edit("q", json!({ "hard": { "services": null } })).await;
    managed.until_told("q", &[]).await;
    managed.quotas.get(&name).await.unwrap();
    managed.edit("q", json!({ "hard": { "services": "2" } })).await;
    managed.until_told("q", &["not Sluice's"]).await;
    managed.quotas.delete(&name, &DeleteParams::default()).await.unwrap();
    managed.until_limited("q", &[("services", "2")]).await;
    managed.until_told("q", &[]).await;
    managed.until_used("q", &[("services", Some("0"))]).await;
}

#[tokio::test]
async fn keys_that_do_not_fit_the_scopes_are_refused_or_told_of() {
    let managed = Managed::on(idle().await.bed, "scopes").await;
    let quota = |name: &str, hard: serde_json::Value| {
        objects::from_json(json!({
            "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota",
            "metadata": { "name": name }, "spec": { "scopes": ["BestEffort"], "hard": hard },
        }))
    };
    let unfit: sluice_api::ApplicationAwareResourceQuota =
        quota("q", json!({ "pods": "1", "services": "1" }));
    let refused = managed.team.quotas.create(&PostParams::default(), &unfit).await.unwrap_err();
    assert!(refused.to_string().contains("unsupported scope applied to resource"), "{refused}");
    // Kubernetes takes this one and counts 0 for ever.
    let uncounted = quota("q", json!({ "pods": "1", "count/secrets": "1" }));
    managed.team.quotas.create(&PostParams::default(), &uncounted).await.unwrap();
    managed.until_told("q", &["count/secrets: ", "quota without scopes"]).await;
    managed.until_used("q", &[("pods", Some("0")), ("count/secrets", None)]).await;
    assert!(managed.quotas.get_opt(&names::managed_quota("q")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_kind_that_does_not_exist_is_told_of_and_not_shown_as_zero() {
    let managed = Managed::on(idle().await.bed, "typo").await;
    managed.team.quota("q", &[("count/deployment.apps", "1"), ("count/deployments.apps", "1")]).await;
    managed.until_used("q", &[("count/deployments.apps", Some("0")), ("count/deployment.apps", None)]).await;
    managed.until_told("q", &["count/deployment.apps: ", "counts no such objects"]).await;
}

#[tokio::test]
async fn a_refused_managed_quota_is_told_of_until_there_is_room() {
    let managed = Managed::on(idle().await.bed, "noroom").await;
    let full = objects::from_json(
        json!({ "metadata": { "name": "full" }, "spec": { "hard": { "resourcequotas": "1" } } }),
    );
    managed.quotas.create(&PostParams::default(), &full).await.unwrap();
    let counted = |quota: Option<&k8s_openapi::api::core::v1::ResourceQuota>| {
        quota.and_then(|quota| quota.status.as_ref()?.used.as_ref()).is_some_and(|used| !used.is_empty())
    };
    wait::wait_for(&managed.quotas, "full", SOON, "its usage", counted).await.unwrap();
    managed.team.quota("q", &[("services", "2")]).await;
    managed.until_told("q", &["services: ", "cannot be written", "exceeded quota: full"]).await;
    managed.until_used("q", &[("services", None)]).await;
    managed.quotas.delete("full", &DeleteParams::default()).await.unwrap();
    // Tried again by its back-off alone: nothing else happens to the quota.
    managed.until_limited("q", &[("services", "2")]).await;
    managed.until_told("q", &[]).await;
}

#[tokio::test]
async fn a_name_that_is_too_long_for_a_managed_quota_is_refused_only_with_such_keys() {
    let managed = Managed::on(idle().await.bed, "long").await;
    let (fits, long) = ("a".repeat(names::MAX_NAME_OF_MANAGED), "b".repeat(names::MAX_NAME_OF_MANAGED + 1));
    managed.team.quota(&fits, &[("services", "2")]).await;
    managed.until_limited(&fits, &[("services", "2")]).await;
    managed.team.quota(&long, &[("pods", "2")]).await;
    let edit = kube::api::Patch::Merge(json!({ "spec": { "hard": { "services": "1" } } }));
    let refused = managed.team.quotas.patch(&long, &Default::default(), &edit).await.unwrap_err().to_string();
    assert!(refused.contains("no more than 214 characters") && refused.contains("services"), "{refused}");
}

#[tokio::test]
async fn who_creates_a_quota_beside_a_resource_quota_is_told() {
    let managed = Managed::on(idle().await.bed, "beside").await;
    let (bed, namespace) = (idle().await.bed, &managed.team.namespace.name);
    let own = objects::from_json(
        json!({ "metadata": { "name": "mine" }, "spec": { "hard": { "services": "7" } } }),
    );
    managed.quotas.create(&PostParams::default(), &own).await.unwrap();
    let quota = serde_json::to_string(&objects::quota("q", &[("pods", "1"), ("services", "1")])).unwrap();
    let file = manifest(bed, "beside.json", &quota);
    let create = ["create", "--dry-run=server", "--namespace", namespace, "--filename", &file];
    // As soon as the webhook has seen it.
    let told = || async {
        let (done, _, said) = kubectl_tries(bed, &create).await;
        (done && said.contains("the namespace has the ResourceQuota mine: it counts as well")).then_some(())
    };
    wait::eventually(SOON, told, "the warning").await.unwrap();
    // Its own managed one is none of others.
    managed.quotas.delete("mine", &DeleteParams::default()).await.unwrap();
    managed.team.quota("first", &[("services", "1")]).await;
    managed.until_limited("first", &[("services", "1")]).await;
    let silent = || async {
        let (done, _, said) = kubectl_tries(bed, &create).await;
        let lines: Vec<&str> = said.lines().collect();
        let is_silent =
            matches!(lines[..], [one] if one.starts_with("Warning: spec.hard: not enforced on pods: "));
        (done && is_silent).then_some(())
    };
    wait::eventually(SOON, silent, "no warning but that the namespace is not targeted").await.unwrap();
}
