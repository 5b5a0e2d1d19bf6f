//! Pods of CDI that name their node: let in without a gate, with the stamp of their creator, by an account of CDI alone.

use kube::Client;
use serde_json::{Value, json};
use sluice_api::{WebhookEntry, names};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, gates, idle_bed};
use crate::gate_policies::world::{asleep, delete_last_word};
use crate::pods::{assert_gated, assert_refused, pod, stamp, with_gates, with_stamp};
use crate::team::Team;

const CDI: &str = "system:serviceaccount:cdi:cdi-sa";

fn bound(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = json!("selected");
    pod
}

fn cdi(bed: &Bed) -> Client {
    bed.client_as_user(CDI, &["system:masters"]).unwrap().client().unwrap()
}

/// CDI's pods come in stamped, gated where they can be, and those of others as ever.
async fn assert_cdis_alone(bed: &Bed, team: &Team, refusing: &str) {
    let cdi = cdi(bed);
    for (name, pod) in [
        ("importer", bound("importer")),
        ("from-backup", with_stamp(bound("from-backup"), "another")),
        ("stamped", with_stamp(bound("stamped"), CDI)),
    ] {
        let answer = team.create_by(&cdi, &pod).await;
        assert!(answer.is_ok(), "{name}: {answer:?}");
        assert!(gates(&answer.body).is_empty(), "{name}: {answer:?}");
        assert_eq!(stamp(&answer.body), Some(CDI), "{name}: {answer:?}");
        assert_eq!(answer.body["spec"]["nodeName"], "selected", "{name}");
    }
    assert_gated(&team.create_by(&cdi, &pod("unbound")).await, CDI);
    // The API server accepts no such pod with gates, from any account.
    assert_eq!(team.create_by(&cdi, &with_gates(bound("gated"), &["a.example/y"])).await.code, 422);

    let tenant = bed.tenant(&team.namespace).await.unwrap().client().unwrap();
    let impostor = bed.client_as_user("system:serviceaccount:cdi:cdi", &["system:masters"]).unwrap();
    let words = [refusing, "spec.nodeName to \"selected\""];
    for client in [&tenant, &team.client, &impostor.client().unwrap()] {
        assert_refused(&team.create_by(client, &bound("p")).await, &words);
        // Where no policy corrects the stamp, that is what is refused.
        assert_refused(&team.create_by(client, &with_stamp(bound("p"), CDI)).await, &[]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cdis_pods_may_name_their_node_and_no_others_may() {
    let bed = asleep().await;
    assert_cdis_alone(bed, &Team::on(bed, "cdi").await, names::GATED_POLICY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_they_may_where_the_webhook_alone_gates() {
    let bed = idle_bed().await;
    let world = Running::on(&bed, Setup { webhook_alone: true, ..Setup::default() }).await.unwrap();
    assert_cdis_alone(&bed, &Team::on(&bed, "cdi").await, names::GATED_POLICY).await;
    // Nor does the webhook let others in, should the policy that refuses them be gone.
    world.end_operator().await.unwrap();
    delete_last_word(&bed.admin().unwrap()).await;
    let team = Team::on(&bed, "cdi").await;
    let by_webhook = || async {
        Some(team.tries(&bound("p")).await)
            .filter(|answer| answer.message().contains(WebhookEntry::BOUND.name))
    };
    wait::eventually(SOON, by_webhook, "the webhook to refuse it").await.unwrap();
    assert_cdis_alone(&bed, &team, WebhookEntry::BOUND.name).await;
}
