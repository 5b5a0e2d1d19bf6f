//! Hot-plug: what a VM is to have more is charged when the VM is changed, or refused then.

use kube::api::DynamicObject;
use serde_json::{Value, json};
use sluice_testbed::kubevirt::Vm;

use crate::context::{Counting, Team};

const MEMORY: &str = "requests.memory";

fn memory(guest: &str) -> Value {
    json!({ "domain": { "memory": { "guest": guest } } })
}

/// A quota of so much memory, and in it a VM with 1Gi, to which KubeVirt gives more.
async fn start(team: &Team, hard: &str, is_machine: bool) -> Vm {
    team.quota("vms", &[(MEMORY, hard)]).await;
    let vm = team.tenant.kubevirt.vm(team.tenant.name(), "web").memory("1Gi").hotplug(4, "4Gi");
    let vm = if is_machine { vm.virtual_machine() } else { vm };
    let vm = vm.start().await.unwrap();
    if is_machine {
        // virt-controller has added to the template since the first start.
        vm.restart().await.unwrap();
        vm.until_alone().await.unwrap();
    }
    team.until_used("vms", &[(MEMORY, "1Gi")]).await;
    vm
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_plugged_in_is_charged_before_it_is_admitted_and_once() {
    let counting = Counting::by("VirtualResources").await;
    let team = counting.team("plug").await;
    let vm = start(&team, "2Gi", false).await;
    let known = vm.migrations().await.unwrap();
    vm.change(memory("2Gi")).await.unwrap();
    assert_eq!(team.used("vms", MEMORY).await, "2Gi", "no pod is there for it yet");
    let refused = vm.change(memory("3Gi")).await.unwrap_err();
    let words = "exceeded quota: vms, requested: requests.memory=1Gi, used: requests.memory=2Gi, limited: requests.memory=2Gi";
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
    let words = "exceeded quota: vms, requested: requests.memory=1Gi, used: requests.memory=1Gi, limited: requests.memory=1536Mi";
    let fails = |machine: &DynamicObject| {
        let conditions = machine.data.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|condition| {
            condition["type"] == "Failure"
                && condition["message"].as_str().is_some_and(|text| text.contains(words))
        })
    };
    vm.until_machine("to say why it does not grow", fails).await.unwrap();
    let told = vm.until_event("ExceededQuota").await.unwrap();
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
