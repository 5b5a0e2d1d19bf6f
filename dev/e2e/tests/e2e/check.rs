//! `sluice check` on a real control plane: each fault is made alone, is found under its name and no other, and is gone once
//! it is undone. Programs run beside the control plane; simulated nodes run the pods of their Deployments.

mod faults;
mod scene;

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use sluice_testbed::{Bed, BedOptions, wait};

use crate::context::idle_bed;
use crate::why::said;
use scene::Scene;

/// A condition is told anew within half a minute, and a lease that nobody renews is found after as long.
const FOUND: Duration = Duration::from_secs(150);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_found_alone_with_a_remedy_and_a_page() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let mut scene = Scene::on(&bed).await;
    let good = async |scene: &Scene<'_>, after: &str| {
        let nothing = || async { scene.check().await.is_good().then_some(()) };
        if let Err(error) = wait::eventually(FOUND, nothing, "nothing to be found").await {
            panic!("{after}: {error}: {}", scene.check().await.text);
        }
    };
    good(&scene, "at first").await;
    eprintln!("{}", scene.table().await);
    let mut best = Duration::MAX;
    for _ in 0..3 {
        best = best.min(scene.check().await.took);
    }
    eprintln!("nothing is wrong: said in {best:?}");
    assert!(best <= Duration::from_secs(5), "{best:?}");

    let faults = faults::all(&scene).await;
    assert!(faults.len() >= 20, "{}", faults.len());
    for fault in faults {
        let undo = scene.make(&fault).await;
        let alone = || async {
            let said = scene.check().await;
            let is_alone = said.found == [(fault.state.to_owned(), fault.name.to_owned())];
            (is_alone && said.words.contains(fault.words)).then_some(said)
        };
        let found = wait::eventually(FOUND, alone, fault.what).await;
        let found = match found {
            Ok(found) => found,
            Err(error) => panic!("{error}: {}", scene.check().await.text),
        };
        let code = if fault.state == "failed" { 3 } else { 0 };
        assert_eq!(found.code, code, "{}: {}", fault.what, found.text);
        assert!(!found.text.contains("/explain"), "the path of the webhook: {}", found.text);
        for remedy in &found.remedies {
            assert!(!remedy.is_empty(), "{}: {}", fault.what, found.text);
        }
        eprintln!("{:<44} {} {}: {}", fault.what, fault.state, fault.name, found.words);
        scene.undo(undo).await;
        good(&scene, fault.what).await;
    }
}

/// The controller of application-aware-quota, which gates the same pods.
const OTHER: &str = "aaq-controller";

/// The command on a cluster without an installation: each check, and its state.
async fn before(bed: &Bed, arguments: &[&str], code: i32) -> Vec<(String, String)> {
    let (text, _) = said(bed, code, &[&["check", "--pre", "-o", "json"], arguments].concat()).await;
    let value: Value = serde_json::from_str(&text).unwrap();
    let word = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
    for item in value["items"].as_array().unwrap().iter().filter(|item| item["state"] == "failed") {
        assert!(word(item, "found").contains(OTHER), "{item:#}");
        assert!(!word(item, "hint").is_empty() && !word(item, "page").is_empty(), "{item:#}");
    }
    value["items"].as_array().unwrap().iter().map(|it| (word(it, "name"), word(it, "state"))).collect()
}

async fn deploy_other(bed: &Bed) -> Api<Deployment> {
    let labels = json!({ "app": OTHER });
    let container = json!({ "name": "main", "image": "none" });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": OTHER, "namespace": "aaq" },
        "spec": {
            "replicas": 0, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "aaq" } });
    bed.apply_objects([namespace]).await.unwrap();
    bed.apply_objects([deployment]).await.unwrap();
    Api::namespaced(bed.admin().unwrap(), "aaq")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_pre_says_whether_a_cluster_can_have_an_installation() {
    let bed = idle_bed().await;
    let good = before(&bed, &[], 0).await;
    assert!(!good.is_empty() && good.iter().all(|(_, state)| state == "good"), "{good:?}");
    // The same cluster has no installation.
    said(&bed, 3, &["check"]).await;
    let deployments = deploy_other(&bed).await;
    let found = before(&bed, &[], 3).await;
    assert_eq!(found.iter().filter(|(_, state)| state == "failed").count(), 1, "{found:?}");
    deployments.delete(OTHER, &DeleteParams::default()).await.unwrap();
    let gone = || async { deployments.get_opt(OTHER).await.ok()?.is_none().then_some(()) };
    wait::eventually(FOUND, gone, "the Deployment to be gone").await.unwrap();
    assert_eq!(before(&bed, &[], 0).await, good);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_wait_ends_when_nothing_fails_and_after_its_time() {
    let bed = idle_bed().await;
    let deployments = deploy_other(&bed).await;
    let begun = Instant::now();
    let found = before(&bed, &["--wait", "3s"], 3).await;
    assert!(begun.elapsed() >= Duration::from_secs(3), "{found:?} after {:?}", begun.elapsed());
    let begun = Instant::now();
    let undone = async {
        // It finds the fault as this does, which began later and looks once.
        before(&bed, &[], 3).await;
        deployments.delete(OTHER, &DeleteParams::default()).await.unwrap();
    };
    let (found, ()) = tokio::join!(before(&bed, &["--wait", "50s"], 0), undone);
    assert!(found.iter().all(|(_, state)| state == "good"), "{found:?}");
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    // What is good already is not waited for.
    before(&bed, &["--wait", "50s"], 0).await;
}
