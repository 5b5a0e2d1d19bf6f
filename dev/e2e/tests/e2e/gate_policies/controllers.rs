//! Of which virtual machine a pod is and what it runs stay as they are, whatever a client that may update pods writes.

use http::Method;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, MERGE, Response, STRATEGIC, call, get, post};
use sluice_testbed::kubevirt::CONTROLLER;
use sluice_testbed::wait;

use crate::context::SOON;
use crate::gate_policies::world::asleep;
use crate::pods::{assert_refused, pod, stamp};
use crate::team::Team;

fn reference(kind: &str, uid: &str, controller: bool) -> Value {
    let version = if kind == "VirtualMachineInstance" { "kubevirt.io/v1" } else { "v1" };
    json!({ "apiVersion": version, "kind": kind, "name": "x", "uid": uid, "controller": controller })
}

async fn refer(client: &kube::Client, team: &Team, name: &str, references: &[Value]) -> Response {
    let path = team.path(&format!("pods/{name}"));
    let body = json!({ "metadata": { "ownerReferences": references } });
    call(client, Method::PATCH, &path, MERGE, &body).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_a_virtual_machine_stays_one_of_it() {
    let bed = asleep().await;
    let team = Team::on(bed, "owners").await;
    let vm = |uid| reference("VirtualMachineInstance", uid, true);
    for (name, references) in [("launcher", vec![vm("a")]), ("plain", vec![])] {
        let mut pod = pod(name);
        pod["metadata"]["ownerReferences"] = json!(references);
        assert!(team.create(&pod).await.is_ok());
    }
    for (name, references) in [
        ("launcher", vec![vm("b")]),
        ("launcher", vec![]),
        ("launcher", vec![reference("VirtualMachineInstance", "a", false)]),
        ("launcher", vec![reference("VirtualMachineInstance", "a", false), reference("Pod", "a", true)]),
        ("plain", vec![vm("a")]),
        ("plain", vec![reference("Pod", "a", true)]),
    ] {
        let answer = refer(&team.client, &team, name, &references).await;
        assert_refused(&answer, &[names::GUARD_POLICY, "metadata.ownerReferences"]);
    }
    let mut put = get(&team.client, &team.path("pods/launcher")).await.unwrap().body;
    put["metadata"]["ownerReferences"] = json!([vm("b")]);
    let answer = call(&team.client, Method::PUT, &team.path("pods/launcher"), JSON, &put).await.unwrap();
    assert_refused(&answer, &[names::GUARD_POLICY, "metadata.ownerReferences"]);

    // Others may be added and taken away, before it too.
    let other = || reference("ConfigMap", "c", false);
    for references in [vec![other(), vm("a")], vec![vm("a")]] {
        let answer = refer(&team.client, &team, "launcher", &references).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    for references in [vec![reference("ReplicaSet", "r", true)], vec![]] {
        let answer = refer(&team.client, &team, "plain", &references).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    // As when a virtual machine is deleted and its pods are to stay.
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let collector = bed.client_as_user(collector, &["system:masters"]).unwrap();
    let answer = refer(&collector.client().unwrap(), &team, "launcher", &[]).await;
    assert!(answer.is_ok(), "{answer:?}");
}

/// A pod that is made to pass for a launcher before its namespace is targeted is no older than its stamp.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_claims_to_be_of_a_virtual_machine_is_stamped_in_every_namespace() {
    let bed = asleep().await;
    let team = Team::with(bed, "prepared", &[]).await;
    let tenant = bed.tenant(&team.namespace).await.unwrap();
    let many: Vec<Value> = (0..65).map(|n| reference("ConfigMap", &format!("c{n}"), false)).collect();
    for (name, references, is_stamped) in [
        ("launcher", vec![reference("VirtualMachineInstance", "a", true)], true),
        ("attachment", vec![reference("Pod", "a", true)], true),
        ("many", many, true),
        ("owned", vec![reference("VirtualMachineInstance", "a", false)], false),
        ("replica", vec![reference("ReplicaSet", "r", true)], false),
        ("plain", vec![], false),
    ] {
        let mut pod = pod(name);
        pod["metadata"]["ownerReferences"] = json!(references);
        let answer = post(&tenant.client().unwrap(), &team.path("pods"), &pod).await.unwrap();
        assert!(answer.is_ok(), "{name}: {answer:?}");
        assert_eq!(stamp(&answer.body), is_stamped.then_some(tenant.user()), "{name}");
    }
}

/// Gives a user `pods/resize` in the team's namespace, which `edit` does not have.
async fn may_resize(team: &Team, user: &str) {
    let role = |kind: &str| {
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": { "name": "resize", "namespace": team.namespace.name } })
    };
    let (mut rights, mut binding) = (role("Role"), role("RoleBinding"));
    rights["rules"] = json!([{ "apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"] }]);
    binding["roleRef"] = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "resize" });
    binding["subjects"] = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]);
    for (kind, object) in [("roles", rights), ("rolebindings", binding)] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/{kind}", team.namespace.name);
        assert!(post(&team.client, &path, &object).await.unwrap().is_ok());
    }
}

