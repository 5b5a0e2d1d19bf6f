//! The policy about new VirtualMachineInstances and the webhook about their size are there before KubeVirt, and hold from
//! the moment KubeVirt's kind is served.
//!
//! The kind is a stand-in without a schema; what the policy says of the real one is tested with head-room, in
//! `headroom/forged_status.rs`.

use http::Method;
use serde_json::{Value, json};
use sluice_api::{WebhookEntry, names};
use sluice_e2e::call::{MERGE, Response, call, get, post};
use sluice_testbed::wait;

use crate::context::SOON;
use crate::gate_policies::world::asleep;
use crate::pods::assert_refused;
use crate::team::Team;

/// A stand-in for KubeVirt's kind of this name.
pub fn kind(name: &str, plural: &str, subresources: &Value) -> Value {
    let versions = [("v1", true), ("v1alpha3", false)].map(|(name, storage)| {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        json!({
            "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": schema },
            "subresources": subresources,
        })
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.kubevirt.io") },
        "spec": {
            "group": "kubevirt.io", "scope": "Namespaced", "versions": versions,
            "names": { "kind": name, "plural": plural },
        },
    })
}

/// The stand-in for VirtualMachineInstances, which have no subresource for their status.
pub fn instances() -> Value {
    kind("VirtualMachineInstance", "virtualmachineinstances", &json!({}))
}

fn path(team: &Team, version: &str) -> String {
    format!("/apis/kubevirt.io/{version}/namespaces/{}/virtualmachineinstances", team.namespace)
}

fn vmi(name: &str, version: &str, content: &Value) -> Value {
    let mut vmi = content.clone();
    vmi["apiVersion"] = json!(format!("kubevirt.io/{version}"));
    vmi["kind"] = json!("VirtualMachineInstance");
    vmi["metadata"] = json!({ "name": name });
    vmi
}

/// What would become of this machine.
async fn tries(team: &Team, version: &str, content: &Value) -> Response {
    let path = format!("{}?dryRun=All", path(team, version));
    post(&team.client, &path, &vmi("vm", version, content)).await.unwrap()
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
    bed.apply_objects([instances()]).await.unwrap();
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

/// No process of Sluice is left, so an update that the webhook is called for is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhook_is_called_for_another_size_and_for_nothing_else() {
    let bed = asleep().await;
    let team = Team::on(bed, "size").await;
    bed.apply_objects([instances()]).await.unwrap();
    let path = path(&team, "v1");
    let sized = json!({ "spec": { "domain": { "cpu": { "sockets": 1 }, "memory": { "guest": "1Gi" } } } });
    for (name, content) in [("bare", json!({})), ("sized", sized)] {
        let vmi = vmi(name, "v1", &content);
        let created = || async { post(&team.client, &path, &vmi).await.unwrap().is_ok().then_some(()) };
        wait::eventually(SOON, created, "the kind to be served").await.unwrap();
        let change = async |change: &Value| {
            call(&team.client, Method::PATCH, &format!("{path}/{name}"), MERGE, change).await.unwrap()
        };
        for kept in [
            json!({ "status": { "phase": "Running", "currentCPUTopology": { "sockets": 2 } } }),
            json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "a": "b" } } }),
            json!({ "spec": { "nodeSelector": { "a": "b" }, "domain": { "devices": {} } } }),
        ] {
            let answer = change(&kept).await;
            assert!(answer.is_ok(), "{name}: {kept}: {answer:?}");
        }
        for resized in [
            json!({ "spec": { "domain": { "cpu": { "sockets": 2 } } } }),
            json!({ "spec": { "domain": { "memory": { "guest": "2Gi" } } } }),
            json!({ "spec": { "domain": { "resources": { "requests": { "cpu": "1" } } } } }),
            json!({ "metadata": { "annotations": { names::EVEN_EMULATOR_ANNOTATION: "" } } }),
        ] {
            let answer = change(&resized).await;
            // Not 403, which an error in the condition would be.
            assert_eq!(answer.code, 500, "{name}: {resized}: {answer:?}");
            assert!(answer.message().contains(WebhookEntry::VMI_GROWTH.name), "{}", answer.message());
        }
    }
}
