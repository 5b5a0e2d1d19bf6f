//! How soon an edit of the `AAQ` is in force, without a restart.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, JSON_PATCH, MERGE, call, get, post};
use sluice_testbed::wait;

use super::{cluster, create_aaq, select, team, until_gated};
use crate::context::SOON;

const AAQ: &str = "/apis/aaq.kubevirt.io/v1alpha1/aaqs/aaq";
const IN_FORCE: Duration = Duration::from_secs(3);
/// Other tests run beside this one: the quickest of so many edits counts.
const EDITS: usize = 3;
const CLUSTER_QUOTAS: &str = "/apis/aaq.kubevirt.io/v1alpha1/applicationawareclusterresourcequotas";

#[tokio::test]
async fn selector_and_cluster_quotas_are_in_force_within_three_seconds() {
    let (bed, _turn) = cluster().await;
    let client = bed.admin().unwrap();
    create_aaq(&client, json!({ "matchLabels": { "edited": "no" } })).await;
    let team = team(bed, "edited", &[("edited", "yes"), ("in-force", "yes")]).await;
    let quota = json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
        "metadata": { "name": "in-force" },
        "spec": {
            "quota": { "hard": { "pods": "1" } },
            "selector": { "labels": { "matchLabels": { "in-force": "yes" } } },
        },
    });
    assert!(post(&client, CLUSTER_QUOTAS, &quota).await.unwrap().is_ok());
    let counted = async |limit: &str| {
        let spec = json!({ "spec": { "quota": { "hard": { "pods": limit } } } });
        let one = format!("{CLUSTER_QUOTAS}/in-force");
        assert!(call(&client, Method::PATCH, &one, MERGE, &spec).await.unwrap().is_ok());
        let told = || async {
            let answer = get(&client, &one).await.ok()?;
            (answer.body["status"]["total"]["hard"]["pods"] == limit).then_some(())
        };
        wait::eventually(SOON, told, "the cluster quota to be counted").await.unwrap();
    };
    let mut took = [Duration::MAX; 2];
    for edit in 0..EDITS {
        for (selected, gated) in [("yes", true), ("no", false)] {
            let from = Instant::now();
            select(&client, json!({ "matchLabels": { "edited": selected } })).await;
            until_gated(bed, &team.namespace.name, gated).await;
            took[0] = took[0].min(from.elapsed());
        }
        let allow = |allowed: bool| {
            let configuration = json!({ "allowApplicationAwareClusterResourceQuota": allowed });
            json!([{ "op": "add", "path": "/spec/configuration", "value": configuration }])
        };
        let from = Instant::now();
        edit_aaq(&client, allow(true)).await;
        counted(&(10 + edit).to_string()).await;
        took[1] = took[1].min(from.elapsed());
        edit_aaq(&client, allow(false)).await;
    }
    let [selector, cluster_quotas] = took;
    println!("in force after: selector {selector:?}, cluster quotas {cluster_quotas:?}");
    assert!(selector <= IN_FORCE && cluster_quotas <= IN_FORCE, "{took:?}");
    let one = format!("{CLUSTER_QUOTAS}/in-force");
    assert!(call(&client, Method::DELETE, &one, JSON, &json!({})).await.unwrap().is_ok());
}

async fn edit_aaq(client: &kube::Client, patch: Value) {
    let answer = call(client, Method::PATCH, AAQ, JSON_PATCH, &patch).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
}
