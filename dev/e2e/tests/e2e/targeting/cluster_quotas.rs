//! Whether there are cluster quotas is said by the `AAQ`, and the webhook tells those who create one.

use http::Method;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{MERGE, call};
use sluice_testbed::{Bed, wait};

use super::{cluster, create_aaq};
use crate::context::{SOON, kubectl_tries, manifest};

/// Waits until the creation of a cluster quota is answered with a warning, or without.
async fn until_warned(bed: &Bed, file: &str, warned: bool) {
    let create = ["create", "--dry-run=server", "--filename", file];
    let answered = || async {
        let (done, stdout, stderr) = kubectl_tries(bed, &create).await;
        assert!(done, "{stdout}{stderr}");
        (stderr.contains("no AAQ allows cluster quotas") == warned).then_some(())
    };
    wait::eventually(SOON, answered, &format!("warned: {warned}")).await.unwrap();
}

#[tokio::test]
async fn a_cluster_quota_is_warned_about_until_the_aaq_allows_it() {
    let (bed, _turn) = cluster().await;
    let client = bed.admin().unwrap();
    let object = json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
        "metadata": { "name": "asked" },
        "spec": { "quota": { "hard": { "pods": "1" } }, "selector": { "labels": { "matchLabels": { "a": "b" } } } },
    });
    let file = manifest(bed, "asked.json", &object.to_string());
    until_warned(bed, &file, true).await;
    create_aaq(&client, Value::Null).await;
    for (allowed, warned) in [(true, false), (false, true)] {
        let spec = json!({ "configuration": { "allowApplicationAwareClusterResourceQuota": allowed } });
        let path = "/apis/aaq.kubevirt.io/v1alpha1/aaqs/aaq";
        let patch = json!({ "spec": spec });
        assert!(call(&client, Method::PATCH, path, MERGE, &patch).await.unwrap().is_ok());
        until_warned(bed, &file, warned).await;
    }
}
