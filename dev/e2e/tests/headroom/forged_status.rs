//! A VirtualMachineInstance is not created with a status that claims a size or a place. Here no KubeVirt webhook runs: what
//! it would write stands in the requests.

use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{Response, post};
use sluice_e2e::tenant::{Tenant, shared};

/// Guest and topology of the specification.
const GUEST: &str = "256Mi";

/// What would become of a machine that is created with this status.
async fn tries(tenant: &Tenant<'_>, version: &str, status: Option<Value>) -> Response {
    let mut vmi = tenant.kubevirt.vm(tenant.name(), "forged").memory(GUEST).sockets(4).object();
    vmi["apiVersion"] = json!(format!("kubevirt.io/{version}"));
    if let Some(status) = status {
        vmi["status"] = status;
    }
    let namespace = tenant.name();
    let path =
        format!("/apis/kubevirt.io/{version}/namespaces/{namespace}/virtualmachineinstances?dryRun=All");
    post(&tenant.client, &path, &vmi).await.unwrap()
}

/// The status that KubeVirt's webhook gives such a machine, which virt-controller has created.
fn genuine() -> Value {
    json!({
        "phase": "Pending", "runtimeUser": 107, "guestOSInfo": {}, "virtualMachineRevisionName": "revision-start-vm-1",
        "phaseTransitionTimestamps": [{ "phase": "Pending", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z" }],
        "changedBlockTracking": { "state": "Initializing" },
        "currentCPUTopology": { "cores": 1, "sockets": 4, "threads": 1 },
        "memory": { "guestAtBoot": GUEST, "guestCurrent": GUEST, "guestRequested": GUEST },
    })
}

/// A cluster administrator is refused too: no creator is exempt. `memoryOverhead` is pruned in this version of KubeVirt.
#[rstest]
#[case::node("nodeName", json!({ "nodeName": "a" }))]
#[case::pods("activePods", json!({ "activePods": { "a-pod": "a" } }))]
#[case::migration("migrationState", json!({ "migrationState": { "targetPod": "a" } }))]
#[case::empty("migrationState", json!({ "migrationState": {} }))]
#[case::sockets("currentCPUTopology", json!({ "currentCPUTopology": { "cores": 1, "sockets": 1, "threads": 1 } }))]
#[case::cores("currentCPUTopology", json!({ "currentCPUTopology": { "sockets": 4, "threads": 1 } }))]
#[case::threads("currentCPUTopology", json!({ "currentCPUTopology": { "cores": 1, "sockets": 4, "threads": 2 } }))]
#[case::no_cpu("currentCPUTopology", json!({ "currentCPUTopology": {} }))]
#[case::requested("guestRequested", json!({ "memory": {
    "guestAtBoot": GUEST, "guestCurrent": GUEST, "guestRequested": "1Mi" } }))]
#[case::at_boot("guestAtBoot", json!({ "memory": {
    "guestAtBoot": "1Mi", "guestCurrent": GUEST, "guestRequested": GUEST } }))]
#[case::current("guestCurrent", json!({ "memory": {
    "guestAtBoot": GUEST, "guestCurrent": "1Mi", "guestRequested": GUEST } }))]
#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_claims_a_size_or_a_place_is_refused(#[case] field: &str, #[case] claim: Value) {
    let tenant = Tenant::on(shared().await.bed, "forged").await;
    for version in ["v1", "v1alpha3"] {
        let mut forged = genuine();
        forged.as_object_mut().unwrap().extend(claim.as_object().unwrap().clone());
        let answer = tries(&tenant, version, Some(forged)).await;
        let said = answer.message();
        assert!(answer.code == 403 && said.contains(names::VMI_STATUS_POLICY), "{claim}: {answer:?}");
        assert!(said.contains(field) && said.contains("create it without status"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kubevirt_writes_is_let_in() {
    let tenant = Tenant::on(shared().await.bed, "genuine").await;
    for status in [None, Some(json!({})), Some(json!({ "phase": "Pending" })), Some(genuine())] {
        for version in ["v1", "v1alpha3"] {
            let answer = tries(&tenant, version, status.clone()).await;
            assert!(answer.is_ok(), "{status:?}: {answer:?}");
        }
    }
    let vm = tenant.kubevirt.vm(tenant.name(), "always").virtual_machine().start().await.unwrap();
    let vmi = vm.object().await.unwrap();
    assert!(vmi.data["status"]["virtualMachineRevisionName"].is_string(), "{:?}", vmi.data);
}

/// Launchers have the labels of their machine: with this one a machine that starts would pass for one that migrates.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_with_the_label_of_targets_is_refused() {
    let tenant = Tenant::on(shared().await.bed, "labelled").await;
    let vmi = tenant.kubevirt.vm(tenant.name(), "labelled").label(names::MIGRATION_JOB_LABEL, "").object();
    let path = format!("/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstances", tenant.name());
    let answer = post(&tenant.client, &path, &vmi).await.unwrap();
    let said = answer.message();
    assert!(answer.code == 403 && said.contains(names::VMI_STATUS_POLICY), "{answer:?}");
    assert!(said.contains(names::MIGRATION_JOB_LABEL) && said.contains("leave the label off"), "{said}");
}
