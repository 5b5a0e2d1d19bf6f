//! With the webhook no attempt is rejected; without it one is, and nothing is raised.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use serde_json::json;
use sluice_e2e::audit::AuditTrail;
use sluice_e2e::tenant::{Tenant, amount, spec_hard, used};

use crate::context::{alone, until_told};

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_passes_a_full_quota_with_the_webhook_and_not_without_it() {
    let alone = alone().await;
    let webhook = alone.webhook(&[]).await;
    webhook.until_proven().await.unwrap();
    let tenant = Tenant::on(alone.bed, "pass").await;
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
    let told: Event = until_told(&tenant, "VirtualMachineInstanceMigration", "HeadroomGranted").await;
    let note = told.message.unwrap();
    assert!(note.starts_with("let in beside quota full: pods +1, requests.cpu +"), "{note}");
    let trail = AuditTrail::of(&tenant).await;
    assert_eq!((trail.raises().len(), trail.status_writes().count()), (1, 2), "one raise, one restore");

    webhook.program.stop();
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    assert!(tenant.rejected_attempts().await > 0);
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    assert!(!events.list(&Default::default()).await.unwrap().items.is_empty());
    assert_eq!(json!(spec_hard(&tenant.quotas.get("full").await.unwrap())), json!(spec_hard(&quota)));
}
