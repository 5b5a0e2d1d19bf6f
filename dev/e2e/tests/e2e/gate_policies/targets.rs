//! Migrations of VMs that are charged, while no process of Sluice runs, and what has the last word of their targets.

use serde_json::json;
use sluice_api::names;
use sluice_e2e::audit::{AuditEventExt as _, AuditTrail};
use sluice_e2e::call::post;
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_e2e::targets::{migrate, try_by_kubevirt, until_gated};
use sluice_e2e::tenant::{Tenant, own};
use sluice_e2e::{Running, Setup};
use sluice_testbed::kubevirt::CONTROLLER;
use sluice_testbed::wait;

use crate::context::SOON;
use crate::gate_policies::world::{delete, delete_gate_policy, policy_path};
use crate::pods::assert_refused;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vms_migrate_and_others_wait_while_no_process_of_sluice_runs() {
    let bed = own().await;
    let world = Running::on(&bed, Setup::default()).await.unwrap();
    let tenant = Tenant::with(&bed, "asleep", TARGETED).await;
    let quota = objects::quota("vms", &[("requests.instances/vmi", "1")]);
    objects::create(&tenant.client, tenant.name(), &quota).await.unwrap();
    let vm = tenant.vm("vm").await;
    let target = migrate(&vm).await;
    until_gated(&tenant, &target, false).await;

    world.kill_all().await.unwrap();
    let second = vm.migrate().await.unwrap();
    let made = second.until_target_pod().await.unwrap().metadata.name.unwrap();
    second.until_succeeded().await.unwrap();
    assert!(!AuditTrail::of(&tenant).await.creation_of(&made).is_gated());
    let other = tenant.kubevirt.vm(tenant.name(), "other").create().await.unwrap();
    let launcher = || async { other.pods().await.ok()?.pop() };
    let launcher = wait::eventually(SOON, launcher, "the launcher of a VM that starts").await.unwrap();
    assert!(is_held(&launcher), "{launcher:?}");

    // Nothing gates any more: KubeVirt's targets come in, whatever else looks like one does not.
    delete_gate_policy(&tenant.client).await;
    delete(&tenant.client, &policy_path("mutatingwebhookconfigurations", names::MUTATING_CONFIG)).await;
    let mut unlike = target.clone();
    unlike["spec"]["affinity"] = json!({});
    let refused = || async { Some(try_by_kubevirt(&tenant, &unlike).await).filter(|answer| !answer.is_ok()) };
    let refused = wait::eventually(SOON, refused, "an ungated pod to be refused").await.unwrap();
    assert_refused(&refused, &[names::GATED_POLICY]);
    let stamped = |user: &str| {
        let mut pod = target.clone();
        pod["metadata"]["annotations"][names::CREATED_BY_ANNOTATION] = json!(user);
        pod
    };
    let answer = try_by_kubevirt(&tenant, &stamped(CONTROLLER)).await;
    assert!(answer.is_ok(), "{answer:?}");
    let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", tenant.name());
    let identity = bed.tenant(&tenant.namespace).await.unwrap();
    let answer = post(&identity.client().unwrap(), &path, &stamped(identity.user())).await.unwrap();
    assert_refused(&answer, &[names::GATED_POLICY, "ApplicationAwareQuotaGate"]);
}
