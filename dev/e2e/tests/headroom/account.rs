//! What is above a quota is what migrations and KubeVirt itself take, whatever a tenant tries: pods that look like the
//! source, pods that stay when their migration is over, what others add to a target.

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, LimitRange, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_e2e::audit::{AuditTrail, until_refused};
use sluice_e2e::call::{STRATEGIC, call};
use sluice_e2e::intruders::editor;
use sluice_e2e::objects;
use sluice_e2e::simulated_webhook::{SimulatedWebhook, Verdict, WebhookOptions, rule};
use sluice_e2e::tenant::{SOON, Tenant, amount, hard, shared, spec_hard, used};
use sluice_testbed::kubevirt::{Migration, MigrationPhase, MigrationScript, Vm};
use sluice_testbed::wait;

use crate::context::{MEMORY, MI, alone, set_limit, shared_metric, until_told, used_memory};

const MIGRATION: &str = "VirtualMachineInstanceMigration";

/// A running machine whose memory may grow to 4Gi in a quota that has not a byte more, and an unlimited budget.
async fn growing(prefix: &str) -> (Tenant<'static>, Vm) {
    let tenant = Tenant::on(shared().await.bed, prefix).await;
    let vm = tenant.kubevirt.vm(tenant.name(), "web").hotplug(8, "4Gi").start().await.unwrap();
    (tenant, vm)
}

/// Where head-room is granted, the machine would be refused to grow. Before, it grows, and then asks for room.
async fn grown_before_the_grant(tenant: &Tenant<'_>, vm: &Vm) -> Migration {
    let migration = vm.hotplug_memory("2Gi").await.unwrap();
    migration.until_rejected().await.unwrap();
    tenant.unlimited().await;
    migration
}

/// A pod of the tenant with the labels of a launcher.
async fn decoy(vm: &Vm, name: &str, memory: &str) -> Pod {
    let mut pod = objects::pod(name, &[("memory", memory)]);
    pod.metadata.labels = vm.pod().await.unwrap().metadata.labels;
    pod
}

/// Ends a pod that runs; the simulated node of one that does not run yet would start it afterwards.
async fn complete(tenant: &Tenant<'_>, name: &str) {
    let runs = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).is_some_and(|phase| phase == "Running")
    };
    wait::wait_for(&tenant.pods, name, SOON, "the pod to run", runs).await.unwrap();
    let ended = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    tenant.pods.patch_status(name, &PatchParams::default(), &ended).await.unwrap();
}

/// The growth of the machine is refused and told, and nothing was raised for it.
pub async fn growth_is_refused(tenant: &Tenant<'_>, migration: &Migration) {
    growth_in_is_refused(tenant, migration, MEMORY).await;
}

/// The same of growth by another key than memory.
pub async fn growth_in_is_refused(tenant: &Tenant<'_>, migration: &Migration, key: &str) {
    migration.until_rejected().await.unwrap();
    let told = until_told(tenant, MIGRATION, "NoHeadroom").await;
    let said = told.message.unwrap();
    assert!(said.contains(&format!("does not allow the virtual machine to grow by {key}=")), "{said}");
    until_told(tenant, "Pod", "NotEnoughResourceToRelease").await;
    until_refused(tenant, 4).await;
    let trail = AuditTrail::of(tenant).await;
    assert_eq!(trail.raises().len(), 0, "{:#?}", trail.rejections());
    assert!(trail.nudges() <= 3, "{} nudges", trail.nudges());
}

/// kube-controller-manager may have counted a pod that had just ended. It counts anew when a limit changes.
async fn until_counted_without_the_ended(tenant: &Tenant<'_>) {
    for attempt in 1..=50 {
        set_limit(tenant, &format!("{}Ki", 700 * 1024 - attempt)).await;
        let follows = |quota: &_| hard(quota) == spec_hard(quota);
        tenant.until_quota("rq", "its status to follow", follows).await;
        if used_memory(tenant).await < 700 * MI {
            return;
        }
    }
    panic!("the ended pod is counted");
}

/// Executed on a real node before: with a Succeeded pod that had the label, a machine grew from 537Mi to 2320Mi for good in
/// a quota of 700Mi.
#[tokio::test(flavor = "multi_thread")]
async fn a_finished_pod_with_the_label_of_the_machine_is_no_source() {
    let (tenant, vm) = growing("decoy").await;
    tenant.pods.create(&PostParams::default(), &decoy(&vm, "decoy", "3Gi").await).await.unwrap();
    complete(&tenant, "decoy").await;
    tenant.quota("rq", json!({ MEMORY: "700Mi" })).await;
    until_counted_without_the_ended(&tenant).await;
    let migration = grown_before_the_grant(&tenant, &vm).await;
    growth_is_refused(&tenant, &migration).await;
    assert!(used_memory(&tenant).await < 700 * MI);
}

