//! The scenarios of the report from Harvester 1.2: A to E. F, in which Rancher takes part, is in `rancher`.

use futures::future::join_all;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_e2e::tenant::{Tenant, amount, hard, shared, spec_hard, used};
use sluice_testbed::kubevirt::MigrationScript;

use super::{amounts, evacuate, machine, other_pod, projected, shapes, until_used, without_console};
use crate::chronicle::{Chronicle, exact};
use crate::trail::assert_none_rejected;

/// The two machines that use what the customer's namespace has, and what else it had.
pub async fn customer_uses_its_quota(tenant: &Tenant<'_>) -> Vec<sluice_testbed::kubevirt::Vm> {
    let vms =
        (0..7).map(|number| machine(tenant, &format!("vm{number}"), (4, "8Gi"), ("250m", "5461Mi")).start());
    let vms = join_all(vms).await.into_iter().map(Result::unwrap).collect();
    for number in 0..4 {
        other_pod(tenant, &format!("hp-volume-{number}"), "100m", "80M").await;
    }
    vms
}

/// A: the quota that old Harvester had left at 26 cores is below what is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_passes_a_quota_that_is_below_its_usage() {
    let tenant = Tenant::on(shared().await.bed, "field-a").await;
    projected(&tenant, "default-4tmmk", &shapes::customer()).await;
    let vms = customer_uses_its_quota(&tenant).await;
    let full = until_used(&tenant, "default-4tmmk", &[("limits.cpu", "28505m")]).await;
    let one = machine(&tenant, "more", (4, "8Gi"), ("250m", "5461Mi"));
    let low = amounts(&[("limits.cpu", "26"), ("limits.memory", "54242646Ki")]);
    let patch = Patch::Merge(json!({ "spec": { "hard": low } }));
    tenant.quotas.patch("default-4tmmk", &PatchParams::default(), &patch).await.unwrap();
    let lowered = |quota: &ResourceQuota| hard(quota) == spec_hard(quota) && hard(quota) != hard(&full);
    tenant.until_quota("default-4tmmk", "26 cores to be enforced", lowered).await;
    tenant.unlimited().await;
    let chronicle = Chronicle::of(&tenant).await;
    for vm in &vms[..3] {
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        tenant.until_clear().await;
        vm.until_alone().await.unwrap();
        until_used(&tenant, "default-4tmmk", &[("limits.cpu", "28505m")]).await;
    }
    assert_none_rejected(&tenant, 3).await;
    let annals = chronicle.end().await;
    annals.assert_never_below("default-4tmmk", &low);
    annals.assert_spec_untouched("default-4tmmk");
    // What is not a migration stays limited.
    let cold = one.create().await.unwrap();
    let refused = cold.until_event("FailedCreate").await.unwrap().message.unwrap();
    assert!(refused.contains("requested: limits.cpu=4015m") && refused.contains("used: limits.cpu=28505m"));
    assert!(refused.contains("limited: limits.cpu=26,limits.memory=54242646Ki"), "{refused}");
}

/// B: a quota with much room is left as it is, to the letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_machine_in_a_quota_with_room() {
    let tenant = Tenant::on(shared().await.bed, "field-b").await;
    projected(&tenant, "default-gn4d2", &shapes::thirteen_keys()).await;
    tenant.unlimited().await;
    let vm = machine(&tenant, "vm1", (2, "4Gi"), ("125m", "2730Mi")).memory("3996Mi");
    let vm = vm.start().await.unwrap();
    let before = tenant.until_quota("default-gn4d2", "one pod", |now| used(now)["pods"].0 == "1").await;
    let chronicle = Chronicle::of(&tenant).await;
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    let after = tenant.until_quota("default-gn4d2", "one pod again", |now| used(now) == used(&before)).await;
    assert_eq!(hard(&after)["limits.memory"].0, "60Gi", "not rewritten as 64424509440");
    assert_eq!(tenant.rejected_attempts().await, 0);
    let annals = chronicle.end().await;
    assert_eq!(annals.raises("default-gn4d2"), 0);
    annals.assert_never_below("default-gn4d2", &shapes::thirteen_keys());
    annals.assert_spec_untouched("default-gn4d2");
}

