//! A bed is a working cluster, and several stand side by side.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use sluice_testbed::{Bed, BedOptions, Component, State, wait};

const SOON: Duration = Duration::from_secs(20);

fn pod(name: &str, annotations: serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "initContainers": [{"name": "side", "image": "none", "restartPolicy": "Always"}],
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    }))
    .unwrap()
}

fn phase(pod: Option<&Pod>) -> &str {
    pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

async fn forbidden(pods: Api<Pod>) -> bool {
    matches!(pods.list(&ListParams::default()).await, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_beds_side_by_side_are_gone_afterwards() {
    let (one, two) =
        tokio::try_join!(Bed::start(BedOptions::default()), Bed::start(BedOptions::default())).unwrap();
    assert_ne!(one.server_url(), two.server_url());
    let namespace = one.namespace("only-here", &[("team", "a")]).await.unwrap();
    let there: Api<Namespace> = Api::all(two.admin().unwrap());
    assert!(there.get_opt(&namespace.name).await.unwrap().is_none());

    let mut traces = Vec::new();
    for bed in [one, two] {
        traces.push((bed.dir().to_owned(), bed.processes()));
        assert_eq!(bed.processes().len(), 5);
        assert!(bed.processes().values().all(|process| process.is_alive()));
        drop(bed);
    }
    for (dir, processes) in traces {
        assert!(!dir.exists(), "{} was left behind", dir.display());
        for (component, process) in processes {
            assert!(!process.is_alive(), "{} still runs", component.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bed_that_stays_is_taken_over_by_a_process_that_has_not_started_it() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("stays");
    let options = BedOptions { kwok: false, scheduler: false, ..BedOptions::default() };
    drop(Bed::start_persistent(dir.clone(), options).await.unwrap());
    let mut state = State::load(&dir).unwrap();
    let bed = Bed::attach(&state).await.unwrap();
    let namespace = bed.namespace("taken-over", &[]).await.unwrap();
    let tenant = bed.tenant(&namespace).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(tenant.client().unwrap(), &namespace.name);
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());
    drop(bed);
    assert!(state.processes.values().all(sluice_testbed::process::ProcessId::is_alive));

    let mut agent = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    state.set_agent(agent.id()).unwrap();
    let state = State::load(&dir).unwrap();
    let waiting = std::thread::spawn(move || agent.wait().unwrap());
    state.stop().await.unwrap();
    assert!(!waiting.join().unwrap().success(), "what runs on the bed ends with it");
    assert!(!dir.exists() && !state.processes.values().any(sluice_testbed::process::ProcessId::is_alive));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_complete_fail_and_go() {
    let bed = Bed::shared().await.unwrap();
    bed.add_nodes(2, &[("cpu", "8"), ("memory", "32Gi")]).await.unwrap();
    let namespace = bed.namespace("pods", &[]).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(bed.admin().unwrap(), &namespace.name);

    pods.create(&PostParams::default(), &pod("stays", json!({}))).await.unwrap();
    let running = wait::wait_for(&pods, "stays", SOON, "Running", |pod| phase(pod) == "Running")
        .await
        .unwrap()
        .unwrap();
    let status = running.status.unwrap();
    assert!(status.pod_ip.is_some());
    assert!(status.conditions.unwrap().iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    assert!(status.init_container_statuses.unwrap()[0].state.as_ref().unwrap().running.is_some());

    pods.create(&PostParams::default(), &pod("ends", json!({"sluice.dev/complete-after": "100ms"})))
        .await
        .unwrap();
    wait::wait_for(&pods, "ends", SOON, "Succeeded", |pod| phase(pod) == "Succeeded").await.unwrap();
    let failing = json!({"sluice.dev/complete-after": "100ms", "sluice.dev/complete-as": "Failed"});
    pods.create(&PostParams::default(), &pod("fails", failing)).await.unwrap();
    wait::wait_for(&pods, "fails", SOON, "Failed", |pod| phase(pod) == "Failed").await.unwrap();

    pods.delete("stays", &DeleteParams::default()).await.unwrap();
    wait::wait_for(&pods, "stays", SOON, "deletion", |pod| pod.is_none()).await.unwrap();
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_its_namespace_only() {
    let bed = Bed::shared().await.unwrap();
    let (own, other) = (bed.namespace("own", &[]).await.unwrap(), bed.namespace("other", &[]).await.unwrap());
    let tenant = bed.tenant(&own).await.unwrap();
    let client = tenant.client().unwrap();
    Api::<Pod>::namespaced(client.clone(), &own.name).list(&ListParams::default()).await.unwrap();
    assert!(forbidden(Api::namespaced(client.clone(), &other.name)).await);
    assert!(forbidden(Api::all(client)).await);
    let output = bed.kubectl_as(&tenant, ["auth", "can-i", "create", "pods"]).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "yes", "the kubeconfig carries the namespace");
    let nobody = bed.client_as_user("nobody", &["nothing"]).unwrap().client().unwrap();
    assert!(forbidden(Api::namespaced(nobody, &own.name)).await);
    let several = bed.client_as_user("several", &["one", "system:masters"]).unwrap().client().unwrap();
    assert!(!forbidden(Api::namespaced(several, &own.name)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn service_accounts_have_exactly_what_is_bound() {
    let bed = Bed::shared().await.unwrap();
    let namespace = bed.namespace("accounts", &[]).await.unwrap();
    let ns = &namespace.name;
    let manifests = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: reader, namespace: {ns}}}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: reader, namespace: {ns}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}\n\
         subjects: [{{kind: ServiceAccount, name: reader, namespace: {ns}}}]\n"
    );
    bed.apply(&manifests).await.unwrap();
    let reader = bed.service_account(ns, "reader").await.unwrap();
    assert_eq!(reader.user(), format!("system:serviceaccount:{ns}:reader"));
    let pods: Api<Pod> = Api::namespaced(reader.client().unwrap(), ns);
    wait::eventually(SOON, || async { pods.list(&ListParams::default()).await.ok() }, "the binding")
        .await
        .unwrap();
    let refused = pods.create(&PostParams::default(), &pod("p", json!({}))).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
}

#[tokio::test(flavor = "multi_thread")]
async fn crds_are_served_when_apply_returns_and_writes_are_audited() {
    let bed = Bed::shared().await.unwrap();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.sluice.dev"},
        "spec": {
            "group": "test.sluice.dev", "scope": "Cluster",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let thing = json!({"apiVersion": "test.sluice.dev/v1", "kind": "Thing", "metadata": {"name": "one"}});
    bed.apply_objects([crd, thing]).await.unwrap();
    let output = bed.kubectl(["get", "things", "-o", "name"]).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "thing.test.sluice.dev/one");
    let events = bed.audit_events().await.unwrap();
    assert_eq!(events.iter().filter(|event| event.is("patch", "things")).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_restarts_and_components_pause() {
    let bed =
        Bed::start(BedOptions { kwok: false, scheduler: false, ..BedOptions::default() }).await.unwrap();
    let namespace = bed.namespace("kept", &[]).await.unwrap();
    let before = bed.processes()[&Component::ApiServer].clone();
    bed.restart_api_server().await.unwrap();
    assert!(!before.is_alive());
    let namespaces: Api<Namespace> = Api::all(bed.admin().unwrap());
    assert!(namespaces.get_opt(&namespace.name).await.unwrap().is_some());

    bed.pause(Component::ApiServer);
    let held = tokio::time::timeout(Duration::from_millis(300), namespaces.get(&namespace.name)).await;
    assert!(held.is_err(), "a stopped API server answered");
    bed.resume(Component::ApiServer);
    tokio::time::timeout(SOON, namespaces.get(&namespace.name)).await.unwrap().unwrap();
}
