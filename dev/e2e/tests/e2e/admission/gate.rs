//! New pods are gated, whichever account creates them.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::Setup;
use sluice_e2e::objects::{self, is_held};
use sluice_operator::Gating;
use sluice_testbed::wait;

use crate::context::{SOON, gates, shared};
use crate::pods::{assert_refused, pod, stamp, with_gates};
use crate::team::Team;

#[tokio::test]
async fn our_gate_comes_once_and_after_the_others_whose_order_is_kept() {
    let team = Team::on(shared().await.bed, "gates").await;
    team.quota("none", &[("pods", "0")]).await;
    let many = (0..names::MOST_ITEMS - 1).map(|n| format!("example.com/gate-{}", (n * 37) % 100));
    let many: Vec<String> = many.collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let cases = [
        (vec![], vec![names::GATE]),
        (vec!["b.example/x", "a.example/y"], vec!["b.example/x", "a.example/y", names::GATE]),
        (vec![names::GATE], vec![names::GATE]),
        (vec!["z/z", names::GATE, "a/a"], vec!["z/z", names::GATE, "a/a"]),
        // Names that only look like ours.
        (vec!["applicationawarequotagate"], vec!["applicationawarequotagate", names::GATE]),
        (many.clone(), [many.as_slice(), &[names::GATE]].concat()),
    ];
    for (index, (given, expected)) in cases.iter().enumerate() {
        let plain = pod(&format!("p{index}"));
        let sent = if given.is_empty() { plain } else { with_gates(plain, given) };
        let created = team.create(&sent).await;
        assert_eq!(created.code, 201, "{given:?}: {created:?}");
        assert_eq!(gates(&created.body), *expected, "{given:?}");
    }
    let more = [many.as_slice(), &["one.more/gate"]].concat();
    assert_refused(&team.create(&with_gates(pod("more"), &more)).await, &["more than 64 items"]);
    let answer = team.create(&with_gates(pod("twice"), &[names::GATE, names::GATE])).await;
    if Setup::default().gating() == Gating::Policy {
        assert_eq!(gates(&answer.body), [names::GATE], "the policy makes it one: {answer:?}");
    } else {
        assert_eq!(answer.code, 422, "the API server keeps the names unique: {answer:?}");
    }
}

#[tokio::test]
async fn a_pod_waits_for_foreign_gates_too_and_is_not_charged_before() {
    let team = Team::on(shared().await.bed, "foreign").await;
    team.quota("one", &[("pods", "1")]).await;
    let created = team.create(&with_gates(pod("parked"), &["example.com/mine"])).await;
    assert_eq!(created.code, 201);
    // It takes no room: the next one gets in, and the first stays behind both gates.
    team.pod("next", &[]).await;
    team.until_released("next").await;
    team.until_used("one", "pods", "1").await;
    assert_eq!(team.held().await, ["parked"]);
}

/// A template for each kind of controller, with the account its pods are created by.
fn workloads() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let template = |restart: &str| {
        json!({
            "metadata": {"labels": {"app": "x"}},
            "spec": {
                "restartPolicy": restart,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "main", "image": "none"}],
            },
        })
    };
    let selected = |replicas: Option<u32>| {
        let mut spec = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template("Always")});
        if let Some(replicas) = replicas {
            spec["replicas"] = json!(replicas);
        }
        spec
    };
    let mut stateful = selected(Some(1));
    stateful["serviceName"] = json!("none");
    let job = json!({"parallelism": 2, "completions": 2, "template": template("Never")});
    let core = json!({"replicas": 1, "selector": {"app": "x"}, "template": template("Always")});
    vec![
        ("apps/v1", "Deployment", selected(Some(2)), "replicaset-controller"),
        ("apps/v1", "ReplicaSet", selected(Some(2)), "replicaset-controller"),
        ("apps/v1", "StatefulSet", stateful, "statefulset-controller"),
        ("apps/v1", "DaemonSet", selected(None), "daemon-set-controller"),
        ("batch/v1", "Job", job, "job-controller"),
        ("v1", "ReplicationController", core, "replication-controller"),
    ]
}

#[tokio::test]
async fn pods_that_controllers_create_are_gated_and_stamped() {
    let bed = shared().await.bed;
    for (version, kind, spec, account) in workloads() {
        let team = Team::on(bed, &kind.to_lowercase()).await;
        team.quota("none", &[("pods", "0")]).await;
        bed.apply_objects([json!({
            "apiVersion": version, "kind": kind, "spec": spec,
            "metadata": {"name": "w", "namespace": team.namespace.name, "labels": {"app": "x"}},
        })])
        .await
        .unwrap();
        let expected = if matches!(kind, "Deployment" | "ReplicaSet" | "Job") { 2 } else { 1 };
        let what = format!("the {kind} to create {expected} pods");
        let config = watcher::Config::default();
        let enough = |pods: &[Pod]| pods.len() >= expected;
        let pods = wait::wait_for_all(&team.pods, config, SOON, &what, enough).await.unwrap();
        for pod in pods {
            assert!(is_held(&pod), "{kind}: {pod:?}");
            let creator = format!("system:serviceaccount:kube-system:{account}");
            assert_eq!(pod.annotations().get(names::CREATED_BY_ANNOTATION), Some(&creator), "{kind}");
        }
        team.until_used("none", "pods", "0").await;
    }
}