/// With a container and an init container that have images and resources.
fn with_containers(name: &str, references: &[Value]) -> Value {
    let mut pod = pod(name);
    let container = |name: &str| {
        json!({ "name": name, "image": "theirs",
        "resources": { "requests": { "cpu": "10m" }, "limits": { "cpu": "20m" } } })
    };
    pod["spec"]["containers"] = json!([container("compute")]);
    pod["spec"]["initContainers"] = json!([container("disk")]);
    pod["metadata"]["ownerReferences"] = json!(references);
    pod
}

/// A target that was let in above a quota is room for that virtual machine, not for what a tenant makes of the pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_pod_of_a_virtual_machine_runs_is_changed_by_kubevirt_alone() {
    let bed = asleep().await;
    let team = Team::on(bed, "images").await;
    let tenant = bed.tenant(&team.namespace).await.unwrap();
    may_resize(&team, tenant.user()).await;
    let tenant = tenant.client().unwrap();
    let kubevirt = bed.client_as_user(CONTROLLER, &["system:masters"]).unwrap().client().unwrap();
    let many: Vec<Value> = (0..65).map(|n| reference("ConfigMap", &format!("c{n}"), false)).collect();
    let hidden = [&[reference("VirtualMachineInstance", "a", true)], many.as_slice()].concat();
    for (by, pod) in [
        (&team.client, with_containers("launcher", &[reference("VirtualMachineInstance", "a", true)])),
        (&team.client, with_containers("hidden", &hidden)),
        (&kubevirt, with_containers("stamped", &[])),
        (&tenant, with_containers("plain", &[])),
        (&tenant, with_containers("owned", &[reference("VirtualMachineInstance", "a", false)])),
    ] {
        let answer = post(by, &team.path("pods"), &pod).await.unwrap();
        assert!(answer.is_ok(), "{answer:?}");
    }
    let patched = |list: &str, name: &str, change: Value| {
        let mut container = change;
        container["name"] = json!(name);
        json!({ "spec": { (list): [container] } })
    };
    let image = json!({ "image": "mine" });
    let more = json!({ "resources": { "requests": { "cpu": "15m" } } });
    let changes = [
        ("", "containers", patched("containers", "compute", image.clone())),
        ("", "initContainers", patched("initContainers", "disk", image)),
        ("/resize", "containers", patched("containers", "compute", more)),
    ];
    let tries = async |client: &kube::Client, pod: &str, subresource: &str, change: &Value| {
        let path = team.path(&format!("pods/{pod}{subresource}?dryRun=All"));
        call(client, Method::PATCH, &path, STRATEGIC, change).await.unwrap()
    };
    let resizes = || async { tries(&tenant, "plain", "/resize", &changes[2].2).await.is_ok().then_some(()) };
    wait::eventually(SOON, resizes, "the tenant to have its rights").await.unwrap();
    for (subresource, field, change) in &changes {
        for pod in ["launcher", "hidden", "stamped"] {
            let answer = tries(&tenant, pod, subresource, change).await;
            let told = format!("spec.{field}: images and resources of a pod that KubeVirt has made");
            assert_refused(&answer, &[names::GUARD_POLICY, &told]);
            let answer = tries(&kubevirt, pod, subresource, change).await;
            assert!(answer.is_ok(), "{pod}{subresource}: {answer:?}");
        }
        for pod in ["plain", "owned"] {
            let answer = tries(&tenant, pod, subresource, change).await;
            assert!(answer.is_ok(), "{pod}{subresource}: {answer:?}");
        }
    }
    // All else is as it was.
    let label = json!({ "metadata": { "labels": { "mine": "true" } } });
    assert!(tries(&tenant, "launcher", "", &label).await.is_ok());
}
