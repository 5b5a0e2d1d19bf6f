//! Migrations that a quota rejected get through when something changes: the controller wakes KubeVirt's controller, whose
//! next attempt finds the webhook.

use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::{HeadroomPolicy, names};
use sluice_e2e::audit::{AuditEventExt as _, AuditTrail, NUDGE, until_refused};
use sluice_e2e::objects;
use sluice_e2e::tenant::{SOON, Tenant, shared, used};
use sluice_testbed::kubevirt::Migration;
use sluice_testbed::wait;

use crate::context::{
    MEMORY, MI, crowded, grant, missing, rejected, set_limit, shared_metric, until_condition, until_missing,
    until_told,
};

/// The migration gets through, and the controller has written nothing but nudges. Returns how many.
async fn through(tenant: &Tenant<'_>, migration: &Migration) -> usize {
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    AuditTrail::of(tenant).await.nudges()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_created_later_lets_it_through() {
    let (tenant, vm) = crowded("later").await;
    let migration = rejected(&vm).await;
    until_told(&tenant, "VirtualMachineInstanceMigration", "NotEnoughHeadroom").await;
    assert_eq!(AuditTrail::of(&tenant).await.status_writes().count(), 0, "nothing is granted yet");
    grant(&tenant, "1Gi").await;
    assert!(through(&tenant, &migration).await >= 1);
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 1);
    until_told(&tenant, "VirtualMachineInstanceMigration", "HeadroomGranted").await;
    assert!(shared_metric("sluice_headroom_rejected_total").await >= 1.0);
    assert!(shared_metric("sluice_headroom_nudges_total").await >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_enlarged_lets_it_through() {
    let (tenant, vm) = crowded("policy").await;
    let budget = |memory: &str| json!({ "mode": "PerNamespace", "resources": { MEMORY: memory } });
    tenant.policy(budget("1Mi")).await;
    let migration = rejected(&vm).await;
    until_told(&tenant, "VirtualMachineInstanceMigration", "NotEnoughHeadroom").await;
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 0, "the budget is not enough");
    let policies: Api<HeadroomPolicy> = Api::all(tenant.client.clone());
    let larger = Patch::Merge(json!({ "spec": { "budget": budget("1Gi") } }));
    policies.patch(tenant.name(), &PatchParams::default(), &larger).await.unwrap();
    through(&tenant, &migration).await;
    let covers = |policy: Option<&HeadroomPolicy>| {
        let status = policy.and_then(|policy| policy.status.as_ref());
        status.is_some_and(|status| status.namespaces == Some(1) && status.used.is_empty())
    };
    wait::wait_for(&policies, tenant.name(), SOON, "the policy's status", covers).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_that_drops_lets_it_through() {
    let (tenant, vm) = crowded("usage").await;
    let missing = missing(&tenant).await;
    let guest = objects::pod("guest", &[("memory", "64Mi")]);
    tenant.pods.create(&PostParams::default(), &guest).await.unwrap();
    // Enough as soon as the guest has left, and still above the quota then.
    grant(&tenant, &missing.to_string()).await;
    let migration = rejected(&vm).await;
    until_missing(&tenant, 64 * MI).await;
    tenant.pods.delete("guest", &DeleteParams::default()).await.unwrap();
    through(&tenant, &migration).await;
    until_condition(&tenant, "NotEnough", "False", "no migration lacks head-room").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_enlarged_or_deleted_lets_it_through() {
    let (tenant, vm) = crowded("larger").await;
    let migration = rejected(&vm).await;
    set_limit(&tenant, "4Gi").await;
    migration.until_succeeded().await.unwrap();
    set_limit(&tenant, "700Mi").await;
    tenant.until_clear().await;
    vm.until_alone().await.unwrap();
    let migration = rejected(&vm).await;
    tenant.quotas.delete("rq", &DeleteParams::default()).await.unwrap();
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    let trail = AuditTrail::of(&tenant).await;
    assert_eq!(trail.raises().len(), 0, "there was room without a raise");
    // Where kube-controller-manager needs more than a second to lower the limit, the controller lowers it,
    // and writes nothing else.
    let lowered = json!({ "hard": { MEMORY: "700Mi" }, "used": {} });
    for event in trail.status_writes().filter(|event| event.is_by(names::CONTROLLER)) {
        let status = &event.request["status"];
        let nudge = json!({ "hard": {}, "used": { NUDGE: status["used"][NUDGE] } });
        assert!(*status == lowered || (status["used"][NUDGE].is_string() && *status == nudge), "{status}");
    }
}

fn limits(storage: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "limits" },
        "spec": { "limits": [{ "type": "Container", "default": { "ephemeral-storage": storage } }] },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_range_that_is_lowered_wakes_virt_controller() {
    let tenant = Tenant::on(shared().await.bed, "nudge").await;
    let vm = tenant.vm("web").await;
    let ranges: Api<LimitRange> = Api::namespaced(tenant.client.clone(), tenant.name());
    let apply = PatchParams::apply("test").force();
    // The source has no limit: what the target takes is what the range says.
    ranges.patch("limits", &apply, &Patch::Apply(limits("8Gi"))).await.unwrap();
    tenant.quota("rq", json!({ "limits.ephemeral-storage": "4Gi" })).await;
    let migration = rejected(&vm).await;
    let told = until_told(&tenant, "VirtualMachineInstanceMigration", "NotEnoughHeadroom").await;
    assert!(told.message.unwrap().contains("limits.ephemeral-storage="), "of the target");
    assert_eq!(AuditTrail::of(&tenant).await.status_writes().count(), 0, "nothing is granted");
    ranges.patch("limits", &apply, &Patch::Apply(limits("500Mi"))).await.unwrap();
    assert!(through(&tenant, &migration).await >= 1);
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 0, "there was room without a raise");
    // The source ends: kube-controller-manager counts again.
    vm.until_alone().await.unwrap();
    tenant.until_quota("rq", "the nudge to be gone", |quota| !used(quota).contains_key(NUDGE)).await;
}

/// What the target takes is seen when it is tried. It is told, to those who look for managed-tenant-quota's event too, and
/// KubeVirt's controller is not woken for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_a_limit_range_makes_too_large_is_told() {
    let tenant = Tenant::on(shared().await.bed, "large").await;
    let vm = tenant.vm("web").await;
    let ranges: Api<LimitRange> = Api::namespaced(tenant.client.clone(), tenant.name());
    ranges.patch("limits", &PatchParams::apply("test"), &Patch::Apply(limits("8Gi"))).await.unwrap();
    tenant.quota("rq", json!({ "limits.ephemeral-storage": "4Gi" })).await;
    tenant.unlimited().await;
    let migration = rejected(&vm).await;
    let told = until_told(&tenant, "VirtualMachineInstanceMigration", "NoHeadroom").await;
    let said = told.message.unwrap();
    assert!(said.contains("grow by limits.ephemeral-storage=") && said.contains("hard 4Gi"), "{said}");
    until_told(&tenant, "Pod", "NotEnoughResourceToRelease").await;
    let woken = || async { (AuditTrail::of(&tenant).await.nudges() >= 3).then_some(()) };
    wait::eventually(SOON, woken, "three nudges").await.unwrap();
    // Its own tries go on, and more of them end while nothing changes.
    until_refused(&tenant, AuditTrail::of(&tenant).await.rejections().len() + 1).await;
    assert_eq!(AuditTrail::of(&tenant).await.nudges(), 3);
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 0);
    migration.abort().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_admission_ignores_a_nudge() {
    let tenant = Tenant::on(shared().await.bed, "mark").await;
    tenant.quota("rq", json!({ "requests.cpu": "1" })).await;
    let nudge = Patch::Merge(json!({ "status": { "used": { NUDGE: "1" } } }));
    tenant.quotas.patch_status("rq", &PatchParams::default(), &nudge).await.unwrap();
    let create = |name: &str| {
        let (pods, pod) = (tenant.pods.clone(), objects::pod(name, &[("cpu", "600m")]));
        async move { pods.create(&PostParams::default(), &pod).await }
    };
    create("fits").await.unwrap();
    let nudged = |quota: &ResourceQuota| used(quota).contains_key(NUDGE);
    let quota =
        tenant.until_quota("rq", "the pod to be counted", |quota| used(quota)["requests.cpu"].0 == "600m");
    assert!(nudged(&quota.await), "quota admission keeps what it does not know");
    let refused = create("exceeds").await.unwrap_err();
    assert!(refused.to_string().contains("exceeded quota: rq, requested: requests.cpu=600m"), "{refused}");
    tenant.pods.delete("fits", &DeleteParams::default()).await.unwrap();
    tenant.until_quota("rq", "the nudge to be gone", |quota| !nudged(quota)).await;
}

/// A nudge is no mark: the migration after one gets its room at the first attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_nudged_quota_is_raised_as_ever() {
    let (tenant, vm) = crowded("nudged").await;
    let nudge = Patch::Merge(json!({ "status": { "used": { NUDGE: "7" } } }));
    tenant.quotas.patch_status("rq", &PatchParams::default(), &nudge).await.unwrap();
    tenant.until_quota("rq", "the nudge", |quota| used(quota).contains_key(NUDGE)).await;
    tenant.unlimited().await;
    let migration = vm.migrate().await.unwrap();
    through(&tenant, &migration).await;
    let trail = AuditTrail::of(&tenant).await;
    assert_eq!((trail.rejections().len(), trail.raises().len()), (0, 1));
}

/// What KubeVirt's controller tries in vain costs no write. Where it is late, ours wakes it, at most once for each limit.
#[tokio::test(flavor = "multi_thread")]
async fn attempts_without_enough_budget_write_nothing() {
    let (tenant, vm) = crowded("vain").await;
    let missing = missing(&tenant).await;
    grant(&tenant, &(missing - MI).to_string()).await;
    let migration = rejected(&vm).await;
    until_missing(&tenant, MI).await;
    for attempt in 1..=5 {
        let limit = format!("{}Ki", 700 * 1024 + attempt);
        set_limit(&tenant, &limit).await;
        until_refused(&tenant, 1 + attempt).await;
    }
    let trail = AuditTrail::of(&tenant).await;
    let nudges = trail.nudges();
    assert_eq!(trail.status_writes().count(), nudges, "{:?}", trail.status_writes().collect::<Vec<_>>());
    assert!(nudges <= 6, "{nudges}");
    migration.abort().await.unwrap();
}
