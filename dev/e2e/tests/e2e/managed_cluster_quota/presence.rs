//! The kind comes and goes while Sluice runs.

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_api::{AAQ, names};
use sluice_e2e::{Running, Setup};
use sluice_testbed::wait;

use super::stand_in::{Managed, serve, serve_no_more};
use crate::cluster_quotas::allow;
use crate::context::{SOON, idle_bed};

/// Upstream's text.
const REFUSED: &str = "ApplicationAwareClusterResourceQuota without clusterResourceQuota support, operator cannot handle \
                       non scheduable resources :[services]";

#[tokio::test]
async fn without_the_kind_such_keys_are_refused_and_with_it_they_work_without_a_restart() {
    let bed = idle_bed().await;
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    allow(&bed).await;
    let managed = Managed::on(&bed, "late", 1).await;
    let hard = json!({ "services": "2", "pods": "3" });
    // It may not know yet.
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let refused = || async {
        let error = managed.owner.try_limit(hard.clone(), &dry_run).await.err()?.to_string();
        Some(error).filter(|error| error.contains(REFUSED))
    };
    let error = wait::eventually(SOON, refused, "the refusal").await.unwrap();
    assert!(error.contains("a quota in each namespace"), "{error}");

    serve(&bed).await;
    let accepted = || async { managed.owner.try_limit(hard.clone(), &PostParams::default()).await.ok() };
    wait::eventually(SOON, accepted, "the webhook to know of the kind").await.unwrap();
    managed.until_limited(json!({ "services": "2" })).await;
    managed.fake_openshift_counts(json!({ "services": "1" }), &[json!({ "services": "1" })]).await;
    managed.owner.until_used("services", "1", &["1"]).await;

    // What exists is told of, keeps what pods take, and can be labelled.
    serve_no_more(&bed).await;
    let said =
        ["spec.quota.hard: not enforced: services: ", "no ClusterResourceQuota (quota.openshift.io/v1)"];
    managed.until_told(&said).await;
    managed
        .owner
        .until("no word of services", |status| {
            !status.total.used.contains_key("services") && status.total.used.contains_key("pods")
        })
        .await;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    managed.owner.quotas.patch("late", &PatchParams::default(), &label).await.unwrap();

    serve(&bed).await;
    managed.until_limited(json!({ "services": "2" })).await;
    managed.until_told(&[]).await;

    // While cluster quotas have no effect, neither has what belongs to them.
    let allow = |allowed: bool| {
        let configuration = json!({ "allowApplicationAwareClusterResourceQuota": allowed });
        let patch = Patch::Merge(json!({ "spec": { "configuration": configuration } }));
        let aaqs = Api::<AAQ>::all(managed.owner.client.clone());
        async move { aaqs.patch(names::AAQ_NAME, &PatchParams::default(), &patch).await.unwrap() }
    };
    allow(false).await;
    managed.until_no_managed().await;
    allow(true).await;
    managed.until_limited(json!({ "services": "2" })).await;
    assert!(running.controller.program.is_running() && running.webhook.program.is_running());
}
