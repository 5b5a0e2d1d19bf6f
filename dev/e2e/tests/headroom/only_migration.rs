//! Head-room is for machines that move within their namespace: what comes in or grows on purpose has to fit the quota.

use kube::Api;
use serde_json::json;
use sluice_api::HeadroomPolicy;
use sluice_e2e::audit::{AuditTrail, until_refused};
use sluice_e2e::targets;
use sluice_e2e::tenant::{SOON, Tenant, amount, shared, spec_hard, used};
use sluice_testbed::kubevirt::Vm;
use sluice_testbed::wait;

use crate::context::{MEMORY, MI, alone, grant, metric, rejected, set_limit, until_condition, used_memory};

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_comes_from_elsewhere_gets_no_room() {
    let tenant = Tenant::on(shared().await.bed, "receive").await;
    let vm = tenant.vm("web").await;
    tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    targets::expect(&tenant, "guest").await;
    targets::receive(&tenant, "guest").await;
    until_refused(&tenant, 3).await;
    let trail = AuditTrail::of(&tenant).await;
    assert_eq!(trail.raises().len(), 0);
    let said: Vec<&str> = trail.attempts().map(|event| event.message.as_str()).collect();
    assert!(said.last().unwrap().contains("exceeded quota: rq"), "{said:#?}");
    // A machine that moves within the namespace has its room at the same time.
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    tenant.until_clear().await;
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 1);
}

/// What the last refused target asked for.
async fn requested(tenant: &Tenant<'_>) -> i128 {
    let trail = AuditTrail::of(tenant).await;
    let last = trail.attempts().last().unwrap();
    let said = last.message.split("requested: requests.memory=").nth(1).unwrap();
    said.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_grows_by_hot_plug_has_to_fit_the_quota_afterwards() {
    let tenant = Tenant::on(shared().await.bed, "hotplug").await;
    let vm = tenant.kubevirt.vm(tenant.name(), "web").hotplug(8, "4Gi").start().await.unwrap();
    tenant.full_quota("rq", &[MEMORY]).await;
    let before = used_memory(&tenant).await;
    // Where nothing is granted, nobody asks whether the target will find room.
    let migration = vm.hotplug_memory("1Gi").await.unwrap();
    migration.until_rejected().await.unwrap();
    let wanted = requested(&tenant).await;
    assert!(wanted > before + 512 * MI, "{wanted}, {before} before");
    tenant.unlimited().await;
    set_limit(&tenant, &(wanted - 1).to_string()).await;
    let refused = AuditTrail::of(&tenant).await.rejections().len();
    until_refused(&tenant, refused + 2).await;
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 0, "one byte of it would stay above the quota");
    set_limit(&tenant, &wanted.to_string()).await;
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 1, "for the time of the migration");
    vm.until_alone().await.unwrap();
    let full = |quota: &_| amount(&used(quota), MEMORY) == amount(&spec_hard(quota), MEMORY);
    tenant.until_quota("rq", "to be full and not exceeded", full).await;
}

/// A machine that would find no room any more is told before it grows, and moves on as it is.
#[tokio::test(flavor = "multi_thread")]
async fn growth_that_no_target_would_find_room_for_is_refused_when_the_machine_is_changed() {
    let tenant = Tenant::on(shared().await.bed, "outgrown").await;
    let vm = tenant.kubevirt.vm(tenant.name(), "web").hotplug(8, "4Gi").start().await.unwrap();
    tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    // The webhook knows of the grant from here on.
    migrate_alone(&tenant, &vm).await;
    let refused = vm.change(json!({ "domain": { "memory": { "guest": "3Gi" } } })).await.unwrap_err();
    let refused = format!("{refused:#}");
    assert!(refused.contains("exceeded quota: rq, requested: requests.memory="), "{refused}");
    migrate_alone(&tenant, &vm).await;
    assert_eq!(tenant.rejected_attempts().await, 0);
    set_limit(&tenant, "8Gi").await;
    vm.hotplug_memory("3Gi").await.unwrap().until_succeeded().await.unwrap();
}

/// Sets KubeVirt's ratio of memory overhead; `None` removes it.
async fn overhead_ratio(tenant: &Tenant<'_>, ratio: Option<&str>) {
    tenant.kubevirt.configure(json!({ "additionalGuestMemoryOverheadRatio": ratio })).await.unwrap();
}

async fn migrate_alone(tenant: &Tenant<'_>, vm: &Vm) {
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    tenant.until_clear().await;
    vm.until_alone().await.unwrap();
}

/// KubeVirt's configuration counts for the whole cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_grows_by_a_new_overhead_ratio_passes() {
    let alone = alone().await;
    let webhook = alone.webhook(&[]).await;
    webhook.until_proven().await.unwrap();
    let tenant = Tenant::on(alone.bed, "ratio").await;
    let vm = tenant.vm("web").await;
    tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    grant(&tenant, "1Gi").await;
    until_condition(&tenant, "AboveQuotas", "False", "no more than its ResourceQuotas say").await;
    let before = used_memory(&tenant).await;
    overhead_ratio(&tenant, Some("3.0")).await;
    migrate_alone(&tenant, &vm).await;
    let grown = |quota: &_| amount(&used(quota), MEMORY) > amount(&spec_hard(quota), MEMORY);
    tenant.until_quota("rq", "the larger pod to be counted", grown).await;
    assert!(used_memory(&tenant).await > before);
    assert_eq!(tenant.rejected_attempts().await, 0);
    let policies: Api<HeadroomPolicy> = Api::all(tenant.client.clone());
    let is_said = || async {
        let conditions = policies.get(tenant.name()).await.ok()?.status?.conditions;
        let above = conditions.into_iter().find(|condition| condition.type_ == "AboveQuotas")?;
        (above.status == "True" && above.message.contains(&format!(": {}. ", tenant.name()))).then_some(())
    };
    wait::eventually(SOON, is_said, "the policy to say that the machine would not start again")
        .await
        .unwrap();
    // So does the other kind of grant, and an alert can go by the metric.
    until_condition(&tenant, "AboveQuotas", "True", "raise the quota").await;
    assert!(metric(&alone.controller.admin, "sluice_headroom_namespaces_above_quotas").await >= 1.0);
    // Above its quota already, it moves on.
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    tenant.until_clear().await;
    assert_eq!(tenant.rejected_attempts().await, 0);
    overhead_ratio(&tenant, None).await;
}

/// A machine whose quota is not granted anything stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_grant_no_quota_is_ever_touched() {
    let tenant = Tenant::on(shared().await.bed, "none").await;
    let vm = tenant.vm("web").await;
    tenant.full_quota("rq", &[MEMORY]).await;
    let migration = rejected(&vm).await;
    until_refused(&tenant, 5).await;
    assert_eq!(AuditTrail::of(&tenant).await.status_writes().count(), 0);
    migration.abort().await.unwrap();
}
