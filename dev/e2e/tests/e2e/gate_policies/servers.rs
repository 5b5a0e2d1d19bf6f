//! A second API server that lists the mutating policies and applies none: the webhook gates there.

use rstest::rstest;
use sluice_api::WebhookEntry;
use sluice_e2e::call::post;
use sluice_e2e::metrics::Samples;
use sluice_e2e::{Installation, Setup};
use sluice_manifests::Gating;
use sluice_testbed::{Bed, BedOptions, wait};

use crate::context::SOON;
use crate::pods::{assert_gated, pod};
use crate::team::Team;

#[rstest]
#[case::emulates_an_older_one("--emulated-version=1.35")]
#[case::has_the_plugin_disabled("--disable-admission-plugins=MutatingAdmissionPolicy")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_come_through_it_are_gated_by_the_webhook(#[case] flag: &str) {
    let options = BedOptions {
        kwok: false,
        scheduler: false,
        second_api_server: true,
        second_api_server_args: vec![flag.to_owned()],
        ..BedOptions::default()
    };
    let bed = Bed::start(options).await.unwrap();
    let both = [bed.server_url(), bed.second_server_url()].map(|url| format!("--api-server={url}"));
    let setup = Setup { controller_args: both.to_vec(), ..Setup::default() };
    let installation = Installation::apply(&bed, setup).await.unwrap();
    let controller = installation.controller().await.unwrap();
    let webhook = installation.webhook().await.unwrap();
    let second = bed.at_second_server(bed.admin_identity()).unwrap().client().unwrap();
    installation.until_gated_by(&bed.admin().unwrap(), Gating::Policy).await.unwrap();
    installation.until_gated_by(&second, Gating::Webhook).await.unwrap();
    let said = || async {
        let samples = Samples::of(&controller.admin).await.ok()?;
        let count = |by| samples.sum("sluice_gate_api_servers", &[("by", by)]);
        ["policy", "webhook"].into_iter().all(|by| count(by) == Some(1.0)).then_some(())
    };
    wait::eventually(SOON, said, "the controller to tell the two apart").await.unwrap();

    let team = Team::on(&bed, "second").await;
    let admin = bed.admin_identity().user();
    let through = |name: &str| {
        let (pod, path, second) = (pod(name), team.path("pods"), second.clone());
        async move { post(&second, &path, &pod).await.unwrap() }
    };
    // It learns of the namespace by watch.
    let gated = || async { Some(through("gated").await).filter(sluice_e2e::call::Response::is_ok) };
    assert_gated(&wait::eventually(SOON, gated, "a pod through the second API server").await.unwrap(), admin);
    team.until_all_released(1).await;
    webhook.program.kill();
    webhook.program.wait().await;
    let refused = through("refused").await;
    assert!(refused.code == 500 && refused.message().contains(WebhookEntry::GATER.name), "{refused:?}");
    assert_gated(&team.create(&pod("by-the-first")).await, admin);
}