/// C: a migration that is over for KubeVirt while its source is still counted by Kubernetes does not stop the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_pass_while_the_source_of_the_first_still_runs() {
    let tenant = Tenant::on(shared().await.bed, "field-c").await;
    let names = ["vm1", "vm2", "vm3", "vm4"];
    let vms = names.map(|name| machine(&tenant, name, (1, "2Gi"), ("62m", "1365Mi")).start());
    let vms: Vec<_> = join_all(vms).await.into_iter().map(Result::unwrap).collect();
    let keys = ["limits.cpu", "limits.memory", "pods", "requests.cpu", "requests.memory"];
    let full = tenant.full_quota("rq", &keys).await;
    assert_eq!((used(&full)["requests.cpu"].0.as_str(), used(&full)["pods"].0.as_str()), ("268m", "4"));
    tenant.unlimited().await;
    vms[0].follow(MigrationScript::KeepSource).await.unwrap();
    vms[0].migrate().await.unwrap().until_succeeded().await.unwrap();
    for vm in &vms[1..] {
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        let now = tenant.quotas.get("rq").await.unwrap();
        assert!(amount(&used(&now), "pods") >= exact("5"), "the first source is counted");
        vm.until_alone().await.unwrap();
    }
    tenant.until_clear().await;
    assert_none_rejected(&tenant, 4).await;
    vms[0].release().await.unwrap();
    vms[0].until_alone().await.unwrap();
    tenant.until_quota("rq", "the last source to be given back", |now| used(now) == used(&full)).await;
}

/// D: four machines that fill the quota leave their node at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_machines_are_evacuated_at_once() {
    let tenant = Tenant::on(shared().await.bed, "field-d").await;
    let names = ["vm1", "vm2", "vm3", "vm4"];
    let vms = names.map(|name| machine(&tenant, name, (1, "2Gi"), ("62m", "1365Mi")).start());
    let vms: Vec<_> = join_all(vms).await.into_iter().map(Result::unwrap).collect();
    let keys = ["limits.cpu", "limits.memory", "requests.cpu", "requests.memory", "pods"];
    let full = tenant.full_quota("rq", &keys).await;
    let base = spec_hard(&full).into_iter().map(|(key, amount)| (key, amount.0)).collect();
    tenant.unlimited().await;
    let chronicle = Chronicle::of(&tenant).await;
    evacuate(&tenant, &vms).await;
    for vm in &vms {
        vm.until_migration(&[]).await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
    }
    tenant.until_clear().await;
    tenant.until_quota("rq", "the sources to be given back", |now| used(now) == used(&full)).await;
    assert_none_rejected(&tenant, 4).await;
    let annals = chronicle.end().await;
    annals.assert_never_below("rq", &base);
    annals.assert_spec_untouched("rq");
}

/// E: `requests.memory`, which Harvester does not scale, lets only one of three targets in at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_machines_whose_requests_fill_the_quota_are_evacuated() {
    let tenant = Tenant::on(shared().await.bed, "field-e").await;
    projected(&tenant, "default-gn4d2", &shapes::just_above_three()).await;
    let vms = ["vm1", "vm2", "vm3"]
        .map(|name| without_console(machine(&tenant, name, (1, "1Gi"), ("62m", "682Mi"))).start());
    let vms: Vec<_> = join_all(vms).await.into_iter().map(Result::unwrap).collect();
    let counted = [("limits.cpu", "3"), ("requests.cpu", "186m"), ("pods", "3")];
    let full = until_used(&tenant, "default-gn4d2", &counted).await;
    let one = amount(&used(&full), "requests.memory").nanos() / 3;
    let limit = amount(&spec_hard(&full), "requests.memory").nanos();
    assert!(4 * one <= limit && 5 * one > limit, "room for exactly one target, as in the report");
    tenant.unlimited().await;
    let chronicle = Chronicle::of(&tenant).await;
    evacuate(&tenant, &vms).await;
    for vm in &vms {
        vm.until_migration(&[]).await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
    }
    tenant.until_clear().await;
    until_used(&tenant, "default-gn4d2", &counted).await;
    // 27 in the report.
    assert_none_rejected(&tenant, 3).await;
    let annals = chronicle.end().await;
    annals.assert_never_below("default-gn4d2", &shapes::just_above_three());
    annals.assert_spec_untouched("default-gn4d2");
}