#[tokio::test]
async fn a_released_job_runs_to_its_end_under_its_quota() {
    let team = Team::on(shared().await.bed, "job").await;
    team.quota("one", &[("pods", "1")]).await;
    let (version, kind, mut spec, _) = workloads().into_iter().find(|(_, kind, ..)| *kind == "Job").unwrap();
    spec["template"]["metadata"]["annotations"] = json!({"none": "none"});
    let job = json!({
        "apiVersion": version, "kind": kind, "spec": spec,
        "metadata": {"name": "w", "namespace": team.namespace.name},
    });
    shared().await.bed.apply_objects([job]).await.unwrap();
    team.until_released_count(1).await;
    team.until_used("one", "pods", "1").await;
    let all = team.pods.list(&ListParams::default()).await.unwrap();
    let first = all.items.iter().find(|pod| !is_held(pod)).unwrap().name_any();
    let done = kube::api::Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    team.pods.patch_status(&first, &kube::api::PatchParams::default(), &done).await.unwrap();
    // The second one takes the room of the first.
    team.until_released_count(2).await;
}

#[tokio::test]
async fn a_dry_run_is_answered_with_the_gate_and_leaves_nothing() {
    let team = Team::on(shared().await.bed, "dry").await;
    team.quota("two", &[("pods", "2")]).await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for n in 0..20 {
        let answered = team.pods.create(&dry, &objects::pod(&format!("dry-{n}"), &[])).await.unwrap();
        assert!(is_held(&answered));
    }
    // Nothing was reserved for them.
    team.pod("a", &[]).await;
    team.pod("b", &[]).await;
    team.until_released_count(2).await;
    team.until_used("two", "pods", "2").await;
    assert_eq!(team.pods.list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn a_pod_that_names_its_node_is_refused_with_a_way_out() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "node-name").await;
    let tenant = bed.tenant(&team.namespace).await.unwrap().client().unwrap();
    let mut pod = pod("bound");
    pod["spec"]["nodeName"] = json!("node-1");
    for client in [&team.client, &tenant] {
        let words = [names::GATED_POLICY, "spec.nodeName to \"node-1\"", names::GATE, "spec.nodeSelector"];
        assert_refused(&team.create_by(client, &pod).await, &words);
    }
    let created = Team::with(bed, "node-name-free", &[]).await.create(&pod).await;
    assert_eq!(created.code, 201, "not our business where pods are not gated: {created:?}");
}

/// CDI's pod is not refused, for its claim would wait for ever; what it takes is counted, and missing for others.
#[tokio::test]
async fn a_pod_of_cdi_that_names_its_node_is_counted_beyond_the_limit_and_holds_others_back() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "importer").await;
    team.quota("full", &[("requests.cpu", "1")]).await;
    team.pod("app", &[("cpu", "1")]).await;
    team.until_released("app").await;
    let nodes: Api<Node> = Api::all(team.client.clone());
    let node = nodes.list(&ListParams::default().limit(1)).await.unwrap().items.remove(0);
    let mut importer = serde_json::to_value(objects::pod("importer", &[("cpu", "250m")])).unwrap();
    importer["spec"]["nodeName"] = json!(node.name_any());
    let cdi = "system:serviceaccount:cdi:cdi-sa";
    let client = bed.client_as_user(cdi, &["system:masters"]).unwrap().client().unwrap();
    let created = team.create_by(&client, &importer).await;
    assert_eq!(created.code, 201, "{created:?}");
    assert!(gates(&created.body).is_empty(), "{created:?}");
    assert_eq!(stamp(&created.body), Some(cdi));
    team.until_used("full", "requests.cpu", "1250m").await;
    // No room is left for as much as it takes, although the limit alone would leave it.
    team.pod("next", &[("cpu", "800m")]).await;
    team.pods.delete("app", &DeleteParams::default().grace_period(0)).await.unwrap();
    team.until_used("full", "requests.cpu", "250m").await;
    assert_eq!(team.held().await, ["next"]);
    team.pods.delete("importer", &DeleteParams::default().grace_period(0)).await.unwrap();
    team.until_released("next").await;
    team.until_used("full", "requests.cpu", "800m").await;
}

#[tokio::test]
async fn only_the_kubelet_itself_gets_a_mirror_pod_past_the_gate() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "mirror").await;
    let tenant = bed.tenant(&team.namespace).await.unwrap().client().unwrap();
    let nodes: Api<Node> = Api::all(team.client.clone());
    let node = nodes.list(&ListParams::default().limit(1)).await.unwrap().items.remove(0);
    let mut pod = pod("static");
    pod["metadata"]["annotations"] = json!({
        "kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "x", "kubernetes.io/config.source": "file",
    });
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid(), "controller": true,
    }]);
    pod["spec"]["nodeName"] = json!(node.name_any());
    // As any pod with a node.
    assert_refused(&team.create_by(&tenant, &pod).await, &["spec.nodeName"]);
    let user = format!("system:node:{}", node.name_any());
    let kubelet = bed.client_as_user(&user, &["system:nodes"]).unwrap().client().unwrap();
    let created = team.create_by(&kubelet, &pod).await;
    assert_eq!(created.code, 201, "{created:?}");
    assert!(gates(&created.body).is_empty(), "{created:?}");
}
