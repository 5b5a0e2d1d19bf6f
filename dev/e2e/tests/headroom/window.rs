//! With the webhook no attempt is rejected; without it one is, and the migration gets through all the same.

use serde_json::json;
use sluice_e2e::tenant::{self, Tenant, amount, spec_hard, used};
use sluice_e2e::{Installation, Setup};

use crate::context::{metric, turn};

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_passes_a_full_quota_with_the_webhook_and_without_it() {
    let _turn = turn().await;
    let bed = tenant::own().await;
    let (installation, controller, webhook) = Installation::running(&bed, Setup::default()).await.unwrap();
    installation.until_locking().await.unwrap();
    let tenant = Tenant::on(&bed, "pass").await;
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

    webhook.program.stop();
    let before = metric(&controller, "sluice_headroom_reactive_windows_total").await;
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    assert!(tenant.rejected_attempts().await > 0);
    assert!(metric(&controller, "sluice_headroom_reactive_windows_total").await > before);
    assert_eq!(json!(spec_hard(&tenant.quotas.get("full").await.unwrap())), json!(spec_hard(&quota)));
}
