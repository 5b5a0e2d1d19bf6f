//! Quotas as objects: counted, changed, listed, deleted, and their status written by others.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use sluice_api::ApplicationAwareResourceQuota as Arq;
use sluice_e2e::call::{JSON, call, get};
use sluice_e2e::objects;
use sluice_testbed::wait;

use super::spec::{ARQ_COUNT, Amounts, QUOTA, Spec, amounts};
use crate::context::SOON;

fn limits(hard: Option<&BTreeMap<String, Quantity>>) -> Vec<(String, String)> {
    hard.into_iter().flatten().map(|(key, amount)| (key.clone(), amount.0.clone())).collect()
}

fn texts(limits: Amounts<'_>) -> Vec<(String, String)> {
    limits.iter().map(|(key, amount)| ((*key).to_owned(), (*amount).to_owned())).collect()
}

fn spec_hard(quota: &Arq) -> Vec<(String, String)> {
    limits(Some(&quota.spec.hard))
}

fn status_hard(quota: &Arq) -> Vec<(String, String)> {
    limits(quota.status.as_ref().map(|status| &status.hard))
}

fn merge(patch: Value) -> Patch<Value> {
    Patch::Merge(patch)
}

#[tokio::test]
async fn the_status_of_a_quota_is_calculated() {
    let spec = Spec::standard("calculated", &[]).await;
    spec.assert_used(QUOTA, &[(ARQ_COUNT, "1")]).await;
}

#[tokio::test]
async fn a_quota_is_updated_and_deleted() {
    let spec = Spec::new("updated").await;
    let quotas = &spec.team.quotas;
    spec.team.quota(QUOTA, &[("cpu", "1"), ("memory", "500Mi")]).await;
    let mut quota = quotas.get(QUOTA).await.unwrap();
    assert_eq!(spec_hard(&quota), texts(&[("cpu", "1"), ("memory", "500Mi")]));
    let new = objects::quota(QUOTA, &[("cpu", "2"), ("memory", "1Gi")]).spec;
    // The status may be written at the same time.
    let replaced = || async {
        let mut quota = quotas.get(QUOTA).await.unwrap();
        quota.spec = new.clone();
        quotas.replace(QUOTA, &PostParams::default(), &quota).await.ok()
    };
    quota.spec = wait::eventually(SOON, replaced, "the update").await.unwrap().spec;
    assert_eq!(spec_hard(&quota), texts(&[("cpu", "2"), ("memory", "1Gi")]));
    assert_eq!(spec_hard(&quotas.get(QUOTA).await.unwrap()), spec_hard(&quota));
    quotas.delete(QUOTA, &DeleteParams::default()).await.unwrap();
    assert!(quotas.get_opt(QUOTA).await.unwrap().is_none());
}

#[tokio::test]
async fn quotas_are_listed_by_label_patched_and_deleted_together() {
    let spec = Spec::new("lifecycle").await;
    let name = &spec.team.namespace.name;
    let mut quota = objects::quota(name, &[("cpu", "1"), ("memory", "500Mi")]);
    quota.metadata.labels = Some([("e2e-rq-label".to_owned(), name.clone())].into());
    objects::create(&spec.team.client, name, &quota).await.unwrap();
    assert_eq!(spec_hard(&spec.team.quotas.get(name).await.unwrap()), spec_hard(&quota));
    let labelled = ListParams::default().labels(&format!("e2e-rq-label={name}"));
    let everywhere = Api::<Arq>::all(spec.team.client.clone());
    assert_eq!(everywhere.list(&labelled).await.unwrap().items.len(), 1);
    let patch =
        json!({ "metadata": { "labels": { "patched": "yes" } }, "spec": { "hard": { "memory": "750Mi" } } });
    let patched = spec.team.quotas.patch(name, &PatchParams::default(), &merge(patch)).await.unwrap();
    assert_eq!(patched.metadata.labels.as_ref().unwrap()["patched"], "yes");
    assert_eq!(spec_hard(&patched), texts(&[("cpu", "1"), ("memory", "750Mi")]));
    spec.team.quotas.delete_collection(&DeleteParams::default(), &labelled).await.unwrap();
    assert!(spec.team.quotas.get_opt(name).await.unwrap().is_none());
}

/// Waits until the watch has shown a status with these limits, from `version` on.
async fn until_shown(quotas: &Api<Arq>, version: &str, hard: Amounts<'_>) {
    let params = WatchParams::default().timeout(SOON.as_secs().try_into().unwrap());
    let mut events = quotas.watch(&params, version).await.unwrap().boxed();
    while let Some(event) = events.next().await {
        match event.unwrap() {
            WatchEvent::Added(quota) | WatchEvent::Modified(quota) if status_hard(&quota) == texts(hard) => {
                return;
            }
            _ => {}
        }
    }
    panic!("the watch has not shown {hard:?}");
}

async fn version(quotas: &Api<Arq>) -> String {
    quotas.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap()
}

/// Watches show what another client writes to the status, and then that it is put right.
#[tokio::test]
async fn a_status_that_others_write_is_shown_and_put_right() {
    const HALF: Amounts<'_> = &[("cpu", "500m"), ("memory", "500Mi")];
    const ONE: Amounts<'_> = &[("cpu", "1"), ("memory", "1Gi")];
    const TWO: Amounts<'_> = &[("cpu", "2"), ("memory", "2Gi")];
    let spec = Spec::new("status").await;
    let (quotas, mut from) = (&spec.team.quotas, version(&spec.team.quotas).await);
    spec.team.quota(QUOTA, HALF).await;
    let path = format!(
        "{}/{QUOTA}/status",
        spec.path("apis/aaq.kubevirt.io/v1alpha1/applicationawareresourcequotas")
    );
    let put = || async {
        let mut quota = get(&spec.team.client, &path).await.unwrap().body;
        quota["status"] = json!({ "hard": quota["spec"]["hard"] });
        let answer = call(&spec.team.client, http::Method::PUT, &path, JSON, &quota).await.unwrap();
        answer.is_ok().then_some(())
    };
    wait::eventually(SOON, put, "the update of the status").await.unwrap();
    until_shown(quotas, &from, HALF).await;

    from = version(quotas).await;
    let params = PatchParams::default();
    quotas.patch(QUOTA, &params, &merge(json!({ "spec": { "hard": amounts(ONE) } }))).await.unwrap();
    let status = |hard: Amounts<'_>| merge(json!({ "status": { "hard": amounts(hard) } }));
    quotas.patch_status(QUOTA, &params, &status(ONE)).await.unwrap();
    until_shown(quotas, &from, ONE).await;
    assert_eq!(get(&spec.team.client, &path).await.unwrap().body["status"]["hard"], amounts(ONE));

    from = version(quotas).await;
    let wrong = quotas.patch_status(QUOTA, &params, &status(TWO)).await.unwrap();
    assert_eq!(status_hard(&wrong), texts(TWO));
    until_shown(quotas, &from, TWO).await;
    until_shown(quotas, &wrong.metadata.resource_version.unwrap(), ONE).await;
    assert_eq!(spec_hard(&quotas.get(QUOTA).await.unwrap()), texts(ONE));
}
