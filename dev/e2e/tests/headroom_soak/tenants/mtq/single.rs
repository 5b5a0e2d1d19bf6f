//! One blocked migration.

use rstest::rstest;
use serde_json::{Value, json};
use sluice_e2e::tenant::{Tenant, amount, shared, used};

use super::{one_pod, passes, text};

/// F4 to F11.
#[rstest]
#[case::memory("memory")]
#[case::requests_memory("requests.memory")]
#[case::limits_memory("limits.memory")]
#[case::cpu("cpu")]
#[case::requests_cpu("requests.cpu")]
#[case::limits_cpu("limits.cpu")]
#[case::ephemeral_storage("ephemeral-storage")]
#[case::requests_ephemeral_storage("requests.ephemeral-storage")]
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_on_one_key(#[case] key: &str) {
    let tenant = Tenant::on(shared().await.bed, "single").await;
    let vm = tenant.kubevirt.vm(tenant.name(), "web").limits(&[("memory", "512Mi"), ("cpu", "2")]);
    let vm = vm.start().await.unwrap();
    let quotas = [tenant.full_quota("rq", &[key]).await];
    passes(&tenant, &vm, &quotas, &[one_pod(&quotas)]).await;
}

/// F12.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_on_several_keys() {
    let tenant = Tenant::on(shared().await.bed, "several").await;
    let vm = tenant.kubevirt.vm(tenant.name(), "web").limits(&[("cpu", "2"), ("memory", "512Mi")]);
    let vm = vm.start().await.unwrap();
    let quotas = [tenant.full_quota("rq", &["limits.cpu", "requests.memory", "requests.cpu"]).await];
    passes(&tenant, &vm, &quotas, &[one_pod(&quotas)]).await;
}

/// F14.
#[tokio::test(flavor = "multi_thread")]
async fn several_quotas_on_one_key_each() {
    let tenant = Tenant::on(shared().await.bed, "quotas").await;
    let vm = tenant.kubevirt.vm(tenant.name(), "web").limits(&[("cpu", "2"), ("memory", "512Mi")]);
    let vm = vm.start().await.unwrap();
    let mut quotas = Vec::new();
    for (name, key) in [("one", "limits.cpu"), ("two", "requests.memory"), ("three", "requests.cpu")] {
        quotas.push(tenant.full_quota(name, &[key]).await);
    }
    passes(&tenant, &vm, &quotas, &[one_pod(&quotas)]).await;
}

/// F19. A quota on limits makes KubeVirt give its next pod limits of its own, so the target needs more than the source
/// that got a LimitRange's: what counts is the pod that is created, not one that was foretold.
#[tokio::test(flavor = "multi_thread")]
async fn defaults_of_a_limit_range_are_counted() {
    let tenant = Tenant::on(shared().await.bed, "range").await;
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange",
        "metadata": { "name": "range", "namespace": tenant.name() },
        "spec": { "limits": [{ "type": "Container", "default": { "cpu": "200m", "memory": "1Gi" } }] },
    });
    tenant.bed.apply_objects([range]).await.unwrap();
    let vm = tenant.vm("web").await;
    let pod = vm.pod().await.unwrap().spec.unwrap();
    let limits = pod.containers[0].resources.clone().unwrap().limits.unwrap();
    assert_eq!(limits["memory"].0, "1Gi", "the LimitRange was seen");
    let keys = ["requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
    let full = tenant.full_quota("rq", &keys).await;
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    // Not enough for such a target, though it is all that the source takes.
    tenant.vmmrq("source", json!(used(&full))).await;
    tenant.vmmrq("target", json!({ "limits.cpu": "2", "limits.memory": "2Gi" })).await;
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    tenant.until_clear().await;
    let end = tenant.until_quota("rq", "one pod", |now| used(now)["requests.cpu"].0 == "105m").await;
    assert!(amount(&used(&end), "limits.cpu") > amount(&used(&full), "limits.cpu"), "the target is larger");
    assert_eq!(end.metadata.generation, full.metadata.generation);
    // With the budget there, none is refused.
    let before = tenant.rejected_attempts().await;
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    assert_eq!(tenant.rejected_attempts().await, before);
}

/// managed-tenant-quota stops when there are several.
#[tokio::test(flavor = "multi_thread")]
async fn several_budgets_add_up() {
    let tenant = Tenant::on(shared().await.bed, "sum").await;
    let vm = tenant.vm("web").await;
    let quota = tenant.full_quota("rq", &["requests.memory"]).await;
    let need = amount(&used(&quota), "requests.memory").nanos();
    let third = need / 3;
    let grants: Vec<Value> =
        [third, third, need - 2 * third].map(|part| json!({ "requests.memory": text(part) })).to_vec();
    passes(&tenant, &vm, &[quota], &grants).await;
}

/// managed-tenant-quota takes them for different keys.
#[rstest]
#[case::quota_says_requests("requests.memory", "memory")]
#[case::budget_says_requests("memory", "requests.memory")]
#[case::cpu("cpu", "requests.cpu")]
#[case::requests_cpu("requests.cpu", "cpu")]
#[case::ephemeral_storage("ephemeral-storage", "requests.ephemeral-storage")]
#[tokio::test(flavor = "multi_thread")]
async fn two_names_of_one_key_are_one(#[case] key: &str, #[case] other: &str) {
    let tenant = Tenant::on(shared().await.bed, "alias").await;
    let vm = tenant.vm("web").await;
    let quota = tenant.full_quota("rq", &[key]).await;
    let need = amount(&used(&quota), key).nanos();
    // Half of it by each name: together it is enough.
    let halves = [json!({ key: text(need / 2) }), json!({ other: text(need - need / 2) })];
    passes(&tenant, &vm, &[quota], &halves).await;
}