/// Plugged in while there was room, taken back, and plugged in again in a full quota:
/// the larger launcher of before has ended.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_launcher_took_is_no_size_to_return_to() {
    let (tenant, vm) = growing("replug").await;
    vm.hotplug_memory("2Gi").await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    vm.hotplug_memory("1Gi").await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    tenant.full_quota("rq", &[MEMORY]).await;
    let migration = grown_before_the_grant(&tenant, &vm).await;
    growth_is_refused(&tenant, &migration).await;
}

/// As injectors do that go by annotations, which a tenant may write to a running machine.
#[rstest]
#[case::a_container(json!([{ "op": "add", "path": "/spec/containers/-", "value": {
    "name": "istio-proxy", "image": "none", "resources": { "requests": { "memory": "100Mi" } },
} }]))]
#[case::a_larger_container(json!([{
    "op": "replace", "path": "/spec/containers/0/resources/requests/memory", "value": "100Gi",
}]))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_webhook_adds_to_a_target_has_to_fit(#[case] patch: Value) {
    let tenant = Tenant::on(shared().await.bed, "inject").await;
    let vm = tenant.vm("web").await;
    tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    let mut options =
        WebhookOptions::new("injector.simulated.test", tenant.name(), vec![rule(&["CREATE"], &["pods"])]);
    options.mutates = true;
    let injector = SimulatedWebhook::start(tenant.bed, options, move |_| Verdict::patch(patch.clone()));
    let injector = injector.await.unwrap();
    let migration = vm.migrate().await.unwrap();
    growth_is_refused(&tenant, &migration).await;
    injector.stop().await.unwrap();
    // Without it the same migration passes.
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    vm.until_alone().await.unwrap();
    let full = |quota: &_| amount(&used(quota), MEMORY) == amount(&spec_hard(quota), MEMORY);
    tenant.until_quota("rq", "to be full and not exceeded", full).await;
}

/// A tenant may annotate a machine that runs, and KubeVirt gives its next launcher a
/// container of whatever size a LimitRange says.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_a_tenant_adds_to_a_running_machine_has_to_fit() {
    let alone = alone().await;
    let webhook = alone.webhook(&[]).await;
    webhook.until_proven().await.unwrap();
    let tenant = Tenant::on(alone.bed, "hook").await;
    let gates = |all: &[&str]| json!({ "developerConfiguration": { "featureGates": all } });
    tenant.kubevirt.configure(gates(&["VMLiveUpdateFeatures", "Sidecar"])).await.unwrap();
    let range: LimitRange = serde_json::from_value(json!({
        "metadata": { "name": "sizes" },
        "spec": { "limits": [{ "type": "Container", "defaultRequest": { "memory": "1Gi" } }] },
    }))
    .unwrap();
    let ranges: Api<LimitRange> = Api::namespaced(tenant.client.clone(), tenant.name());
    ranges.create(&PostParams::default(), &range).await.unwrap();
    let vm = tenant.vm("web").await;
    tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    let hook = r#"hooks.kubevirt.io/hookSidecars=[{"image":"none"}]"#;
    let annotate = ["annotate", "vmi", vm.name(), hook, "--namespace", tenant.name()];
    let annotated = tenant.bed.kubectl(&annotate).await.unwrap();
    assert!(annotated.status.success(), "{}", String::from_utf8_lossy(&annotated.stderr));
    let migration = vm.migrate().await.unwrap();
    growth_is_refused(&tenant, &migration).await;
    migration.abort().await.unwrap();
    tenant.kubevirt.configure(gates(&["VMLiveUpdateFeatures"])).await.unwrap();
}

/// Deletes a migration as a tenant can: without its finalizer virt-controller forgets it, and leaves its target.
async fn forget(tenant: &Tenant<'_>, migration: &Migration) {
    let kind = kube::api::ApiResource::from_gvk_with_plural(
        &kube::core::GroupVersionKind::gvk("kubevirt.io", "v1", MIGRATION),
        "virtualmachineinstancemigrations",
    );
    let migrations: Api<kube::api::DynamicObject> =
        Api::namespaced_with(tenant.client.clone(), tenant.name(), &kind);
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    migrations.patch(migration.name(), &PatchParams::default(), &free).await.unwrap();
    migrations.delete(migration.name(), &DeleteParams::default()).await.unwrap();
    wait::wait_for(&migrations, migration.name(), SOON, "the migration to be gone", |it| it.is_none())
        .await
        .unwrap();
}

/// Times of objects are whole seconds: what is created in the second in which the quota
/// is written counts as older than its limit.
async fn until_younger_than(tenant: &Tenant<'_>, quota: &str) {
    let quota = tenant.quotas.get(quota).await.unwrap();
    let written = quota.metadata.creation_timestamp.unwrap().0.as_second();
    let is_over = || async { (Timestamp::now().as_second() > written).then_some(()) };
    wait::eventually(SOON, is_over, "the next second").await.unwrap();
}

