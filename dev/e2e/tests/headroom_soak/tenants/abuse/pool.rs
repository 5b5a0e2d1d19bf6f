//! A tenant holds what a pool grants: his migration has a target that fits no node, and does not end.

use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use sluice_api::HeadroomPolicy;
use sluice_e2e::audit::assert_none_rejected;
use sluice_e2e::tenant::{Tenant, shared, used};
use sluice_testbed::kubevirt::{Migration, MigrationPhase, Vm};

use crate::tenants::scene::until_told;

const MEMORY: &str = "requests.memory";
/// No node has this name.
const NOWHERE: &str = "nowhere";

/// A namespace of the pool with machines that fill its quota.
async fn member(pool: &str, machines: &[&str]) -> (Tenant<'static>, Vec<Vm>) {
    let tenant = Tenant::with(shared().await.bed, "pool", &[("pool", pool)]).await;
    let mut vms = Vec::new();
    for name in machines {
        vms.push(tenant.vm(name).await);
    }
    tenant.full_quota("full", &[MEMORY]).await;
    (tenant, vms)
}

/// Room for so many targets, and for each namespace what is said.
async fn pool(name: &str, resources: &Value, per_namespace: &Value) {
    let policy: HeadroomPolicy = serde_json::from_value(json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomPolicy", "metadata": { "name": name },
        "spec": {
            "namespaceSelector": { "matchLabels": { "pool": name } },
            "budget": { "mode": "Pool", "resources": resources, "perNamespace": per_namespace },
        },
    }))
    .unwrap();
    Api::all(shared().await.bed.admin().unwrap()).create(&PostParams::default(), &policy).await.unwrap();
}

/// A migration whose target waits for a node that there is not.
async fn hold(vm: &Vm) -> Migration {
    let migration = vm.migrate_to(NOWHERE).await.unwrap();
    migration.until_target_pod().await.unwrap();
    migration
}

/// What is told of a migration that lacks head-room.
async fn told(tenant: &Tenant<'_>) -> String {
    let event = until_told(tenant, "VirtualMachineInstanceMigration", "NotEnoughHeadroom").await;
    event.message.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_pool_that_another_namespace_holds_is_told_and_woken() {
    let (holder, holding) = member("held", &["a"]).await;
    let (other, vms) = member("held", &["b"]).await;
    let one = json!({ MEMORY: used(&other.quotas.get("full").await.unwrap())[MEMORY] });
    pool("held", &one, &json!({})).await;
    let held = hold(&holding[0]).await;
    holder.until_clear().await;
    let waiting = vms[0].migrate().await.unwrap();
    waiting.until_rejected().await.unwrap();
    let said = told(&other).await;
    assert!(said.contains("of it taken in other namespaces"), "{said}");
    assert!(waiting.target_pod().await.unwrap().is_none());
    held.abort().await.unwrap();
    waiting.until_succeeded().await.unwrap();
    other.until_clear().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_holds_no_more_of_a_pool_than_its_part() {
    let (other, vms) = member("parts", &["c"]).await;
    let one = used(&other.quotas.get("full").await.unwrap())[MEMORY].clone();
    let (holder, holding) = member("parts", &["a", "b"]).await;
    let two = used(&holder.quotas.get("full").await.unwrap())[MEMORY].clone();
    pool("parts", &json!({ MEMORY: two }), &json!({ MEMORY: one })).await;
    let held = hold(&holding[0]).await;
    holder.until_clear().await;
    let more = holding[1].migrate_to(NOWHERE).await.unwrap();
    more.until_rejected().await.unwrap();
    told(&holder).await;
    // The other namespace has its part at once, as often as it likes.
    for _ in 0..2 {
        vms[0].migrate().await.unwrap().until_succeeded().await.unwrap();
        vms[0].until_alone().await.unwrap();
        other.until_clear().await;
    }
    assert_none_rejected(&other).await;
    assert!(more.target_pod().await.unwrap().is_none());
    assert!(held.phase().await.unwrap() < MigrationPhase::Scheduled);
    held.abort().await.unwrap();
    more.abort().await.unwrap();
}
