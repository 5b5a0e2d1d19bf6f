//! Migrations that a quota rejected get through without the webhook.

use k8s_openapi::api::core::v1::{LimitRange, Pod, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::HeadroomPolicy;
use sluice_e2e::objects;
use sluice_e2e::tenant::{SOON, Tenant, used};
use sluice_testbed::wait;

use crate::context::{
    MARK, MEMORY, cluster, crowded, grant, is_ours, metric, missing, prioritise, rejected, until_condition,
    until_missing, windows_opened,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_created_later_lets_it_through() {
    let (tenant, vm) = crowded("later").await;
    let migration = rejected(&vm).await;
    let before = metric(&cluster().await.controller, "sluice_headroom_reactive_windows_total").await;
    grant(&tenant, "1Gi").await;
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    assert_eq!(windows_opened(&tenant).await.first().map(String::as_str), Some(migration.name()));
    let controller = &cluster().await.controller;
    assert!(metric(controller, "sluice_headroom_reactive_windows_total").await > before);
    assert!(metric(controller, "sluice_headroom_rejected_total").await >= 1.0);
    assert!(metric(controller, "sluice_headroom_raises_total").await >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_enlarged_lets_it_through() {
    let (tenant, vm) = crowded("policy").await;
    let budget = |memory: &str| json!({ "mode": "PerNamespace", "resources": { MEMORY: memory } });
    tenant.policy(budget("1Mi")).await;
    let migration = rejected(&vm).await;
    crate::context::until_told(&tenant, "VirtualMachineInstanceMigration", "NotEnoughHeadroom").await;
    assert_eq!(windows_opened(&tenant).await, [""; 0], "no window for a budget that is not enough");
    let policies: Api<HeadroomPolicy> = Api::all(tenant.client.clone());
    let larger = Patch::Merge(json!({ "spec": { "budget": budget("1Gi") } }));
    policies.patch(tenant.name(), &PatchParams::default(), &larger).await.unwrap();
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    let covers = |policy: Option<&HeadroomPolicy>| {
        policy.is_some_and(|policy| {
            policy
                .status
                .as_ref()
                .is_some_and(|status| status.namespaces == Some(1) && status.used.is_empty())
        })
    };
    wait::wait_for(&policies, tenant.name(), SOON, "the policy's status", covers).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_that_drops_lets_it_through() {
    let (tenant, vm) = crowded("usage").await;
    let missing = missing(&tenant).await;
    let guest = objects::pod("guest", &[("memory", "64Mi")]);
    tenant.pods.create(&PostParams::default(), &guest).await.unwrap();
    // Enough as soon as the guest has left, and still above the quota then.
    grant(&tenant, &missing.to_string()).await;
    let migration = rejected(&vm).await;
    until_missing(&tenant, 64 * 1024 * 1024).await;
    tenant.pods.delete("guest", &DeleteParams::default()).await.unwrap();
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    until_condition(&tenant, "NotEnough", "False", "no migration lacks head-room").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_enlarged_or_deleted_lets_it_through() {
    let (tenant, vm) = crowded("larger").await;
    let migration = rejected(&vm).await;
    let larger = Patch::Merge(json!({ "spec": { "hard": { MEMORY: "4Gi" } } }));
    tenant.quotas.patch("rq", &PatchParams::default(), &larger).await.unwrap();
    migration.until_succeeded().await.unwrap();
    let smaller = Patch::Merge(json!({ "spec": { "hard": { MEMORY: "700Mi" } } }));
    tenant.quotas.patch("rq", &PatchParams::default(), &smaller).await.unwrap();
    tenant.until_clear().await;
    vm.until_alone().await.unwrap();
    let migration = rejected(&vm).await;
    tenant.quotas.delete("rq", &DeleteParams::default()).await.unwrap();
    migration.until_succeeded().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_window_is_for_the_highest_priority_and_then_for_the_oldest() {
    let tenant = Tenant::on(cluster().await.bed, "order").await;
    let mut vms = Vec::new();
    for name in ["old", "young", "urgent"] {
        vms.push(tenant.vm(name).await);
    }
    tenant.full_quota("rq", &[MEMORY]).await;
    let old = rejected(&vms[0]).await;
    // Ages are whole seconds.
    let created = old.object().await.unwrap().metadata.creation_timestamp.unwrap();
    let later = || async { (jiff::Timestamp::now().as_second() > created.0.as_second()).then_some(()) };
    wait::eventually(SOON, later, "the next second").await.unwrap();
    let young = rejected(&vms[1]).await;
    let urgent = rejected(&vms[2]).await;
    prioritise(&tenant, &urgent, "system-critical").await;
    for migration in [&old, &young, &urgent] {
        let name = migration.name().to_owned();
        let seen = || async { told_of(&tenant, &name).await.then_some(()) };
        wait::eventually(SOON, seen, "all three to be seen").await.unwrap();
    }
    tenant.unlimited().await;
    for migration in [&old, &young, &urgent] {
        migration.until_succeeded().await.unwrap();
    }
    tenant.until_clear().await;
    let opened = windows_opened(&tenant).await;
    assert_eq!(opened.first().map(String::as_str), Some(urgent.name()), "{opened:?}");
    let place = |name: &str| opened.iter().position(|other| other == name);
    if let (Some(old), Some(young)) = (place(old.name()), place(young.name())) {
        assert!(old < young, "{opened:?}");
    }
}

async fn told_of(tenant: &Tenant<'_>, migration: &str) -> bool {
    let events: Api<k8s_openapi::api::core::v1::Event> =
        Api::namespaced(tenant.client.clone(), tenant.name());
    let selector = format!("reason=NotEnoughHeadroom,involvedObject.name={migration}");
    let found = events.list(&kube::api::ListParams::default().fields(&selector)).await.unwrap();
    !found.items.is_empty()
}

fn limits(storage: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "limits" },
        "spec": { "limits": [{ "type": "Container", "default": { "ephemeral-storage": storage } }] },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_range_that_is_lowered_wakes_virt_controller() {
    let tenant = Tenant::on(cluster().await.bed, "nudge").await;
    let vm = tenant.vm("web").await;
    let ranges: Api<LimitRange> = Api::namespaced(tenant.client.clone(), tenant.name());
    let apply = PatchParams::apply("test").force();
    // The source has no limit: what the target takes is what the range says.
    ranges.patch("limits", &apply, &Patch::Apply(limits("8Gi"))).await.unwrap();
    tenant.quota("rq", json!({ "limits.ephemeral-storage": "4Gi" })).await;
    let migration = rejected(&vm).await;
    crate::context::until_told(&tenant, "VirtualMachineInstanceMigration", "NotEnoughHeadroom").await;
    let before = metric(&cluster().await.controller, "sluice_headroom_nudges_total").await;
    ranges.patch("limits", &apply, &Patch::Apply(limits("500Mi"))).await.unwrap();
    migration.until_succeeded().await.unwrap();
    assert!(metric(&cluster().await.controller, "sluice_headroom_nudges_total").await > before);
    let events = tenant.bed.audit_events().await.unwrap();
    let ours: Vec<&Value> = events
        .iter()
        .filter(|event| is_ours(event) && event["objectRef"]["namespace"] == json!(tenant.name()))
        .filter(|event| event["objectRef"]["resource"] == "resourcequotas" && event["verb"] == "patch")
        .collect();
    assert!(!ours.is_empty());
    for event in ours {
        let marks = event["requestObject"].to_string().contains(&MARK.replace('/', "~1"));
        assert!(marks, "nothing but the mark is written: {event}");
    }
    // The source ends: kube-controller-manager counts again.
    vm.until_alone().await.unwrap();
    tenant.until_quota("rq", "the mark to be gone", |quota| !used(quota).contains_key(MARK)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_ignores_the_mark_that_wakes_virt_controller() {
    let tenant = Tenant::on(cluster().await.bed, "mark").await;
    tenant.quota("rq", json!({ "requests.cpu": "1" })).await;
    let mark = Patch::Merge(json!({ "status": { "used": { MARK: "0" } } }));
    tenant.quotas.patch_status("rq", &PatchParams::default(), &mark).await.unwrap();
    let create = |name: &str| {
        let (pods, pod): (Api<Pod>, Pod) = (tenant.pods.clone(), objects::pod(name, &[("cpu", "600m")]));
        async move { pods.create(&PostParams::default(), &pod).await }
    };
    create("fits").await.unwrap();
    let marked = |quota: &ResourceQuota| used(quota).contains_key(MARK);
    let quota =
        tenant.until_quota("rq", "the pod to be counted", |quota| used(quota)["requests.cpu"].0 == "600m");
    assert!(marked(&quota.await), "quota admission keeps what it does not know");
    let refused = create("exceeds").await.unwrap_err();
    assert!(refused.to_string().contains("exceeded quota: rq, requested: requests.cpu=600m"), "{refused}");
    tenant.pods.delete("fits", &DeleteParams::default()).await.unwrap();
    tenant.until_quota("rq", "the mark to be gone", |quota| !marked(quota)).await;
}