/// A target is told to be left after a minute.
async fn until_left_is_told(tenant: &Tenant<'_>, target: &Pod) {
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let about = format!("reason=MigrationTargetLeft,involvedObject.name={}", target.name_any());
    let config = watcher::Config::default().fields(&about);
    let is_told = |events: &[Event]| !events.is_empty();
    wait::wait_for_all(&events, config, 3 * SOON, "the target to be told as left", is_told).await.unwrap();
    assert!(shared_metric("sluice_headroom_left_targets").await >= 1.0);
}

/// A tenant cannot let a target fail by the image of another program: it would wait in its room for good.
async fn assert_kept_from_the_image(tenant: &Tenant<'_>, target: &Pod) {
    let path = format!("/api/v1/namespaces/{}/pods/{}", tenant.name(), target.name_any());
    let image = json!({ "spec": { "containers": [{ "name": "compute", "image": "none.test/wrong" }] } });
    let client = editor(tenant).await.client().unwrap();
    let answer = call(&client, Method::PATCH, &path, STRATEGIC, &image).await.unwrap();
    assert_eq!(answer.code, 403, "{answer:?}");
    assert!(answer.message().contains("are changed by KubeVirt alone"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_stays_when_its_migration_is_over_stops_further_raises() {
    let tenant = Tenant::on(shared().await.bed, "zombie").await;
    // More than the overhead of both, which may have grown for all that is known.
    let held = tenant.kubevirt.vm(tenant.name(), "held").memory("1Gi").script(MigrationScript::Hold);
    let held = held.start().await.unwrap();
    let other = tenant.vm("other").await;
    tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    until_younger_than(&tenant, "rq").await;
    let migration = held.migrate().await.unwrap();
    migration.until(MigrationPhase::Scheduling).await.unwrap();
    let zombie = migration.until_target_pod().await.unwrap();
    tenant.until_clear().await;
    // While it is under way, the other one moves beside it.
    other.migrate().await.unwrap().until_succeeded().await.unwrap();
    other.until_alone().await.unwrap();
    let most = amount(&used(&tenant.quotas.get("rq").await.unwrap()), MEMORY);
    assert_kept_from_the_image(&tenant, &zombie).await;
    forget(&tenant, &migration).await;
    let raises = AuditTrail::of(&tenant).await.raises().len();
    let blocked = other.migrate().await.unwrap();
    blocked.until_rejected().await.unwrap();
    let told = until_told(&tenant, MIGRATION, "NoHeadroom").await;
    let said = told.message.unwrap();
    assert!(said.contains("is above its spec.hard") && said.contains(&zombie.name_any()), "{said}");
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), raises);
    assert!(amount(&used(&tenant.quotas.get("rq").await.unwrap()), MEMORY) <= most, "it does not add up");
    until_left_is_told(&tenant, &zombie).await;
    // The zombie goes: the next attempt passes.
    tenant.pods.delete(&zombie.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
    blocked.until_succeeded().await.unwrap();
    tenant.until_clear().await;
}

/// A quota that is lowered to half under running machines lets all of them move, and move once more.
#[tokio::test(flavor = "multi_thread")]
async fn all_machines_of_a_lowered_quota_move_twice() {
    let tenant = Tenant::on(shared().await.bed, "lowered").await;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let vms = futures::future::join_all(names.map(|name| tenant.vm(name))).await;
    let full = tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    let half = (amount(&used(&full), MEMORY).nanos() / 2 / 1_000_000_000).to_string();
    let lowered = Patch::Merge(json!({ "spec": { "hard": { MEMORY: half } } }));
    tenant.quotas.patch("rq", &PatchParams::default(), &lowered).await.unwrap();
    tenant.until_clear().await;
    for _ in 0..2 {
        let migrations = futures::future::join_all(vms.iter().map(Vm::migrate)).await;
        for (vm, migration) in vms.iter().zip(migrations) {
            migration.unwrap().until_succeeded().await.unwrap();
            vm.until_alone().await.unwrap();
        }
    }
    assert_eq!(tenant.rejected_attempts().await, 0);
    tenant.until_clear().await;
    let is_running = |pod: &Pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"));
    let pods = tenant.pods.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(pods.iter().filter(|pod| is_running(pod)).count(), names.len());
}

/// So many hundredths of each quota's own limit, as users ask of KubeVirt.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_may_be_a_part_of_the_quota() {
    let tenant = Tenant::on(shared().await.bed, "percent").await;
    let vms = futures::future::join_all(["a", "b", "c", "d"].map(|name| tenant.vm(name))).await;
    tenant.full_quota("rq", &[MEMORY]).await;
    tenant.policy(json!({ "mode": "PerNamespace", "percent": 24 })).await;
    let migration = vms[0].migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    until_told(&tenant, MIGRATION, "NotEnoughHeadroom").await;
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 0);
    let policies: Api<sluice_api::HeadroomPolicy> = Api::all(tenant.client.clone());
    let enough = Patch::Merge(json!({ "spec": { "budget": { "percent": 25 } } }));
    policies.patch(tenant.name(), &PatchParams::default(), &enough).await.unwrap();
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
}
