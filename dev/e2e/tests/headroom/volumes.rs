//! Machines with volumes: a plugged-in one comes to the target's node by a pod of its own, and the state of a TPM by a claim
//! of its own. KubeVirt's part is the real one; the storage driver is simulated.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sluice_e2e::audit::{AuditTrail, assert_none_rejected};
use sluice_e2e::objects::from_json;
use sluice_e2e::simulated_provisioner::{CLASS, SimulatedProvisioner};
use sluice_e2e::tenant::{SOON, Tenant, amount, shared, spec_hard, used};
use sluice_testbed::kubevirt::Vm;
use sluice_testbed::wait;

use crate::context::{MEMORY, until_told};

/// A namespace whose claims get volumes.
async fn provisioned(prefix: &str) -> (Tenant<'static>, SimulatedProvisioner) {
    let bed = shared().await.bed;
    let tenant = Tenant::on(bed, prefix).await;
    let provisioner = SimulatedProvisioner::start(bed, tenant.name()).await.unwrap();
    (tenant, provisioner)
}

fn claims(tenant: &Tenant<'_>) -> Api<PersistentVolumeClaim> {
    Api::namespaced(tenant.client.clone(), tenant.name())
}

/// A machine that runs with a volume plugged in.
async fn with_a_volume(tenant: &Tenant<'_>) -> Vm {
    let claim = from_json(json!({
        "metadata": { "name": "data" },
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": CLASS,
            "resources": { "requests": { "storage": "1Gi" } },
        },
    }));
    claims(tenant).create(&PostParams::default(), &claim).await.unwrap();
    let plugged = json!({
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data", "hotpluggable": true } }],
        "domain": { "devices": { "disks": [{ "name": "data", "disk": { "bus": "scsi" } }] } },
    });
    tenant.kubevirt.vm(tenant.name(), "web").spec(plugged).start().await.unwrap()
}

/// Waits until the only pods are a launcher and the pod that attaches its volume; returns the second.
async fn until_attached(tenant: &Tenant<'_>) -> Pod {
    let attached = || async {
        let mut pods = tenant.pods.list(&ListParams::default()).await.ok()?.items;
        pods.retain(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        });
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
        };
        let is_attachment = |pod: &&Pod| pod.name_any().starts_with("hp-volume-");
        let attachments: Vec<&Pod> = pods.iter().filter(is_attachment).collect();
        let [attachment] = attachments[..] else { return None };
        let owner = attachment.owner_references().first()?;
        let has_owner = pods.iter().any(|pod| pod.uid().as_ref() == Some(&owner.uid));
        (pods.len() == 2 && has_owner && pods.iter().all(is_ready)).then(|| attachment.clone())
    };
    wait::eventually(SOON, attached, "one launcher with its volume attached").await.unwrap()
}

/// The target is let in, and then the pod that attaches the volume to it: each takes the room of the one it comes for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_with_a_plugged_in_volume_migrates_in_a_full_quota() {
    let (tenant, _provisioner) = provisioned("plugged").await;
    let vm = with_a_volume(&tenant).await;
    let before = until_attached(&tenant).await;
    tenant.full_quota("rq", &[MEMORY, "pods"]).await;
    tenant.unlimited().await;
    for _ in 0..2 {
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
        let after = until_attached(&tenant).await;
        assert_ne!(before.name_any(), after.name_any());
        tenant.until_clear().await;
        let full = |quota: &_| {
            [MEMORY, "pods"].iter().all(|key| amount(&used(quota), key) == amount(&spec_hard(quota), key))
        };
        tenant.until_quota("rq", "to be full and not exceeded", full).await;
    }
    assert_none_rejected(&tenant).await;
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 4, "two for each migration");
}

/// KubeVirt makes a second claim for the target where nodes cannot share the first, as of the default class. That is no pod,
/// and head-room is not asked: who waits is told which limit it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_keeps_the_state_of_its_tpm_is_told_which_limit_keeps_it() {
    let (tenant, _provisioner) = provisioned("tpm").await;
    let tpm = json!({ "domain": { "devices": { "tpm": { "persistent": true } } } });
    let vm = tenant.kubevirt.vm(tenant.name(), "web").spec(tpm).start().await.unwrap();
    assert_eq!(claims(&tenant).list(&ListParams::default()).await.unwrap().items.len(), 1);
    tenant.full_quota("rq", &[MEMORY]).await;
    let state = |limit: &str| json!({ "persistentvolumeclaims": limit });
    tenant.quota("state", state("1")).await;
    tenant.unlimited().await;
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    let told = until_told(&tenant, "VirtualMachineInstanceMigration", "NoHeadroom").await.message.unwrap();
    assert!(told.contains("state limits persistentvolumeclaims (1 of 1 used)"), "{told}");
    assert!(told.contains("raise this limit"), "{told}");
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 0);
    let larger: Value = json!({ "spec": { "hard": state("2") } });
    let larger = kube::api::Patch::Merge(larger);
    tenant.quotas.patch("state", &Default::default(), &larger).await.unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    tenant.until_clear().await;
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 1);
}
