//! What is told of virtual machines when a quota is made: by the calculator that the `AAQ` names, where KubeVirt runs.

use http::Method;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, call, post};
use sluice_testbed::{Bed, wait};

use super::{cluster, create_aaq};
use crate::context::{SOON, kubectl_tries, manifest};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const KUBEVIRTS: &str = "/apis/kubevirt.io/v1/namespaces/default/kubevirts";

fn kubevirts() -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "kubevirts.kubevirt.io" },
        "spec": {
            "group": "kubevirt.io", "scope": "Namespaced",
            "names": { "kind": "KubeVirt", "plural": "kubevirts" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

/// Waits until a quota of these keys is created with these warnings.
async fn until_warned(bed: &Bed, hard: &Value, expected: &[&str]) {
    let quota = json!({
        "apiVersion": "aaq.kubevirt.io/v1alpha1", "kind": "ApplicationAwareResourceQuota",
        "metadata": { "name": "q" }, "spec": { "hard": hard },
    });
    let file = manifest(bed, "machines.json", &quota.to_string());
    let args = ["create", "--namespace", "default", "--dry-run=server", "--filename", &file];
    let warned = || async {
        let (done, stdout, stderr) = kubectl_tries(bed, &args).await;
        assert!(done, "{stdout}{stderr}");
        (stderr.lines().collect::<Vec<_>>() == expected).then_some(())
    };
    wait::eventually(SOON, warned, &format!("the warnings {expected:?} about {hard}")).await.unwrap();
}

#[tokio::test]
async fn which_keys_virtual_machines_take_is_warned_of_by_the_calculator_in_force() {
    let (bed, _turn) = cluster().await;
    let client = bed.admin().unwrap();
    // Of a quota of another namespace there would be more to warn of.
    create_aaq(&client, json!({ "matchLabels": { "kubernetes.io/metadata.name": "default" } })).await;
    let hard = json!({ "limits.cpu": "8", "requests.cpu/vmi": "8" });
    until_warned(
        bed,
        &hard,
        &["Warning: spec.hard: not enforced: requests.cpu/vmi: only virtual machines take it, where KubeVirt runs and the \
           AAQ's calculator is DedicatedVirtualResources, limit pods by requests.cpu and requests.memory"],
    )
    .await;

    assert_eq!(post(&client, CRDS, &kubevirts()).await.unwrap().code, 201);
    let kubevirt =
        json!({ "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" } });
    // A kind is served a moment after it is created.
    let served = || async { (post(&client, KUBEVIRTS, &kubevirt).await.ok()?.code == 201).then_some(()) };
    wait::eventually(SOON, served, "the API server to serve KubeVirt's kind").await.unwrap();
    until_warned(bed, &hard, &[]).await;
    until_warned(
        bed,
        &json!({ "limits.cpu": "8" }),
        &["Warning: spec.hard: virtual machines do not take limits.cpu (calculator DedicatedVirtualResources): limit them \
           by requests.instances/vmi, requests.cpu/vmi, requests.memory/vmi"],
    )
    .await;

    let calculator = json!({ "configName": "VmiPodUsage" });
    let spec = json!({ "spec": { "configuration": { "vmiCalculatorConfiguration": calculator } } });
    let args = ["patch", "aaq", names::AAQ_NAME, "--type=merge", "--patch", &spec.to_string()];
    let (done, stdout, stderr) = kubectl_tries(bed, &args).await;
    assert!(done && stderr.is_empty(), "it is in force: {stdout}{stderr}");
    until_warned(
        bed,
        &hard,
        &["Warning: spec.hard: not enforced: requests.cpu/vmi: VMs take pods, requests.cpu, requests.memory (calculator \
           VmiPodUsage): limit those, or set vmiCalculatorConfiguration.configName of the AAQ to DedicatedVirtualResources"],
    )
    .await;
    let path = format!("{CRDS}/kubevirts.kubevirt.io");
    let gone = call(&client, Method::DELETE, &path, JSON, &json!({})).await.unwrap();
    assert!(gone.is_ok(), "{gone:?}");
}
