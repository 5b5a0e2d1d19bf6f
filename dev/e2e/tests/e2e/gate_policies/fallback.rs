//! Policies that are gone: the webhook gates; the webhook gone too: nothing comes in ungated, and it is said.

use sluice_api::{WebhookEntry, names};
use sluice_e2e::{Running, Setup};
use sluice_manifests::Gating;
use sluice_testbed::wait;

use crate::context::{SOON, gates, idle_bed};
use crate::gate_policies::seen::Report;
use crate::gate_policies::world::{delete, delete_gate_policy, delete_last_word, policy_path};
use crate::pods::{assert_gated, assert_refused, pod, with_stamp};
use crate::team::Team;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhook_gates_what_no_policy_has_gated_until_the_policy_is_back() {
    let bed = idle_bed().await;
    let mut world = Running::on(&bed, Setup::default()).await.unwrap();
    let (client, admin) = (bed.admin().unwrap(), bed.admin_identity().user().to_owned());
    let team = Team::on(&bed, "fallback").await;
    world.end_operator().await.unwrap();
    delete_gate_policy(&client).await;
    world.installation.until_gated_by(&client, Gating::Webhook).await.unwrap();
    assert_gated(&team.create(&with_stamp(pod("by-webhook"), "forged")).await, &admin);
    // And without the webhook nothing comes in.
    world.webhook.program.kill();
    world.webhook.program.wait().await;
    let refused = team.create(&pod("refused")).await;
    assert_eq!(refused.code, 500, "{refused:?}");
    assert!(refused.message().contains(WebhookEntry::GATER.name), "{refused:?}");
    world.installation.start_operator().await.unwrap();
    world.installation.until_gated_by(&client, Gating::Policy).await.unwrap();
    assert_gated(&team.create(&pod("by-policy")).await, &admin);
    team.until_all_released(2).await;
}

/// Each of the two that gate is deleted, then what has the last word, and no operator puts it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_gone_is_said_and_what_has_the_last_word_refuses() {
    let bed = idle_bed().await;
    let world = Running::on(&bed, Setup::default()).await.unwrap();
    world.end_operator().await.unwrap();
    let (client, team) = (bed.admin().unwrap(), Team::on(&bed, "gone").await);
    let controller = &world.controller;
    Report::until(controller, "policy", "policy").await;

    delete_gate_policy(&client).await;
    let report = Report::until(controller, "webhook", "policy").await;
    assert!(report.ready.contains("sluice-gate is not in force"), "{}", report.ready);

    delete(&client, &policy_path("mutatingwebhookconfigurations", names::MUTATING_CONFIG)).await;
    let refused = || async { Some(team.tries(&pod("p")).await).filter(|answer| !answer.is_ok()) };
    let refused = wait::eventually(SOON, refused, "an ungated pod to be refused").await.unwrap();
    assert_refused(
        &refused,
        &[names::GATED_POLICY, "neither the admission policy sluice-gate nor the webhook"],
    );
    Report::until(controller, "refused", "policy").await;
    Report::until_event(&bed, "PodsRefused").await;

    delete_last_word(&client).await;
    let report = Report::until(controller, "nothing", "webhook").await;
    assert!(report.log.contains("PodsNotGated"), "{}", report.log);
    Report::until_event(&bed, "PodsNotGated").await;
    let let_in = team.tries(&pod("p")).await;
    assert!(let_in.is_ok() && gates(&let_in.body).is_empty(), "this is what was said: {let_in:?}");
}

/// As before Kubernetes 1.36.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhook_alone_gates_where_it_is_told_to() {
    let bed = idle_bed().await;
    let world = Running::on(&bed, Setup { webhook_alone: true, ..Setup::default() }).await.unwrap();
    let team = Team::on(&bed, "alone").await;
    let answer = team.create(&with_stamp(pod("p"), "forged")).await;
    assert_gated(&answer, bed.admin_identity().user());
    team.until_all_released(1).await;
    let report = Report::until(&world.controller, "webhook", "policy").await;
    assert!(!report.ready.contains("not in force"), "as it should be: {}", report.ready);
    let policies = policy_path("mutatingadmissionpolicies", "");
    let list = sluice_e2e::call::get(&bed.admin().unwrap(), policies.trim_end_matches('/')).await.unwrap();
    assert_eq!(list.body["items"].as_array().map(Vec::len), Some(0), "{list:?}");
    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = serde_json::json!("n");
    assert_refused(&team.create(&bound).await, &["spec.nodeName to \"n\"", names::GATED_POLICY]);
    // Nor without that policy.
    world.end_operator().await.unwrap();
    delete_last_word(&bed.admin().unwrap()).await;
    let by_webhook = || async {
        Some(team.tries(&bound).await).filter(|answer| answer.message().contains(WebhookEntry::BOUND.name))
    };
    let refused = wait::eventually(SOON, by_webhook, "the webhook to refuse it").await.unwrap();
    assert_refused(&refused, &["spec.nodeName to \"n\""]);
}
