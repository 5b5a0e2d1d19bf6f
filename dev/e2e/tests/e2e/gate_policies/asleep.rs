//! Every process of Sluice is gone: pods are created, gated, and wait; nothing is refused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_api::names;
use sluice_e2e::call::{APPLY, call};
use sluice_e2e::objects::{self, is_held};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, gates, idle_bed};
use crate::gate_policies::world::asleep;
use crate::pods::{assert_gated, pod, stamp, with_gates, with_stamp};
use crate::team::Team;

const ADMIN: fn(&Bed) -> String = |bed| bed.admin_identity().user().to_owned();

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
