//! Which namespaces are gated changes while the webhook is dead: the policies follow.

use http::Method;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::Setup;
use sluice_e2e::call::{JSON_PATCH, call, post};
use sluice_testbed::wait;

use crate::world::{SOON, Team, World, bed, gates, pod};

/// Waits until new pods of the namespace are let in with a gate, or without.
async fn until(team: &Team, gated: bool) {
    let as_wanted = || async {
        let answer = team.tries(&pod("probe")).await;
        (answer.is_ok() && gates(&answer.body).contains(&names::GATE) == gated).then_some(())
    };
    let what = format!("pods of {} to be gated: {gated}", team.namespace);
    wait::eventually(SOON, as_wanted, &what).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_follow_labels_and_the_selector_of_the_aaq() {
    let bed = bed().await;
    let world = World::on(&bed, Setup::default()).await;
    world.webhook.program.kill();
    world.webhook.program.wait().await;
    let (labelled, other) =
        (Team::targeted(&bed, "labelled").await, Team::with(&bed, "other", &[("team", "")]).await);
    until(&labelled, true).await;
    until(&other, false).await;

    labelled.label(json!({ names::TARGET_LABEL: null })).await;
    until(&labelled, false).await;
    labelled.label(json!({ names::TARGET_LABEL: "" })).await;
    until(&labelled, true).await;

    let aaq = |spec: Value| json!({ "apiVersion": names::API_VERSION, "kind": "AAQ", "metadata": { "name": "aaq" }, "spec": spec });
    let path = "/apis/aaq.kubevirt.io/v1alpha1/aaqs";
    let client = bed.admin().unwrap();
    // Validated by a webhook; the controller itself does not need it.
    let second = world.installation.webhook().await.unwrap();
    let selector = json!({ "matchLabels": { "team": "" } });
    let created = || async {
        let answer = post(&client, path, &aaq(json!({ "namespaceSelector": selector }))).await.ok()?;
        answer.is_ok().then_some(())
    };
    wait::eventually(SOON, created, "the AAQ to be created").await.unwrap();
    second.program.kill();
    second.program.wait().await;
    until(&other, true).await;
    until(&labelled, false).await;
    // A label without a value is not nothing: everything is something else.
    let patch = json!([{ "op": "replace", "path": "/spec/namespaceSelector", "value": {} }]);
    let answer = call(&client, Method::PATCH, &format!("{path}/aaq"), JSON_PATCH, &patch).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    until(&labelled, true).await;
    until(&other, true).await;
    // But for what a cluster needs to run pods at all.
    let answer = post(&client, "/api/v1/namespaces/kube-system/pods?dryRun=All", &pod("p")).await.unwrap();
    assert!(answer.is_ok() && gates(&answer.body).is_empty(), "{answer:?}");
    let narrow = json!([{ "op": "replace", "path": "/spec/namespaceSelector", "value": { "matchLabels": { "team": "none" } } }]);
    let answer = call(&client, Method::PATCH, &format!("{path}/aaq"), JSON_PATCH, &narrow).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    until(&labelled, false).await;
    until(&other, false).await;
}
