//! The policy about new VirtualMachineInstances is there before KubeVirt, and holds from the moment KubeVirt's kind is served.
//!
//! The kind is a stand-in without a schema; what the policy says of the real one is tested with head-room, in
//! `headroom/forged_status.rs`.

use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{Response, get, post};
use sluice_testbed::wait;

use crate::context::SOON;
use crate::gate_policies::world::{asleep, assert_refused};
use crate::team::Team;

fn kind() -> Value {
    let versions = [("v1", true), ("v1alpha3", false)].map(|(name, storage)| {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": schema } })
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "virtualmachineinstances.kubevirt.io" },
        "spec": {
            "group": "kubevirt.io", "scope": "Namespaced", "versions": versions,
            "names": { "kind": "VirtualMachineInstance", "plural": "virtualmachineinstances" },
        },
    })
}

/// What would become of this machine.
async fn tries(team: &Team, version: &str, content: &Value) -> Response {
    let mut vmi = content.clone();
    vmi["apiVersion"] = json!(format!("kubevirt.io/{version}"));
    vmi["kind"] = json!("VirtualMachineInstance");
    vmi["metadata"] = json!({ "name": "vm" });
    let path = format!("/apis/kubevirt.io/{version}/namespaces/{}", team.namespace);
    post(&team.client, &format!("{path}/virtualmachineinstances?dryRun=All"), &vmi).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_waits_for_kubevirt_and_needs_no_process_of_sluice() {
    let bed = asleep().await;
    let team = Team::with(bed, "later", &[]).await;
    let path = format!(
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{}",
        names::VMI_STATUS_POLICY
    );
    assert!(get(&team.client, &path).await.unwrap().is_ok(), "there without the kind");
    bed.apply_objects([kind()]).await.unwrap();
    // The stand-in's schema lets anything through: the expressions have to cope with all that is absent.
    for version in ["v1", "v1alpha3"] {
        for plain in
            [json!({}), json!({ "spec": {} }), json!({ "spec": {}, "status": { "phase": "Pending" } })]
        {
            let served = || async { tries(&team, version, &plain).await.is_ok().then_some(()) };
            wait::eventually(SOON, served, "the kind to be served").await.unwrap();
        }
        for (field, status) in [
            ("status.nodeName", json!({ "nodeName": "n" })),
            ("status.currentCPUTopology", json!({ "currentCPUTopology": { "sockets": 1 } })),
            ("status.memory", json!({ "memory": { "guestRequested": "1Mi" } })),
            ("status.memory", json!({ "memory": { "memoryOverhead": "1Gi" } })),
        ] {
            let answer = tries(&team, version, &json!({ "status": status })).await;
            assert_refused(&answer, &[names::VMI_STATUS_POLICY, field, "create it without status"]);
        }
    }
}
