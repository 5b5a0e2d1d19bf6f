//! Several migrations.

use futures::future::join_all;
use jiff::SignedDuration;
use serde_json::json;
use sluice_e2e::audit::{AuditTrail, assert_none_rejected};
use sluice_e2e::tenant::{Tenant, amount, shared, used};

use super::{counted, one_pod, passes, text, until_as_before};
use crate::tenants::held_lock::HeldLock;
use crate::tenants::second_bed::alone;

/// F13: KubeVirt's own limits, those of the first field report, hold, no target is rejected, and no lock lasts 10 s.
#[tokio::test(flavor = "multi_thread")]
async fn more_migrations_than_kubevirt_lets_run_at_once() {
    let bed_use = alone().await;
    bed_use.parallel(5, 2).await;
    let tenant = Tenant::on(bed_use.bed, "parallel").await;
    let node = tenant.kubevirt.add_nodes(1).await.unwrap().remove(0);
    let vms = ["a", "b", "c", "d"].map(|name| tenant.kubevirt.vm(tenant.name(), name).node(&node).start());
    let vms: Vec<_> = join_all(vms).await.into_iter().map(Result::unwrap).collect();
    let quotas = [tenant.full_quota("rq", &["requests.memory"]).await];
    tenant.vmmrq("four", one_pod(&quotas)).await;
    let migrations = join_all(vms.iter().map(|vm| async { vm.migrate().await.unwrap() })).await;
    for migration in migrations {
        migration.until_succeeded().await.unwrap();
    }
    for vm in &vms {
        until_as_before(&tenant, vm, &[]).await;
    }
    let four = |now: &_| counted(now) == counted(&quotas[0]);
    tenant.until_quota("rq", "the sources to be given back", four).await;
    assert_none_rejected(&tenant).await;
    let locks = AuditTrail::of(&tenant).await.locks();
    assert!(!locks.is_empty(), "the quota was full");
    assert!(locks.iter().all(|lock| lock.duration() < SignedDuration::from_secs(10)), "{locks:#?}");
}

/// F17.
#[tokio::test(flavor = "multi_thread")]
async fn several_namespaces_with_several_quotas_each() {
    let bed = shared().await.bed;
    let all = (0..3).map(|_| async {
        let tenant = Tenant::on(bed, "several").await;
        let vm = tenant.vm("web").await;
        let mut quotas = Vec::new();
        for (name, key) in
            [("one", "requests.ephemeral-storage"), ("two", "requests.memory"), ("three", "requests.cpu")]
        {
            quotas.push(tenant.full_quota(name, &[key]).await);
        }
        passes(&tenant, &vm, &quotas, &[one_pod(&quotas)]).await;
    });
    join_all(all).await;
}

/// F25: the lock of a namespace does not keep targets out that its quotas have room for.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_passes_a_locked_namespace() {
    let tenant = Tenant::on(shared().await.bed, "locked").await;
    let vm = tenant.vm("web").await;
    tenant.quota("rq", json!({ "requests.memory": "100Gi" })).await;
    let lock = HeldLock::hold(&tenant, "rq", json!({})).await;
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    assert_none_rejected(&tenant).await;
    assert!(lock.is_held().await, "all the time");
    lock.release().await;
}

/// Two migrations share one budget: the second gets what the first one's source gives back.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_for_one_serves_several_one_after_the_other() {
    let tenant = Tenant::on(shared().await.bed, "queue").await;
    let vms = join_all(["a", "b", "c"].map(|name| tenant.vm(name))).await;
    let quota = tenant.full_quota("rq", &["requests.memory"]).await;
    let one = amount(&used(&quota), "requests.memory").nanos() / 3;
    tenant.vmmrq("one", json!({ "requests.memory": text(one) })).await;
    let migrations = join_all(vms.iter().map(|vm| async { vm.migrate().await.unwrap() })).await;
    for migration in migrations {
        migration.until_succeeded().await.unwrap();
    }
    for vm in &vms {
        vm.until_alone().await.unwrap();
    }
    tenant.until_clear().await;
    let all = |now: &_| counted(now) == counted(&quota);
    tenant.until_quota("rq", "the sources to be given back", all).await;
}
