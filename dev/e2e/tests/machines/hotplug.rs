//! Hot-plug: what a VM is to have more is charged when the VM is changed, or refused then.

use kube::api::DynamicObject;
use serde_json::{Value, json};
use sluice_testbed::kubevirt::Vm;

use crate::context::{Counting, Team};

const MEMORY: &str = "requests.memory";

fn memory(guest: &str) -> Value {
    json!({ "domain": { "memory": { "guest": guest } } })
}

/// A VM with 256Mi to which more can be given, in a quota of so much memory.
async fn start(team: &Team, hard: &str, is_machine: bool) -> Vm {
    team.quota("vms", &[(MEMORY, hard)]).await;
    let vm = team.tenant.kubevirt.vm(team.tenant.name(), "web").hotplug(4, "4Gi");
    let vm = if is_machine { vm.virtual_machine() } else { vm };
    let vm = vm.start().await.unwrap();
    team.until_used("vms", &[(MEMORY, "256Mi")]).await;
    vm
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_plugged_in_is_charged_before_it_is_admitted_and_once() {
    let counting = Counting::by("VirtualResources").await;
    let team = counting.team("plug").await;
    let vm = start(&team, "1Gi", false).await;
    let known = vm.migrations().await.unwrap();
    vm.change(memory("1Gi")).await.unwrap();
    assert_eq!(team.used("vms", MEMORY).await, "1Gi", "no pod is there for it yet");
    let refused = vm.change(memory("2Gi")).await.unwrap_err();
    let words = "exceeded quota: vms, requested: requests.memory=1Gi, used: requests.memory=1Gi, limited: requests.memory=1Gi";
    assert!(format!("{refused:#}").contains(words), "{refused:#}");
    vm.until_migration(&known).await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    team.until_used("vms", &[(MEMORY, "1Gi")]).await;
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    team.until_used("vms", &[(MEMORY, "1Gi")]).await;
    vm.delete().await.unwrap();
    team.until_used("vms", &[(MEMORY, "0")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_told_on_vm_and_vmi_and_stands_in_no_migrations_way() {
    let counting = Counting::by("VirtualResources").await;
    let team = counting.team("plug").await;
    let vm = start(&team, "768Mi", true).await;
    vm.change(memory("1Gi")).await.unwrap();
    let words = "exceeded quota: vms, requested: requests.memory=768Mi, used: requests.memory=256Mi, limited: requests.memory=768Mi";
    let fails = |machine: &DynamicObject| {
        let conditions = machine.data.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|condition| {
            condition["type"] == "Failure" && condition["message"].as_str().is_some_and(|text| text.contains(words))
        })
    };
    vm.until_machine("to say why it does not grow", fails).await.unwrap();
    let told = vm.until_event("ExceededQuota").await.unwrap();
    assert_eq!(told.message, Some(format!("not given more CPUs or memory: {words}")));
    assert_eq!(vm.migrations().await.unwrap().len(), 0, "nothing is begun that would wait");
    let migration = vm.migrate().await.unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    team.until_used("vms", &[(MEMORY, "256Mi")]).await;
    let known = vm.migrations().await.unwrap();
    team.set_hard("vms", MEMORY, "1Gi").await;
    // virt-controller tries again by itself, but ever later.
    vm.change(json!({ "terminationGracePeriodSeconds": 1 })).await.unwrap();
    vm.until_migration(&known).await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    team.until_used("vms", &[(MEMORY, "1Gi")]).await;
}
