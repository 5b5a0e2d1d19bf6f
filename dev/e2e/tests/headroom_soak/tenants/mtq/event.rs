//! What people are told when a budget is too small.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::runtime::watcher;
use serde_json::json;
use sluice_e2e::audit::assert_none_rejected;
use sluice_e2e::tenant::{SOON, Tenant, amount, shared, used};
use sluice_testbed::wait;

use super::text;

/// As managed-tenant-quota's suite looks for it.
fn is_legacy(event: &Event) -> bool {
    event.reason.as_deref() == Some("NotEnoughResourceToRelease")
        && event.involved_object.kind.as_deref() == Some("Pod")
        && event.type_.as_deref() == Some("Warning")
}

fn events(tenant: &Tenant<'_>) -> Api<Event> {
    Api::namespaced(tenant.client.clone(), tenant.name())
}

/// F15.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousandth_of_a_byte_too_little_is_told_and_not_raised() {
    let tenant = Tenant::on(shared().await.bed, "short").await;
    let vm = tenant.vm("web").await;
    let quota = tenant.full_quota("rq", &["requests.memory"]).await;
    let milli = 1_000_000;
    let short = amount(&used(&quota), "requests.memory").nanos() - milli;
    tenant.vmmrq("short", json!({ "requests.memory": text(short) })).await;
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    let told = |all: &[Event]| all.iter().any(is_legacy);
    let all = wait::wait_for_all(&events(&tenant), watcher::Config::default(), SOON, "the event", told).await;
    let all = all.unwrap();
    let legacy = all.iter().find(|event| is_legacy(event)).unwrap();
    assert!(legacy.message.as_deref().unwrap().contains("missing 1m"), "{legacy:?}");
    assert!(migration.target_pod().await.unwrap().is_none());
    // The other thousandth.
    tenant.vmmrq("rest", json!({ "requests.memory": "1m" })).await;
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
}

/// F16.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_has_enough_is_not_complained_about() {
    let tenant = Tenant::on(shared().await.bed, "enough").await;
    let vm = tenant.vm("web").await;
    let quota = tenant.full_quota("rq", &["requests.memory"]).await;
    let need = amount(&used(&quota), "requests.memory").nanos();
    tenant.vmmrq("enough", json!({ "requests.memory": text(need) })).await;
    for _ in 0..2 {
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
    }
    tenant.until_clear().await;
    assert_none_rejected(&tenant).await;
    // A machine that is not helped makes an event that is later than any that there could be of these migrations.
    let other = Tenant::on(tenant.bed, "later").await;
    let vm = other.vm("web").await;
    other.full_quota("rq", &["requests.memory"]).await;
    vm.migrate().await.unwrap().until_rejected().await.unwrap();
    let told = |all: &[Event]| all.iter().any(is_legacy);
    wait::wait_for_all(&events(&other), watcher::Config::default(), SOON, "the event", told).await.unwrap();
    let all = events(&tenant).list(&Default::default()).await.unwrap().items;
    let complaints: Vec<_> = all.iter().filter(|event| is_legacy(event)).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}
