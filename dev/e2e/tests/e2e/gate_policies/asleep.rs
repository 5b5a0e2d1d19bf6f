//! Every process of Sluice is gone: pods are created, gated, and wait; nothing is refused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{APPLY, STRATEGIC, call};
use sluice_e2e::objects::{self, is_held};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, gates, idle_bed};
use crate::gate_policies::world::asleep;
use crate::pods::{assert_gated, assert_refused, pod, stamp, with_gates, with_stamp};
use crate::team::Team;

const ADMIN: fn(&Bed) -> String = |bed| bed.admin_identity().user().to_owned();

/// A name for a pod of each kind of controller, and the account its pods are created by.
fn workload(version: &str, kind: &str, namespace: &str) -> Value {
    let restart = if kind == "Job" { "Never" } else { "Always" };
    let template = json!({
        "metadata": { "labels": { "app": "x" } },
        "spec": {
            "restartPolicy": restart, "terminationGracePeriodSeconds": 0,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "main", "image": "none" }],
        },
    });
    let spec = match kind {
        "Job" => json!({ "parallelism": 2, "completions": 2, "template": template }),
        "DaemonSet" => json!({ "selector": { "matchLabels": { "app": "x" } }, "template": template }),
        _ => json!({ "replicas": 2, "selector": { "matchLabels": { "app": "x" } }, "template": template }),
    };
    json!({
        "apiVersion": version, "kind": kind, "spec": spec,
        "metadata": { "name": "w", "namespace": namespace },
    })
}

