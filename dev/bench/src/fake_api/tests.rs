use futures::StreamExt as _;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::Request;
use kube::{Api, Client, Resource as _};
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareResourceQuota, Evaluator, GateProbe, GateProbeSpec, names};
use sluice_index::{ArqWire, EvaluatorWire, PodWire};
use sluice_runtime::client::{ClientOptions, connect};

use super::{FakeApiServer, Size};
use crate::cluster_json::QUOTA;

async fn fake(size: Size) -> (FakeApiServer, Client) {
    let server = FakeApiServer::start(size).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = Some(server.write_kubeconfig(dir.path()).unwrap());
    let client = connect(&ClientOptions { kubeconfig, ..ClientOptions::default() }).await.unwrap();
    (server, client)
}

const SIZE: Size = Size { namespaces: 2, pods: 8, waiting: 2 };

fn gate_removal(pod: &PodWire) -> json_patch::Patch {
    let meta = &pod.metadata;
    serde_json::from_value(json!([
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
        {"op": "test", "path": "/spec/schedulingGates", "value": [{"name": names::GATE}]},
        {"op": "remove", "path": "/spec/schedulingGates"},
    ]))
    .unwrap()
}

#[tokio::test]
async fn without_objects_there_is_a_version_and_lists_are_empty() {
    let (_server, client) = fake(Size::default()).await;
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
    let quotas: Api<ArqWire> = Api::all(client.clone());
    assert!(quotas.list(&ListParams::default()).await.unwrap().items.is_empty());
    let probes: Api<GateProbe> = Api::all(client);
    let bound = GateProbeSpec { node_name: Some("none".to_owned()), ..GateProbeSpec::default() };
    for (spec, is_gated) in [(GateProbeSpec::default(), true), (bound, false)] {
        let answer = probes.create(&PostParams::default(), &GateProbe::new("probe", spec)).await;
        assert_eq!(answer.is_ok_and(|probe| probe.spec.scheduling_gates.is_some()), is_gated);
    }
}

#[tokio::test]
async fn a_pod_is_released_once_and_the_watch_tells() {
    let (server, client) = fake(SIZE).await;
    let pods: Api<PodWire> = Api::all(client.clone());
    let first = pods.list(&ListParams::default().limit(5)).await.unwrap();
    let next = ListParams::default().limit(5).continue_token(&first.metadata.continue_.unwrap());
    let rest = pods.list(&next).await.unwrap();
    assert_eq!((first.items.len(), rest.items.len(), rest.metadata.continue_.as_deref()), (5, 3, Some("")));
    let since = rest.metadata.resource_version.unwrap();
    let selected = ListParams::default().labels(names::MIGRATION_JOB_LABEL);
    assert!(pods.list(&selected).await.unwrap().items.is_empty());

    // What happened before the watch began is told of too.
    assert!(server.change(|world| world.end(0)));
    let mut events = pods.watch(&WatchParams::default(), &since).await.unwrap().boxed();
    let gated = first.items.first().unwrap();
    let namespace = gated.metadata.namespace.as_deref();
    let path = k8s_openapi::api::core::v1::Pod::url_path(&(), namespace);
    let release = || {
        let patch = Patch::Json::<()>(gate_removal(gated));
        let name = gated.metadata.name.as_deref().unwrap();
        client.request::<PodWire>(Request::new(&path).patch(name, &PatchParams::default(), &patch).unwrap())
    };
    assert!(release().await.unwrap().spec.scheduling_gates.is_empty());
    release().await.unwrap_err();
    for phase in ["Succeeded", "Pending"] {
        let Some(Ok(WatchEvent::Modified(pod))) = events.next().await else { panic!("no change of a pod") };
        assert_eq!((pod.status.phase.as_deref(), pod.spec.scheduling_gates.len()), (Some(phase), 0));
    }
    assert_eq!((server.delivered(), server.read(super::World::releases)), (1, 1), "one was no release");
}

#[tokio::test]
async fn a_status_is_written_to_the_version_that_was_read() {
    let (_server, client) = fake(SIZE).await;
    let quotas: Api<ArqWire> = Api::all(client.clone());
    let quota = quotas.list(&ListParams::default()).await.unwrap().items.remove(0);
    let path = ApplicationAwareResourceQuota::url_path(&(), quota.metadata.namespace.as_deref());
    let body = json!({
        "metadata": {"uid": quota.metadata.uid, "resourceVersion": quota.metadata.resource_version},
        "status": {"used": {"pods": "3"}, "held": 1},
    });
    let write = |body: &Value| {
        let body = serde_json::to_vec(body).unwrap();
        let request =
            Request::new(&path).replace_subresource("status", QUOTA, &PostParams::default(), body).unwrap();
        client.request::<ArqWire>(request)
    };
    let written = write(&body).await.unwrap();
    assert_eq!(written.status.and_then(|status| status.held), Some(1));
    let Err(kube::Error::Api(status)) = write(&body).await else { panic!("the version is an old one") };
    assert_eq!(status.code, 409);
}

#[tokio::test]
async fn a_rule_is_listed_and_the_watch_tells_that_it_is_another_one() {
    let (server, client) = fake(SIZE).await;
    let rules: Api<EvaluatorWire> = Api::all(client.clone());
    assert!(rules.list(&ListParams::default()).await.unwrap().items.is_empty());
    server.change(|world| world.set_rule(&json!({"cel": {"match": "true", "charge": {"a": "1"}}})));
    let listed = rules.list(&ListParams::default()).await.unwrap();
    let since = listed.metadata.resource_version.unwrap();
    let mut events = rules.watch(&WatchParams::default(), &since).await.unwrap().boxed();
    let changed = json!({"cel": {"match": "true", "charge": {"b": "1"}}});
    server.change(|world| world.set_rule(&changed));
    let Some(Ok(WatchEvent::Modified(rule))) = events.next().await else { panic!("no change of the rule") };
    assert_eq!((rule.metadata.generation, &rule.spec), (Some(2), &changed));

    let tell = async |version: Option<String>| {
        let patch = json!({"metadata": {"resourceVersion": version}, "status": {"matched": 3}});
        let rules: Api<Evaluator> = Api::all(client.clone());
        let name = rule.metadata.name.as_deref().unwrap();
        rules.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await
    };
    let outdated = listed.items.first().unwrap().metadata.resource_version.clone();
    tell(outdated).await.unwrap_err();
    let told = tell(rule.metadata.resource_version.clone()).await.unwrap();
    assert_eq!(told.status.and_then(|status| status.matched), Some(3));
}
