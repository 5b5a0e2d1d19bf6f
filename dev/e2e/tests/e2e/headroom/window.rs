//! One target, one window.

use sluice_e2e::tenant::{Tenant, amount, shared, spec_hard, used};

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_passes_a_full_quota_without_a_rejected_attempt() {
    let tenant = Tenant::on(shared().await.bed, "pass").await;
    let vm = tenant.vm("web").await;
    let quota = tenant.full_quota("full", &["requests.memory", "requests.cpu", "pods"]).await;
    tenant.unlimited().await;
    let migration = vm.migrate().await.unwrap();
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    assert_eq!(tenant.rejected_attempts().await, 0);
    assert!(!migration.rejected().await.unwrap());
    vm.until_alone().await.unwrap();
    let end = tenant.until_quota("full", "one pod's usage", |now| used(now) == used(&quota)).await;
    assert_eq!(spec_hard(&end), spec_hard(&quota), "the spec is never written");
    assert_eq!(end.metadata.generation, quota.metadata.generation);
    assert_eq!(amount(&used(&end), "pods"), amount(&spec_hard(&quota), "pods"));
}
