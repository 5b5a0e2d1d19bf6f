//! Pods that KubeVirt creates beside those of VMs, under a full quota.

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_e2e::call::{STRATEGIC, call};
use sluice_e2e::objects::{self, from_json, is_held};
use sluice_testbed::kubevirt::CONTROLLER;
use sluice_testbed::wait;

use crate::context::{Counting, SOON, Team};

/// A pod as KubeVirt creates one to attach volumes to a launcher. It has as many volumes as one that attaches none, so that
/// the real virt-controller leaves it alone. It stays pending: simulated nodes may not be asked to resize pods.
fn attachment(name: &str, launcher: &Pod) -> Pod {
    let controller = json!({
        "apiVersion": "v1", "kind": "Pod", "controller": true,
        "name": launcher.metadata.name, "uid": launcher.metadata.uid,
    });
    let volume = |name: &str| json!({ "name": name, "emptyDir": {} });
    let resources =
        json!({ "requests": { "cpu": "10m", "memory": "2M" }, "limits": { "cpu": "100m", "memory": "80M" } });
    from_json(json!({
        "metadata": { "name": name, "ownerReferences": [controller] },
        "spec": {
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "nodeSelector": { "no": "node" },
            "volumes": [volume("a"), volume("b")],
            "containers": [{ "name": "hotplug-disk", "image": "none", "resources": resources }],
        },
    }))
}

fn speaking_as(team: &Team, user: &str) -> Client {
    team.tenant.bed.client_as_user(user, &["system:masters"]).unwrap().client().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_kubevirt_attaches_to_a_vm_that_is_charged_passes_a_full_quota() {
    let counting = Counting::by("VirtualResources").await;
    let team = counting.team("attach").await;
    let full = [("requests.memory", "256Mi"), ("pods", "1")];
    team.quota("vms", &full).await;
    let vm = team.tenant.vm("web").await;
    team.until_used("vms", &full).await;
    let launcher = vm.pod().await.unwrap();
    let kubevirt = speaking_as(&team, CONTROLLER);
    let tenant = speaking_as(&team, "system:serviceaccount:team:kubevirt-controller");

    // Created by another account, or with a name that KubeVirt gives to no attachment.
    for (client, name) in [(&tenant, "hp-volume-forged"), (&kubevirt, "virt-export-a")] {
        let mut pod = attachment(name, &launcher);
        if name.starts_with("virt-export") {
            pod.metadata.owner_references = None;
        }
        let created = objects::create(client, team.tenant.name(), &pod).await.unwrap();
        assert!(team.until_told(&created).await.starts_with("exceeded quota: vms"), "{name}");
    }

    let attached = attachment("hp-volume-x7d9k", &launcher);
    objects::create(&kubevirt, team.tenant.name(), &attached).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(team.tenant.client.clone(), team.tenant.name());
    let goes = |pod: Option<&Pod>| pod.is_some_and(|pod| !is_held(pod));
    wait::wait_for(&pods, "hp-volume-x7d9k", SOON, "the attachment to go", goes).await.unwrap();
    team.until_used("vms", &full).await;
    for name in ["hp-volume-forged", "virt-export-a"] {
        assert!(is_held(&pods.get(name).await.unwrap()), "{name}");
    }

    let path = format!("/api/v1/namespaces/{}/pods/hp-volume-x7d9k/resize", team.tenant.name());
    let larger: Value = json!({
        "spec": { "containers": [{ "name": "hotplug-disk", "resources": { "requests": { "cpu": "50m" } } }] },
    });
    let answer = call(&team.tenant.client, Method::PATCH, &path, STRATEGIC, &larger).await.unwrap();
    assert_eq!(answer.code, 403, "{answer:?}");
    assert!(answer.message().contains("are changed by KubeVirt alone"), "{answer:?}");

    // Charged as what it is once VMs are not.
    pods.delete("hp-volume-forged", &kube::api::DeleteParams::default()).await.unwrap();
    counting.switch("IgnoreVmiCalculator").await;
    team.until_used("vms", &[("pods", "2")]).await;
    counting.switch("VirtualResources").await;
    team.until_used("vms", &full).await;
}