#[rstest]
#[case("apps/v1", "Deployment", "replicaset-controller", 2)]
#[case("batch/v1", "Job", "job-controller", 2)]
#[case("apps/v1", "DaemonSet", "daemon-set-controller", 1)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_get_their_pods(
    #[case] version: &str,
    #[case] kind: &str,
    #[case] account: &str,
    #[case] count: usize,
) {
    let bed = asleep().await;
    let team = Team::on(bed, &kind.to_lowercase()).await;
    if kind == "DaemonSet" {
        let nodes: Api<Node> = Api::all(team.client.clone());
        let node = objects::from_json(json!({ "metadata": { "name": "lonely" } }));
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    bed.apply_objects([workload(version, kind, &team.namespace.name)]).await.unwrap();
    for pod in team.until_pods(count).await {
        assert!(is_held(&pod), "{pod:?}");
        let creator = format!("system:serviceaccount:kube-system:{account}");
        assert_eq!(pod.annotations().get(names::CREATED_BY_ANNOTATION), Some(&creator));
    }
    // No client that was refused asks again and again.
    let events =
        Api::<k8s_openapi::api::core::v1::Event>::namespaced(team.client.clone(), &team.namespace.name);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let failed: Vec<_> =
        events.iter().filter(|event| event.reason.as_deref() == Some("FailedCreate")).collect();
    assert_eq!(failed, Vec::<&_>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_every_form_are_gated_and_stamped() {
    let bed = asleep().await;
    let team = Team::on(bed, "forms").await;
    let admin = ADMIN(bed);
    assert_gated(&team.create(&pod("plain")).await, &admin);
    let tenant = bed.tenant(&team.namespace).await.unwrap();
    assert_gated(&team.create_by(&tenant.client().unwrap(), &pod("by-tenant")).await, tenant.user());

    let mut generated = pod("");
    generated["metadata"] = json!({ "generateName": "generated-" });
    assert_gated(&team.create(&generated).await, &admin);

    let answer = team.create(&with_gates(pod("foreign"), &["b.example/x", "a.example/y"])).await;
    assert_gated(&answer, &admin);
    assert_eq!(
        gates(&answer.body).into_iter().collect::<BTreeSet<_>>(),
        ["a.example/y", "b.example/x", names::GATE].into()
    );
    let answer = team.create(&with_gates(pod("own-gate"), &[names::GATE])).await;
    assert_gated(&answer, &admin);
    assert_eq!(gates(&answer.body), [names::GATE]);

    let mut forged = with_stamp(pod("forged"), "system:serviceaccount:kubevirt:kubevirt-controller");
    forged["metadata"]["annotations"]["kept"] = json!("yes");
    let answer = team.create(&with_gates(forged, &[names::GATE])).await;
    assert_gated(&answer, &admin);
    assert_eq!(answer.body["metadata"]["annotations"]["kept"], "yes");

    let path = team.path("pods/applied?fieldManager=owner");
    for code in [201, 200] {
        let answer = call(&team.client, Method::PATCH, &path, APPLY, &pod("applied")).await.unwrap();
        assert_gated(&answer, &admin);
        assert_eq!(answer.code, code);
    }
    assert_gated(&team.tries(&pod("dry")).await, &admin);
    assert!(team.pods.get_opt("dry").await.unwrap().is_none());
}

/// The API server's strategic merge and the policy's apply treat lists in different ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_else_of_a_pod_changes() {
    let bed = asleep().await;
    let (team, free) = (Team::on(bed, "same").await, Team::with(bed, "same-free", &[]).await);
    let mut rich = pod("rich");
    let spec = &mut rich["spec"];
    spec["containers"][0]["env"] = json!([{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }]);
    spec["containers"][0]["ports"] =
        json!([{ "containerPort": 53, "protocol": "UDP" }, { "containerPort": 53, "protocol": "TCP" }]);
    spec["imagePullSecrets"] = json!([{ "name": "a" }, { "name": "b" }]);
    spec["hostAliases"] =
        json!([{ "ip": "10.0.0.1", "hostnames": ["a"] }, { "ip": "10.0.0.1", "hostnames": ["b"] }]);
    let strip = |answer: &sluice_e2e::call::Response| {
        assert!(answer.is_ok(), "{answer:?}");
        let mut spec = answer.body["spec"].clone();
        spec.as_object_mut().unwrap().remove("schedulingGates");
        // The service account's volume has a generated name.
        spec.as_object_mut().unwrap().remove("volumes");
        spec["containers"][0].as_object_mut().unwrap().remove("volumeMounts");
        spec
    };
    assert_eq!(strip(&team.create(&rich).await), strip(&free.create(&rich).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_name_is_refused_in_our_words_and_a_mirror_pod_is_not() {
    let bed = asleep().await;
    let team = Team::on(bed, "bound").await;
    let nodes: Api<Node> = Api::all(team.client.clone());
    let node: Node = objects::from_json(json!({ "metadata": { "name": "static-node" } }));
    let node = nodes.create(&PostParams::default(), &node).await.unwrap();
    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = json!("static-node");
    let words = [names::GATED_POLICY, "spec.nodeName to \"static-node\"", names::GATE, "spec.nodeSelector"];
    assert_refused(&team.create(&bound).await, &words);
    // With the gate core would answer first.
    assert!(!team.create(&with_gates(bound.clone(), &[names::GATE])).await.is_ok());

    let mut mirror = bound.clone();
    mirror["metadata"]["name"] = json!("mirror");
    mirror["metadata"]["annotations"] = json!({ names::MIRROR_ANNOTATION: "x" });
    mirror["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid(), "controller": true,
    }]);
    assert_refused(&team.create(&mirror).await, &words);
    let user = |name: &str, group: &str| bed.client_as_user(name, &[group]).unwrap().client().unwrap();
    let impostor = user("system:node:static-node", "system:masters");
    assert_refused(&team.create_by(&impostor, &mirror).await, &words);
    let kubelet = user("system:node:static-node", names::NODES_GROUP);
    let created = team.create_by(&kubelet, &mirror).await;
    assert!(created.is_ok() && gates(&created.body).is_empty(), "{created:?}");

    let free = Team::with(bed, "bound-free", &[]).await;
    assert!(free.create(&bound).await.is_ok(), "not our business where pods are not gated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_are_bounded() {
    let team = Team::on(asleep().await, "many").await;
    let many: Vec<String> = (0..names::MOST_ITEMS).map(|n| format!("example.com/g{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let fits = team.create(&with_gates(pod("fits"), &many[1..])).await;
    assert_eq!(gates(&fits.body).len(), names::MOST_ITEMS, "{fits:?}");
    assert_refused(
        &team.create(&with_gates(pod("more"), &many)).await,
        &[names::GATED_POLICY, "more than 64 items"],
    );
}

/// The guard holds without us, too, and so does core's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gated_pod_is_neither_released_nor_bound_by_others() {
    let bed = asleep().await;
    let team = Team::on(bed, "guarded").await;
    assert!(team.create(&with_gates(pod("p"), &["example.com/other"])).await.is_ok());
    let tenant = bed.tenant(&team.namespace).await.unwrap().client().unwrap();
    let remove =
        |name: &str| json!({ "spec": { "schedulingGates": [{ "$patch": "delete", "name": name }] } });
    for client in [&team.client, &tenant] {
        let answer =
            call(client, Method::PATCH, &team.path("pods/p"), STRATEGIC, &remove(names::GATE)).await.unwrap();
        assert_refused(&answer, &[names::GUARD_POLICY, "Only AAQ controller has permission to remove"]);
    }
    let answer = call(&tenant, Method::PATCH, &team.path("pods/p"), STRATEGIC, &remove("example.com/other"))
        .await
        .unwrap();
    assert_eq!(gates(&answer.body), [names::GATE], "foreign gates are not ours: {answer:?}");
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p" },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "n" },
    });
    for path in ["pods/p/binding", "bindings"] {
        let refused = sluice_e2e::call::post(&team.client, &team.path(path), &binding).await.unwrap();
        assert_eq!(refused.code, 409, "{path}: {refused:?}");
        assert!(refused.message().contains("schedulingGates"), "{refused:?}");
    }
}

/// While everything is stopped pods are created; they go when it is back, and releases need no webhook.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_goes_when_the_controller_is_back_without_any_webhook() {
    let bed = idle_bed().await;
    let world = Running::on(&bed, Setup::default()).await.unwrap();
    world.kill_all().await.unwrap();
    let team = Team::on(&bed, "waits").await;
    let admin = ADMIN(&bed);
    for n in 0..20 {
        assert_gated(&team.create(&pod(&format!("p{n}"))).await, &admin);
    }
    let _controller = world.installation.controller().await.unwrap();
    team.until_all_released(20).await;
    assert_gated(&team.create(&pod("later")).await, &admin);
    team.until_all_released(21).await;
}

/// An API server that starts applies its policies from its first answer on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_api_server_lets_no_pod_in_without_a_gate() {
    let bed = idle_bed().await;
    let world = Running::on(&bed, Setup::default()).await.unwrap();
    world.kill_all().await.unwrap();
    let team = Team::on(&bed, "killed").await;
    let (created, free, stop) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let creators: Vec<_> = (0..5)
        .map(|_| {
            let (created, free, stop) = (Arc::clone(&created), Arc::clone(&free), Arc::clone(&stop));
            let pods = Api::namespaced(bed.admin().unwrap(), &team.namespace.name);
            let mut pod = objects::pod("", &[]);
            (pod.metadata.name, pod.metadata.generate_name) = (None, Some("p-".to_owned()));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    match pods.create(&PostParams::default(), &pod).await {
                        Ok(pod) => {
                            created.fetch_add(1, Ordering::SeqCst);
                            free.fetch_add(usize::from(!is_held(&pod)), Ordering::SeqCst);
                        }
                        Err(kube::Error::Api(status)) if status.message.contains("sluice") => {
                            panic!("{status:?}")
                        }
                        // It is gone for the moment.
                        Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                    }
                }
            })
        })
        .collect();
    for _ in 0..3 {
        let before = created.load(Ordering::SeqCst);
        let some = || async { (created.load(Ordering::SeqCst) > before + 100).then_some(()) };
        wait::eventually(SOON, some, "pods to be created").await.unwrap();
        bed.restart_api_server().await.unwrap();
    }
    let before = created.load(Ordering::SeqCst);
    let some = || async { (created.load(Ordering::SeqCst) > before + 100).then_some(()) };
    wait::eventually(SOON, some, "pods to be created after the last kill").await.unwrap();
    stop.store(true, Ordering::SeqCst);
    for creator in creators {
        creator.await.unwrap();
    }
    assert_eq!(free.load(Ordering::SeqCst), 0);
    let all = team.pods.list(&ListParams::default()).await.unwrap().items;
    assert!(all.len() >= created.load(Ordering::SeqCst));
    assert_eq!(all.iter().filter(|pod| !is_held(pod)).count(), 0, "also of those whose answer was lost");
    let unstamped = all.iter().filter(|pod| !pod.annotations().contains_key(names::CREATED_BY_ANNOTATION));
    assert_eq!(unstamped.count(), 0);
    println!("{} pods around three kills of the API server, none without a gate", all.len());
    team.pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
}

/// Our own namespace never waits for us, whatever its labels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_own_namespace_is_not_gated() {
    let bed = asleep().await;
    let mut team = Team::with(bed, "other", &[]).await;
    team.namespace.name = names::INSTALL_NAMESPACE.to_owned();
    team.label(json!({ names::TARGET_LABEL: "true" })).await;
    let mut own = pod("own");
    own["spec"]["securityContext"] =
        json!({ "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } });
    own["spec"]["containers"][0]["securityContext"] =
        json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let answer = team.tries(&own).await;
    assert!(answer.is_ok() && gates(&answer.body).is_empty() && stamp(&answer.body).is_none(), "{answer:?}");
    team.label(json!({ names::TARGET_LABEL: null })).await;
}
