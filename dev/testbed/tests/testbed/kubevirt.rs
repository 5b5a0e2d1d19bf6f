//! VMs and migrations of the real virt-controller, with simulated node agents.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testbed::kubevirt::{DEADLINE, KubeVirt, MigrationPhase, MigrationScript, Vm};
use sluice_testbed::{Bed, BedOptions, Component, TestNamespace, wait};
use tokio::sync::OnceCell;

/// A bed of its own, for tests that change what all VMs depend on.
async fn own() -> Bed {
    let bed = Bed::start(BedOptions { kubevirt: true, ..BedOptions::default() }).await.unwrap();
    bed.kubevirt().unwrap().add_nodes(3).await.unwrap();
    bed
}

/// The shared bed, where any number of migrations may run, and a namespace in it.
async fn shared() -> (&'static Bed, KubeVirt<'static>, TestNamespace) {
    static READY: OnceCell<()> = OnceCell::const_new();
    let bed = Bed::shared_with_kubevirt().await.unwrap();
    let kubevirt = bed.kubevirt().unwrap();
    let prepare = || async {
        kubevirt.add_nodes(3).await.unwrap();
        kubevirt.migrate_at_a_time(100, 100).await.unwrap();
    };
    READY.get_or_init(prepare).await;
    let namespace = bed.namespace("vms", &[]).await.unwrap();
    (bed, kubevirt, namespace)
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap()
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn memory_request(pod: &Pod) -> String {
    let compute = pod.spec.as_ref().unwrap().containers.iter().find(|one| one.name == "compute").unwrap();
    compute.resources.as_ref().unwrap().requests.as_ref().unwrap()["memory"].0.clone()
}

async fn quota(bed: &Bed, namespace: &TestNamespace, hard: Value) -> Api<ResourceQuota> {
    let quotas: Api<ResourceQuota> = Api::namespaced(bed.admin().unwrap(), &namespace.name);
    let quota: ResourceQuota =
        serde_json::from_value(json!({"metadata": {"name": "full"}, "spec": {"hard": hard}})).unwrap();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    until_used(&quotas, &[]).await;
    quotas
}

/// Waits until the quota counts these amounts (and has counted at all).
async fn until_used(quotas: &Api<ResourceQuota>, amounts: &[(&str, &str)]) {
    let counted = |used: &BTreeMap<String, Quantity>| {
        !used.is_empty() && amounts.iter().all(|(key, amount)| used.get(*key).is_some_and(|a| a.0 == *amount))
    };
    let used = |quota: Option<&ResourceQuota>| {
        quota.and_then(|quota| quota.status.as_ref()?.used.as_ref()).is_some_and(counted)
    };
    wait::wait_for(quotas, "full", DEADLINE, &format!("the quota to count {amounts:?}"), used).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_runs_with_the_amounts_it_asks_for() {
    let (_, kubevirt, namespace) = shared().await;
    let vm = kubevirt
        .vm(&namespace.name, "web")
        .memory("3996Mi")
        .label("team", "a")
        .annotation("example.com/for", "pods");
    let vm = vm.requests(&[("cpu", "125m"), ("memory", "2730Mi")]).limits(&[("cpu", "2"), ("memory", "4Gi")]);
    let vm = vm.start().await.unwrap();
    let pod = vm.pod().await.unwrap();
    let compute = pod.spec.unwrap().containers.into_iter().find(|one| one.name == "compute").unwrap();
    let resources = compute.resources.unwrap();
    assert_eq!(resources.requests.unwrap()["cpu"].0, "125m");
    assert_eq!(resources.limits.unwrap()["cpu"].0, "2");
    assert_eq!(pod.metadata.labels.unwrap()["team"], "a");
    assert_eq!(pod.metadata.annotations.unwrap()["example.com/for"], "pods");
    let account = vm.object().await.unwrap();
    assert_eq!(text(&account.data, "/status/phase"), "Running");
    vm.delete().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_succeeds_and_the_quota_goes_back_to_one_pod() {
    let (bed, kubevirt, namespace) = shared().await;
    let quotas = quota(bed, &namespace, json!({"pods": "3"})).await;
    let vm = kubevirt.vm(&namespace.name, "web").start().await.unwrap();
    for _ in 0..3 {
        let (node, source) = (vm.node().await.unwrap(), vm.pod().await.unwrap());
        let migration = vm.migrate().await.unwrap();
        let target = migration.until_target_pod().await.unwrap();
        migration.until_succeeded().await.unwrap();
        assert_ne!(vm.node().await.unwrap(), node);
        let left = vm.until_alone().await.unwrap();
        assert_eq!(name(&left), name(&target));
        assert_ne!(name(&left), name(&source));
        until_used(&quotas, &[("pods", "1")]).await;
    }
    assert_eq!(vm.migrations().await.unwrap().len(), 3);
    assert!(bed.rejected_attempts(&namespace.name).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_rejects_the_target_until_there_is_room() {
    let (bed, kubevirt, namespace) = shared().await;
    let quotas = quota(bed, &namespace, json!({"pods": "1"})).await;
    let vm = kubevirt.vm(&namespace.name, "web").start().await.unwrap();
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    assert!(migration.rejected().await.unwrap());
    let event = vm.until_event("FailedCreate").await.unwrap();
    assert!(
        event
            .message
            .unwrap()
            .contains("exceeded quota: full, requested: pods=1, used: pods=1, limited: pods=1")
    );
    let attempts = bed.rejected_attempts(&namespace.name).await.unwrap();
    assert!(!attempts.is_empty());
    assert!(migration.target_pod().await.unwrap().is_none());
    assert_eq!(migration.phase().await.unwrap(), MigrationPhase::Pending);

    let room = kube::api::Patch::Merge(json!({"spec": {"hard": {"pods": "2"}}}));
    quotas.patch("full", &kube::api::PatchParams::default(), &room).await.unwrap();
    migration.until_succeeded().await.unwrap();
    until_used(&quotas, &[("pods", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_fails_and_the_vm_stays() {
    let (_, kubevirt, namespace) = shared().await;
    let vm = kubevirt.vm(&namespace.name, "web").script(MigrationScript::Fail).start().await.unwrap();
    let (node, source) = (vm.node().await.unwrap(), vm.pod().await.unwrap());
    let migration = vm.migrate().await.unwrap();
    migration.until_failed().await.unwrap();
    assert!(migration.until_succeeded().await.is_err(), "a failed migration did not succeed");
    assert_eq!(name(&vm.until_alone().await.unwrap()), name(&source));
    assert_eq!(vm.node().await.unwrap(), node);
    vm.release().await.unwrap();
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    vm.until_away_from(&node).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_migration_waits_to_be_released() {
    let (_, kubevirt, namespace) = shared().await;
    let vm = kubevirt.vm(&namespace.name, "web").script(MigrationScript::Hold).start().await.unwrap();
    let node = vm.node().await.unwrap();
    let migration = vm.migrate().await.unwrap();
    let held = migration.until(MigrationPhase::Running).await.unwrap();
    assert_eq!(MigrationPhase::of(&held), MigrationPhase::Running);
    let live = vm.pods().await.unwrap();
    assert_eq!(live.len(), 2, "source and target");
    assert_eq!(vm.node().await.unwrap(), node);
    vm.release().await.unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_away_from(&node).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_is_aborted() {
    let (_, kubevirt, namespace) = shared().await;
    let vm = kubevirt.vm(&namespace.name, "web").script(MigrationScript::Hold).start().await.unwrap();
    let (node, source) = (vm.node().await.unwrap(), vm.pod().await.unwrap());
    let migration = vm.migrate().await.unwrap();
    migration.until(MigrationPhase::Running).await.unwrap();
    migration.abort().await.unwrap();
    assert_eq!(name(&vm.until_alone().await.unwrap()), name(&source));
    assert_eq!(vm.node().await.unwrap(), node);
    let state = vm.object().await.unwrap();
    assert_eq!(text(&state.data, "/status/migrationState/abortStatus"), "Succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_source_pod_stays_counted() {
    let (bed, kubevirt, namespace) = shared().await;
    let quotas = quota(bed, &namespace, json!({"pods": "9"})).await;
    let vm = kubevirt.vm(&namespace.name, "web").script(MigrationScript::KeepSource).start().await.unwrap();
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    until_used(&quotas, &[("pods", "2")]).await;
    vm.release().await.unwrap();
    vm.until_alone().await.unwrap();
    until_used(&quotas, &[("pods", "1")]).await;
}

/// Another client writes to the VM all the time, so that its node agents' writes are refused and done again, while it
/// goes back to the node that it just left: what is still to be done there about its old pod is not done to the new
/// one.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_goes_back_at_once_to_the_node_it_left() {
    let (bed, kubevirt, namespace) = shared().await;
    let nodes = kubevirt.add_nodes(2).await.unwrap();
    let terms: Vec<Value> = nodes
        .iter()
        .map(|node| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}))
        .collect();
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let vm = kubevirt.vm(&namespace.name, "back").spec(json!({"affinity": {"nodeAffinity": required}}));
    let vm = vm.start().await.unwrap();
    for _ in 0..4 {
        let there_and_back = async {
            vm.migrate().await.unwrap().until_succeeded().await.unwrap();
            let back = vm.migrate().await.unwrap();
            back.until(MigrationPhase::Scheduled).await.unwrap();
            back
        };
        let disturbed = futures::future::join_all((0..4).map(|_| disturb(bed, &namespace, vm.name())));
        let back = tokio::select! {
            back = there_and_back => back,
            _ = disturbed => panic!("it does not end"),
        };
        back.until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
    }
}

/// Changes the VM without end.
async fn disturb(bed: &Bed, namespace: &TestNamespace, vm: &str) {
    let vms = objects(bed, namespace, "VirtualMachineInstance");
    for number in 0_u64.. {
        let patch = json!({"metadata": {"annotations": {"example.com/number": number.to_string()}}});
        vms.patch(vm, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_and_memory_are_plugged_in_by_migration() {
    let (_, kubevirt, namespace) = shared().await;
    let vm = kubevirt.vm(&namespace.name, "grows").hotplug(8, "4Gi").start().await.unwrap();
    let before = vm.pod().await.unwrap();
    vm.hotplug_cpu(2).await.unwrap().until_succeeded().await.unwrap();
    let bigger = vm.until("to have two sockets", |vmi| {
        vmi.data.pointer("/status/currentCPUTopology/sockets").and_then(Value::as_u64) == Some(2)
    });
    bigger.await.unwrap();
    vm.hotplug_memory("1Gi").await.unwrap().until_succeeded().await.unwrap();
    let grown = vm.until_alone().await.unwrap();
    let amount = vm.object().await.unwrap();
    assert_eq!(text(&amount.data, "/status/memory/guestRequested"), "1Gi");
    assert_ne!(memory_request(&grown), memory_request(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_machine_restarts_and_grows() {
    let (_, kubevirt, namespace) = shared().await;
    // KubeVirt lets a VirtualMachine's memory grow from 1 GiB on.
    let vm = kubevirt.vm(&namespace.name, "always").virtual_machine().memory("1Gi").hotplug(4, "4Gi");
    let vm = vm.start().await.unwrap();
    let before = vm.pod().await.unwrap();
    vm.restart().await.unwrap();
    let after = vm.until_alone().await.unwrap();
    assert_ne!(name(&after), name(&before));
    vm.hotplug_memory("2Gi").await.unwrap().until_succeeded().await.unwrap();
    vm.delete().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_a_node_moves_all_its_vms() {
    let bed = own().await;
    let kubevirt = bed.kubevirt().unwrap();
    let namespace = bed.namespace("vms", &[]).await.unwrap();
    let node = kubevirt.add_nodes(1).await.unwrap().remove(0);
    let start = ["one", "two", "three"].map(|name| kubevirt.vm(&namespace.name, name).node(&node).start());
    let vms: Vec<Vm> = futures::future::try_join_all(start).await.unwrap();
    for vm in &vms {
        assert_eq!(vm.node().await.unwrap(), node);
    }
    let elsewhere = kubevirt.vm(&namespace.name, "elsewhere").node(&kubevirt.add_nodes(1).await.unwrap()[0]);
    let elsewhere = elsewhere.start().await.unwrap();
    let mut drained: Vec<_> =
        kubevirt.drain(&node).await.unwrap().iter().map(|vm| vm.name().to_owned()).collect();
    drained.sort();
    assert_eq!(drained, ["one", "three", "two"]);
    for vm in &vms {
        let migration = vm.until_migration(&[]).await.unwrap();
        assert!(migration.name().starts_with("kubevirt-evacuation-"), "{}", migration.name());
        migration.until_succeeded().await.unwrap();
        vm.until_away_from(&node).await.unwrap();
        vm.until_alone().await.unwrap();
    }
    assert!(elsewhere.migrations().await.unwrap().is_empty());
    kubevirt.uncordon(&node).await.unwrap();
    elsewhere.migrate().await.unwrap().until_succeeded().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_limits_hold_and_can_be_changed() {
    let bed = own().await;
    let kubevirt = bed.kubevirt().unwrap();
    kubevirt.configure(json!({"migrations": {"parallelMigrationsPerCluster": 1}})).await.unwrap();
    let namespace = bed.namespace("vms", &[]).await.unwrap();
    let start =
        ["one", "two"].map(|name| kubevirt.vm(&namespace.name, name).script(MigrationScript::Hold).start());
    let vms = futures::future::try_join_all(start).await.unwrap();
    let first = vms[0].migrate().await.unwrap();
    first.until(MigrationPhase::Running).await.unwrap();
    let second = vms[1].migrate().await.unwrap();
    second.until(MigrationPhase::Pending).await.unwrap();
    // It has been looked at: its status names the source pod.
    let held = |object: Option<&DynamicObject>| {
        object.is_some_and(|one| one.data.pointer("/status/migrationState/sourcePod").is_some())
    };
    let migrations = objects(&bed, &namespace, "VirtualMachineInstanceMigration");
    wait::wait_for(&migrations, second.name(), DEADLINE, "the second migration's source", held)
        .await
        .unwrap();
    assert!(second.target_pod().await.unwrap().is_none());

    kubevirt.migrate_at_a_time(2, 2).await.unwrap();
    second.until(MigrationPhase::Running).await.unwrap();
    assert_eq!(first.phase().await.unwrap(), MigrationPhase::Running);
    for vm in &vms {
        vm.release().await.unwrap();
    }
    first.until_succeeded().await.unwrap();
    second.until_succeeded().await.unwrap();

    // virt-controller and the API server die and come back, and nothing stays behind.
    bed.stop(Component::VirtController);
    let third = vms[0].migrate().await.unwrap();
    assert_eq!(third.phase().await.unwrap(), MigrationPhase::Unset);
    bed.start_component(Component::VirtController).unwrap();
    third.until_succeeded().await.unwrap();
    bed.restart_api_server().await.unwrap();
    vms[1].migrate().await.unwrap().until_succeeded().await.unwrap();

    let (dir, processes) = (bed.dir().to_owned(), bed.processes());
    assert_eq!(processes.len(), 6);
    drop(bed);
    assert!(!dir.exists());
    for (component, process) in processes {
        assert!(!process.is_alive(), "{} still runs", component.name());
    }
}

fn objects(bed: &Bed, namespace: &TestNamespace, kind: &str) -> Api<DynamicObject> {
    let kind = kube::core::GroupVersionKind::gvk("kubevirt.io", "v1", kind);
    let resource = kube::api::ApiResource::from_gvk(&kind);
    Api::namespaced_with(bed.admin().unwrap(), &namespace.name, &resource)
}
