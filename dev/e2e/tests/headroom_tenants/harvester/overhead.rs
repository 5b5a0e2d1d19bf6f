//! KubeVirt's overhead ratio, and sources that are counted for long: these tests change the whole cluster.

use k8s_openapi::api::core::v1::ResourceQuota;
use sluice_e2e::tenant::{Tenant, amount, hard, spec_hard, used};
use sluice_testbed::Component;
use sluice_testbed::kubevirt::{MigrationScript, Vm};

use super::{Hard, amounts, machine, projected, until_used};
use crate::apart::{Turn, apart};
use crate::chronicle::{Annals, Chronicle, exact};
use crate::trail::assert_none_rejected;

const QUOTA: &str = "default-z4g94";
const ONE: [(&str, &str); 2] = [("limits.cpu", "2015m"), ("limits.memory", "4797464313")];
const ONE_LARGER: [(&str, &str); 2] = [("limits.cpu", "2015m"), ("limits.memory", "5682461313")];

async fn scene<'t>(turn: &'t Turn, ratio: &str, base: &Hard) -> (Tenant<'t>, Vm) {
    turn.overhead_ratio(Some(ratio)).await;
    let tenant = Tenant::on(turn.bed, "quota-test").await;
    projected(&tenant, QUOTA, base).await;
    tenant.unlimited().await;
    let vm = machine(&tenant, "vm1", (2, "4Gi"), ("125m", "2730Mi")).start().await.unwrap();
    (tenant, vm)
}

/// Migrates; while both pods run, `both` is used and the base is enforced; afterwards `after` is used.
async fn migrate(tenant: &Tenant<'_>, vm: &Vm, both: &[(&str, &str)], after: &[(&str, &str)]) {
    vm.follow(MigrationScript::Hold).await.unwrap();
    let migration = vm.migrate().await.unwrap();
    migration.until_target_pod().await.unwrap();
    tenant.until_clear().await;
    until_used(tenant, QUOTA, both).await;
    vm.release().await.unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    until_used(tenant, QUOTA, after).await;
}

fn unharmed(annals: &Annals, base: &Hard) {
    annals.assert_never_below(QUOTA, base);
    annals.assert_spec_untouched(QUOTA);
}

/// Test 1, to the byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_nearly_fills_its_quota_migrates() {
    let turn = apart().await;
    let base = amounts(&[("limits.cpu", "3"), ("limits.memory", "5000Mi")]);
    let (tenant, vm) = scene(&turn, "1.5", &base).await;
    until_used(&tenant, QUOTA, &ONE).await;
    let chronicle = Chronicle::of(&tenant).await;
    for _ in 0..2 {
        migrate(&tenant, &vm, &[("limits.cpu", "4030m"), ("limits.memory", "9594928626")], &ONE).await;
    }
    assert_none_rejected(&tenant, 2).await;
    unharmed(&chronicle.end().await, &base);
    turn.overhead_ratio(None).await;
}

/// Tests 2 and 3: the ratio is raised while the machine runs. It migrates as often as it likes, though it is larger than
/// its quota then; what is started anew is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_outgrew_its_quota_migrates_again_but_does_not_start_again() {
    let turn = apart().await;
    let base = amounts(&[("limits.cpu", "3"), ("limits.memory", "5000Mi")]);
    let (tenant, vm) = scene(&turn, "1.5", &base).await;
    until_used(&tenant, QUOTA, &ONE).await;
    turn.overhead_ratio(Some("4.5")).await;
    let chronicle = Chronicle::of(&tenant).await;
    let first = [("limits.cpu", "4030m"), ("limits.memory", "10479925626")];
    migrate(&tenant, &vm, &first, &ONE_LARGER).await;
    let later = [("limits.cpu", "4030m"), ("limits.memory", "11364922626")];
    migrate(&tenant, &vm, &later, &ONE_LARGER).await;
    migrate(&tenant, &vm, &later, &ONE_LARGER).await;
    assert_none_rejected(&tenant, 3).await;
    unharmed(&chronicle.end().await, &base);

    vm.delete().await.unwrap();
    until_used(&tenant, QUOTA, &[("limits.cpu", "0"), ("limits.memory", "0")]).await;
    let cold = machine(&tenant, "vm1", (2, "4Gi"), ("125m", "2730Mi")).create().await.unwrap();
    let refused = cold.until_event("FailedCreate").await.unwrap().message.unwrap();
    assert!(refused.contains("requested: limits.memory=5682461313, used: limits.memory=0"), "{refused}");
    turn.overhead_ratio(None).await;
}

/// Test 4: the quota is raised with the ratio.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_whose_quota_was_raised_with_the_ratio_starts_and_migrates() {
    let turn = apart().await;
    let base = amounts(&[("limits.cpu", "3"), ("limits.memory", "6000Mi")]);
    let (tenant, vm) = scene(&turn, "4.5", &base).await;
    until_used(&tenant, QUOTA, &ONE_LARGER).await;
    let chronicle = Chronicle::of(&tenant).await;
    let both = [("limits.cpu", "4030m"), ("limits.memory", "11364922626")];
    migrate(&tenant, &vm, &both, &ONE_LARGER).await;
    migrate(&tenant, &vm, &both, &ONE_LARGER).await;
    assert_none_rejected(&tenant, 2).await;
    unharmed(&chronicle.end().await, &base);
    turn.overhead_ratio(None).await;
}

/// Kubernetes counts a source until kube-controller-manager gets to it. Harvester has to hold its quota up for so long;
/// here each target gets its own room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_and_a_third_migration_pass_while_all_former_sources_are_still_counted() {
    let turn = apart().await;
    let tenant = Tenant::on(turn.bed, "counted").await;
    let vm = tenant.vm("web").await;
    let full = tenant.full_quota("full", &["requests.memory", "requests.cpu", "pods"]).await;
    tenant.unlimited().await;
    let chronicle = Chronicle::of(&tenant).await;
    turn.bed.pause(Component::ControllerManager);
    for pods in ["2", "3", "4"] {
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
        tenant.until_clear().await;
        let counted = |now: &ResourceQuota| amount(&used(now), "pods") == exact(pods);
        tenant.until_quota("full", "the ended sources to be counted", counted).await;
    }
    turn.bed.resume(Component::ControllerManager);
    let one = |now: &ResourceQuota| used(now) == used(&full) && hard(now) == spec_hard(now);
    tenant.until_quota("full", "the sources to be given back", one).await;
    assert_none_rejected(&tenant, 3).await;
    let annals = chronicle.end().await;
    let base = spec_hard(&full).into_iter().map(|(key, amount)| (key, amount.0)).collect();
    annals.assert_never_below("full", &base);
    annals.assert_spec_untouched("full");
}
