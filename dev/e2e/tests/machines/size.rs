//! Who makes a VM whose pod is larger than its guest is warned, as kubectl shows it.

use serde_json::{Value, json};
use sluice_testbed::wait;

use crate::context::{Counting, SOON, Team};

/// What kubectl is told on standard error; it has to succeed.
async fn kubectl(team: &Team, args: &[&str]) -> Vec<String> {
    let namespaced = [&["--namespace", team.tenant.name()], args].concat();
    let output = team.tenant.bed.kubectl(namespaced).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr).lines().map(str::to_owned).collect()
}

/// What is told of a new VM.
async fn told(team: &Team, object: &Value) -> Vec<String> {
    let file = team.tenant.bed.dir().join(format!("{}.json", team.tenant.name()));
    std::fs::write(&file, object.to_string()).unwrap();
    kubectl(team, &["create", "--dry-run=server", "--filename", &file.display().to_string()]).await
}

/// Waits until this is told of a new VM: the webhook learns a moment later what is counted.
async fn until_told(team: &Team, object: &Value, expected: &[&str]) {
    let is_told = || async { (told(team, object).await == expected).then_some(()) };
    wait::eventually(SOON, is_told, &format!("kubectl to print {expected:?}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_larger_than_its_guest_is_warned_of_by_the_calculator_in_force() {
    let counting = Counting::by("VirtualResources").await;
    let team = counting.team("larger").await;
    let builder = team.tenant.kubevirt.vm(team.tenant.name(), "web").memory("1Gi").sockets(2);
    let (vmi, vm) = (builder.clone(), builder.virtual_machine());
    let memory = "spec.template.spec.domain.resources.requests.memory: the pod takes 3Gi of its node, and quotas are \
        charged the 1Gi of the guest (calculator VirtualResources): request no more than the guest has";
    let memory = format!("Warning: {memory}");
    let cpu = memory.replace("requests.memory", "requests.cpu").replace("3Gi", "2500m").replace("1Gi", "2");
    let mut larger = vm.clone().requests(&[("cpu", "2500m"), ("memory", "3Gi")]).object();
    until_told(&team, &larger, &[&cpu, &memory]).await;
    let of_vmi = memory.replace("spec.template.spec", "spec");
    let larger_vmi = vmi.requests(&[("memory", "3Gi")]).object();
    assert_eq!(told(&team, &larger_vmi).await, [of_vmi]);
    assert_eq!(told(&team, &vm.clone().requests(&[("cpu", "2"), ("memory", "1Gi")]).object()).await, [""; 0]);

    // Who changes it is told, virt-controller's updates and others are not looked at.
    let vm = vm.start().await.unwrap();
    let patch = async |change: Value| {
        let change = change.to_string();
        kubectl(&team, &["patch", "virtualmachine", vm.name(), "--type=merge", "--patch", &change]).await
    };
    let domain = |change: Value| json!({ "spec": { "template": { "spec": { "domain": change } } } });
    let requests = json!({ "resources": { "requests": { "memory": "3Gi" } } });
    assert_eq!(patch(domain(requests)).await, [memory.as_str()]);
    assert_eq!(patch(json!({ "metadata": { "labels": { "a": "b" } } })).await, [""; 0]);
    assert_eq!(patch(domain(json!({ "memory": { "guest": "3Gi" } }))).await, [""; 0]);

    larger["metadata"]["name"] = json!("another");
    counting.switch("VmiPodUsage").await;
    until_told(&team, &larger, &[]).await;
    counting.switch("DedicatedVirtualResources").await;
    let dedicated = [&cpu, &memory].map(|told| told.replace("VirtualResources", "DedicatedVirtualResources"));
    until_told(&team, &larger, &dedicated.each_ref().map(String::as_str)).await;
}
