//! New pods are gated, whichever account creates them.

use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::objects::{self, is_held};
use sluice_manifests::Gating;

use crate::context::{gates, shared};
use crate::gate_policies::world::gated_by;
use crate::pods::{assert_refused, pod, stamp, with_gates};
use crate::team::Team;

#[rstest]
#[case::policy(Gating::Policy)]
#[case::webhook(Gating::Webhook)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_gate_comes_once_and_after_the_others_whose_order_is_kept(#[case] gating: Gating) {
    let team = Team::gated_by(gating, "gates").await;
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
    let refused = team.create(&with_gates(pod("more"), &more)).await;
    assert_refused(&refused, &[names::GATED_POLICY, "more than 64 items"]);
    let answer = team.create(&with_gates(pod("twice"), &[names::GATE, names::GATE])).await;
    if gating == Gating::Policy {
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

#[rstest]
#[case::policy(Gating::Policy)]
#[case::webhook(Gating::Webhook)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_controllers_create_are_gated_and_stamped(#[case] gating: Gating) {
    let bed = gated_by(gating).await;
    let nodes: Api<Node> = Api::all(bed.admin().unwrap());
    let node = objects::from_json(json!({ "metadata": { "name": "of-the-daemon-set" } }));
    nodes.create(&PostParams::default(), &node).await.unwrap();
    for (version, kind, spec, account) in workloads() {
        let team = Team::gated_by(gating, &kind.to_lowercase()).await;
        bed.apply_objects([json!({
            "apiVersion": version, "kind": kind, "spec": spec,
            "metadata": {"name": "w", "namespace": team.namespace.name, "labels": {"app": "x"}},
        })])
        .await
        .unwrap();
        let expected = if matches!(kind, "Deployment" | "ReplicaSet" | "Job") { 2 } else { 1 };
        for pod in team.until_pods(expected).await {
            assert!(is_held(&pod), "{kind}: {pod:?}");
            let creator = format!("system:serviceaccount:kube-system:{account}");
            assert_eq!(pod.annotations().get(names::CREATED_BY_ANNOTATION), Some(&creator), "{kind}");
        }
        // No client that was refused asks again and again.
        let events = Api::<Event>::namespaced(team.client.clone(), &team.namespace.name);
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let is_failure = |event: &&Event| event.reason.as_deref() == Some("FailedCreate");
        assert_eq!(events.iter().find(is_failure), None, "{kind}");
        if gating == Gating::Webhook {
            team.until_used("none", "pods", "0").await;
        }
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

#[rstest]
#[case::policy(Gating::Policy)]
#[case::webhook(Gating::Webhook)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_name_is_refused_in_our_words_and_a_mirror_pod_is_not(#[case] gating: Gating) {
    let (bed, team) = (gated_by(gating).await, Team::gated_by(gating, "bound").await);
    let nodes: Api<Node> = Api::all(team.client.clone());
    let node: Node = objects::from_json(json!({ "metadata": { "name": "static-node" } }));
    let node = nodes.create(&PostParams::default(), &node).await.unwrap();
    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = json!("static-node");
    let words = [names::GATED_POLICY, "spec.nodeName to \"static-node\"", names::GATE, "spec.nodeSelector"];
    let tenant = bed.tenant(&team.namespace).await.unwrap().client().unwrap();
    for client in [&team.client, &tenant] {
        assert_refused(&team.create_by(client, &bound).await, &words);
    }
    // With the gate core would answer first.
    assert!(!team.create(&with_gates(bound.clone(), &[names::GATE])).await.is_ok());

    let mut mirror = bound.clone();
    mirror["metadata"]["name"] = json!("mirror");
    mirror["metadata"]["annotations"] = json!({ names::MIRROR_ANNOTATION: "x" });
    mirror["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid(), "controller": true,
    }]);
    for client in [&team.client, &tenant] {
        assert_refused(&team.create_by(client, &mirror).await, &words);
    }
    let user = |name: &str, group: &str| bed.client_as_user(name, &[group]).unwrap().client().unwrap();
    let impostor = user("system:node:static-node", "system:masters");
    assert_refused(&team.create_by(&impostor, &mirror).await, &words);
    let kubelet = user("system:node:static-node", names::NODES_GROUP);
    let created = team.create_by(&kubelet, &mirror).await;
    assert!(created.is_ok() && gates(&created.body).is_empty(), "{created:?}");

    let free = Team::with(bed, "bound-free", &[]).await;
    assert!(free.create(&bound).await.is_ok(), "not our business where pods are not gated");
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
