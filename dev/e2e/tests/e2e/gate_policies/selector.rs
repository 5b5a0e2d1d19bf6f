//! Which namespaces are gated changes while the webhook is dead: the policies follow.

use http::Method;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON_PATCH, MERGE, call};
use sluice_e2e::{Running, Setup};
use sluice_testbed::wait;

use crate::context::{SOON, gates, idle_bed};
use crate::pods::pod;
use crate::team::Team;

/// Waits until new pods of the namespace are let in with a gate, or without.
async fn until(team: &Team, gated: bool) {
    let as_wanted = || async {
        let answer = team.tries(&pod("probe")).await;
        (answer.is_ok() && gates(&answer.body).contains(&names::GATE) == gated).then_some(())
    };
    let what = format!("pods of {} to be gated: {gated}", team.namespace);
    wait::eventually(SOON, as_wanted, &what).await.unwrap();
}

/// Writes the `AAQ`: with a webhook that judges it and is dead before anything is looked at.
async fn write_aaq(world: &Running<'_>, method: Method, path: &str, content_type: &str, body: &Value) {
    let webhook = world.installation.webhook().await.unwrap();
    let client = world.bed.admin().unwrap();
    let written = || async {
        let answer = call(&client, method.clone(), path, content_type, body).await.ok()?;
        answer.is_ok().then_some(())
    };
    wait::eventually(SOON, written, "the AAQ to be written").await.unwrap();
    webhook.program.kill();
    webhook.program.wait().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_follow_labels_and_the_selector_of_the_aaq() {
    let bed = idle_bed().await;
    let world = Running::on(&bed, Setup::default()).await.unwrap();
    world.webhook.program.kill();
    world.webhook.program.wait().await;
    let (labelled, other) =
        (Team::on(&bed, "labelled").await, Team::with(&bed, "other", &[("team", "")]).await);
    until(&labelled, true).await;
    until(&other, false).await;

    labelled.label(json!({ names::TARGET_LABEL: null })).await;
    until(&labelled, false).await;
    labelled.label(json!({ names::TARGET_LABEL: "" })).await;
    until(&labelled, true).await;

    let one = "/apis/aaq.kubevirt.io/v1alpha1/aaqs/aaq".to_owned();
    let selecting = |selector: Value| {
        json!({
            "apiVersion": names::API_VERSION, "kind": "AAQ", "metadata": { "name": "aaq" },
            "spec": { "namespaceSelector": selector },
        })
    };
    // The operator has made one already.
    write_aaq(&world, Method::PATCH, &one, MERGE, &selecting(json!({ "matchLabels": { "team": "" } }))).await;
    until(&other, true).await;
    until(&labelled, false).await;
    let select = |selector: Value| {
        let patch = json!([{ "op": "replace", "path": "/spec/namespaceSelector", "value": selector }]);
        let (world, one) = (&world, &one);
        async move { write_aaq(world, Method::PATCH, one, JSON_PATCH, &patch).await }
    };
    // A label without a value is not nothing: everything is something else.
    select(json!({})).await;
    until(&labelled, true).await;
    until(&other, true).await;
    // But for what a cluster needs to run pods at all.
    let answer = sluice_e2e::call::post(
        &bed.admin().unwrap(),
        "/api/v1/namespaces/kube-system/pods?dryRun=All",
        &pod("p"),
    )
    .await
    .unwrap();
    assert!(answer.is_ok() && gates(&answer.body).is_empty(), "{answer:?}");
    select(json!({ "matchLabels": { "team": "none" } })).await;
    until(&labelled, false).await;
    until(&other, false).await;
    // What judges selectors is not needed for anything else of the object.
    let label = json!([{ "op": "add", "path": "/metadata/labels", "value": { "a": "b" } }]);
    let answer = call(&bed.admin().unwrap(), Method::PATCH, &one, JSON_PATCH, &label).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
}
