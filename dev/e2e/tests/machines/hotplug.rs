//! Hot-plug: what a VM is to have more is charged when the VM is changed, or refused then.

use kube::api::DynamicObject;
use serde_json::{Value, json};
use sluice_testbed::kubevirt::{MigrationPhase, MigrationScript, Vm};

use crate::context::{Counting, Team, assert_always_used};

const CPU: &str = "requests.cpu";
const MEMORY: &str = "requests.memory";

fn sockets(sockets: u32) -> Value {
    json!({ "domain": { "cpu": { "sockets": sockets } } })
}

fn memory(guest: &str) -> Value {
    json!({ "domain": { "memory": { "guest": guest } } })
}

/// A quota of so much memory, and in it a VM with 1Gi, to which KubeVirt gives more.
async fn start(team: &Team, hard: &str, is_machine: bool) -> Vm {
    team.quota("vms", &[(MEMORY, hard)]).await;
    let vm = team.tenant.kubevirt.vm(team.tenant.name(), "web").memory("1Gi").hotplug(4, "4Gi");
    // virt-controller writes a UUID into a template that has none. Where it has recorded the start before, it
    // takes its own writing for a change that needs a restart, and plugs in nothing any more.
    let uuid = json!({ "domain": { "firmware": { "uuid": "0f1e8a52-6f0b-4c35-9a53-7f6f2f9c1d10" } } });
    let vm = if is_machine { vm.virtual_machine().spec(uuid) } else { vm };
    let vm = vm.start().await.unwrap();
    team.until_used("vms", &[(MEMORY, "1Gi")]).await;
    vm
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_plugged_in_is_charged_before_it_is_admitted_and_once() {
    is_charged_before_it_is_admitted_and_once("VirtualResources").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_guest_takes_in_its_next_pod_is_charged_before_it_is_admitted_and_once() {
    is_charged_before_it_is_admitted_and_once("GuestEffectiveResources").await;
}

async fn is_charged_before_it_is_admitted_and_once(calculator: &str) {
    let counting = Counting::by(calculator).await;
    let team = counting.team("plug").await;
    let vm = start(&team, "2Gi", false).await;
    let known = vm.migrations().await.unwrap();
    vm.change(memory("2Gi")).await.unwrap();
    assert_eq!(team.used("vms", MEMORY).await, "2Gi", "no pod is there for it yet");
    let refused = vm.change(memory("3Gi")).await.unwrap_err();
    let words = "exceeded quota: vms, requested: requests.memory=1Gi, used: requests.memory=2Gi, \
                 limited: requests.memory=2Gi";
    assert!(format!("{refused:#}").contains(words), "{refused:#}");
    vm.until_migration(&known).await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    team.until_used("vms", &[(MEMORY, "2Gi")]).await;
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    team.until_used("vms", &[(MEMORY, "2Gi")]).await;
    vm.delete().await.unwrap();
    team.until_used("vms", &[(MEMORY, "0")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_told_on_vm_and_vmi_and_stands_in_no_migrations_way() {
    let counting = Counting::by("VirtualResources").await;
    let team = counting.team("plug").await;
    let vm = start(&team, "1536Mi", true).await;
    vm.change(memory("2Gi")).await.unwrap();
    let words = "exceeded quota: vms, requested: requests.memory=1Gi, used: requests.memory=1Gi, \
                 limited: requests.memory=1536Mi";
    let fails = |machine: &DynamicObject| {
        let conditions = machine.data.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|condition| {
            condition["type"] == "Failure"
                && condition["message"].as_str().is_some_and(|text| text.contains(words))
        })
    };
    vm.until_machine("to say why it does not grow", fails).await.unwrap();
    let told = vm.until_event("QuotaExceeded").await.unwrap();
    assert_eq!(told.message, Some(format!("not given more CPUs or memory: {words}")));
    assert_eq!(vm.migrations().await.unwrap().len(), 0, "nothing is begun that would wait");
    let migration = vm.migrate().await.unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    team.until_used("vms", &[(MEMORY, "1Gi")]).await;
    vm.hotplug_memory("1536Mi").await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    team.until_used("vms", &[(MEMORY, "1536Mi")]).await;
}

/// What is charged is what KubeVirt then has the target ask for, to the byte.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_next_pod_takes_is_charged_before_it_is_there() {
    let counting = Counting::by("VmiPodUsage").await;
    let team = counting.team("plug").await;
    team.quota("vms", &[(CPU, "10"), (MEMORY, "100Gi"), ("pods", "10")]).await;
    let vm = team.tenant.kubevirt.vm(team.tenant.name(), "web").memory("1Gi").hotplug(4, "4Gi");
    let vm = vm.start().await.unwrap();
    team.until_used("vms", &[(CPU, "105m"), ("pods", "1")]).await;
    vm.follow(MigrationScript::Hold).await.unwrap();
    let known = vm.migrations().await.unwrap();
    vm.change(sockets(2)).await.unwrap();
    let (cpu, memory) = (team.used("vms", CPU).await, team.used("vms", MEMORY).await);
    assert_eq!(cpu, "205m", "no pod is there for it yet");
    // From here on it fits exactly.
    let full = [(CPU, &*cpu), (MEMORY, &*memory)];
    for (key, hard) in full {
        team.set_hard("vms", key, hard).await;
    }
    team.until_written("vms", "1Gi").await;
    let watch = team.watch().await;
    let migration = vm.until_migration(&known).await.unwrap();
    migration.until(MigrationPhase::Running).await.unwrap();
    team.until_written("vms", "2Gi").await;
    vm.follow(MigrationScript::Succeed).await.unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    team.until_written("vms", "3Gi").await;
    let refused = vm.change(sockets(3)).await.unwrap_err();
    let words =
        "exceeded quota: vms, requested: requests.cpu=100m,requests.memory=8388608, used: requests.cpu=205m";
    assert!(format!("{refused:#}").contains(words), "{refused:#}");
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    team.until_written("vms", "4Gi").await;
    assert_always_used(watch, "vms", &full).await;
}
