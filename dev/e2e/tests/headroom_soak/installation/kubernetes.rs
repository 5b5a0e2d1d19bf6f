//! Kubernetes is upgraded under a running Sluice, one API server after the other, from a version at which the webhook alone
//! gates to one that gates by policy. Pods are created through the API server that stays.

use std::time::Duration;

use sluice_e2e::objects::TARGETED;
use sluice_e2e::traffic::{Load, Traffic};
use sluice_e2e::{Installation, Setup};
use sluice_manifests::Gating;
use sluice_testbed::{Bed, BedOptions, Component};

const OLD: &str = "1.35";
const NEW: &str = "1.36";
/// The operator asks every 30 s, and twice.
const SEEN: Duration = Duration::from_secs(150);
/// An API server that restarts takes longer than a short lease lives.
const LEASE: [&str; 2] = ["--lease-duration=40s", "--lease-renew-deadline=35s"];
const LOAD: Load = Load { every: Duration::from_millis(100), limit: 40, life: Duration::from_secs(1) };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_of_gating_changes_without_a_gap() {
    let options = BedOptions {
        kwok: false,
        scheduler: false,
        second_api_server: true,
        kubernetes: Some(OLD.to_owned()),
        ..BedOptions::default()
    };
    let bed = Bed::start(options).await.unwrap();
    let both = [bed.server_url(), bed.second_server_url()].map(|url| format!("--api-server={url}"));
    let lease = LEASE.map(str::to_owned);
    let controller_args = [&both[..], &lease[..]].concat();
    let setup = Setup { controller_args, operator_args: lease.to_vec(), ..Setup::default() };
    let mut installation = Installation::apply(&bed, setup).await.unwrap();
    let controller = installation.controller().await.unwrap();
    let webhook = installation.webhook().await.unwrap();
    let second = bed.at_second_server(bed.admin_identity()).unwrap();
    installation.until_gating().await.unwrap();
    installation.until_gated_by(&second.client().unwrap(), Gating::Webhook).await.unwrap();

    let namespace = bed.namespace("second", TARGETED).await.unwrap();
    let traffic = Traffic::start(&second, &namespace.name, LOAD).await;
    bed.upgrade(Component::ApiServer, NEW).await.unwrap();
    let first = bed.admin().unwrap();
    installation.until_gated_by(&first, Gating::Webhook).await.unwrap();
    let ended = installation.operator().unwrap().wait();
    let ended = tokio::time::timeout(SEEN, ended).await.expect("the operator to see the version");
    assert_eq!(ended.code, 0, "it ends by itself, and in order");
    // As its kubelet does.
    installation.start_operator().await.unwrap();
    installation.until_gated_by(&first, Gating::Policy).await.unwrap();
    let through_second = traffic.end().await;

    let namespace = bed.namespace("first", TARGETED).await.unwrap();
    let traffic = Traffic::start(bed.admin_identity(), &namespace.name, LOAD).await;
    bed.upgrade(Component::SecondApiServer, NEW).await.unwrap();
    installation.until_gated_by(&second.client().unwrap(), Gating::Policy).await.unwrap();
    let through_first = traffic.end().await;

    for (server, outcome) in [("second", through_second), ("first", through_first)] {
        println!(
            "through the {server} API server: {} pods, longest pause {:?}",
            outcome.created, outcome.pause
        );
        outcome.assert_right(LOAD);
    }
    assert!(controller.program.is_running() && webhook.program.is_running());
}
