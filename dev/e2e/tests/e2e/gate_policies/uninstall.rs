//! Sluice is removed as the README says, while pods wait and pods are created.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use sluice_api::names;
use sluice_e2e::call::{get, post};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, gates, idle_bed};
use crate::gate_policies::world::{pod, policy_path};
use crate::team::Team;

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/install.yaml");
const GATE_NOTHING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/uninstall/gate-nothing.yaml");

const KINDS: [&str; 6] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_released_and_nothing_is_refused_meanwhile_or_left_behind() {
    let bed = idle_bed().await;
    let _world = Running::on(&bed, Setup::default()).await.unwrap();
    let team = Team::on(&bed, "leaving").await;
    let quota = serde_json::json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota",
        "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } },
    });
    let arqs = format!("/apis/{}/namespaces/{}/{}", names::API_VERSION, team.namespace, names::ARQS);
    assert!(post(&team.client, &arqs, &quota).await.unwrap().is_ok());
    for n in 0..3 {
        assert_eq!(gates(&team.create(&pod(&format!("waits-{n}"))).await.body), [names::GATE]);
    }
    kubectl(&bed, &["apply", "--filename", GATE_NOTHING]).await;
    team.until_all_released(3).await;
    let ungated = || async {
        let answer = team.tries(&pod("probe")).await;
        (answer.is_ok() && gates(&answer.body).is_empty()).then_some(())
    };
    wait::eventually(SOON, ungated, "nothing to be gated any more").await.unwrap();

    // As a version left them that did not own them.
    for kind in KINDS {
        let list = get(&team.client, policy_path(kind, "").trim_end_matches('/')).await.unwrap();
        for object in list.body["items"].as_array().unwrap() {
            let name = object["metadata"]["name"].as_str().unwrap();
            let patch = r#"{"metadata":{"ownerReferences":null}}"#;
            kubectl(&bed, &["patch", kind, name, "--type=merge", "--patch", patch]).await;
        }
    }
    let owned = || async {
        for kind in KINDS {
            let list = get(&team.client, policy_path(kind, "").trim_end_matches('/')).await.ok()?;
            let mut objects = list.body["items"].as_array()?.iter();
            objects
                .all(|object| object["metadata"]["ownerReferences"][0]["name"] == names::OPERATOR)
                .then_some(())?;
        }
        Some(())
    };
    wait::eventually(SOON, owned, "what gates to belong to the operator's role").await.unwrap();

    let over = AtomicBool::new(false);
    let creating = async {
        let mut count = 0;
        while !over.load(SeqCst) {
            let answer = team.create(&pod(&format!("p-{count}"))).await;
            assert!(answer.is_ok() && gates(&answer.body).is_empty(), "{count}: {answer:?}");
            count += 1;
        }
        count
    };
    let removing = async {
        // The Deployments are processes here, which go on: the operator must not put back what it sees vanish.
        kubectl(&bed, &["delete", "--wait=false", "--ignore-not-found", "--filename", MANIFEST]).await;
        over.store(true, SeqCst);
    };
    let (created, ()) = tokio::join!(creating, removing);
    assert!(created > 0);
    // The garbage collector takes what belongs to the operator's role.
    let gone = || async {
        for kind in KINDS {
            let list = get(&team.client, policy_path(kind, "").trim_end_matches('/')).await.ok()?;
            list.body["items"].as_array().filter(|items| items.is_empty())?;
        }
        Some(())
    };
    wait::eventually(SOON, gone, "what gates to be gone").await.unwrap();
    // Longer than the operator takes to see that something is gone, and to put it back.
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        for kind in KINDS {
            let list = get(&team.client, policy_path(kind, "").trim_end_matches('/')).await.unwrap();
            assert_eq!(list.body["items"].as_array().map(Vec::len), Some(0), "{kind}: {list:?}");
        }
    }
}

async fn kubectl(bed: &Bed, arguments: &[&str]) {
    let output = bed.kubectl(arguments).await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
