//! A cluster of IPv6 alone: API server, webhook and the leader that is asked about growth are reached at `[::1]`.

use std::net::{Ipv6Addr, TcpListener};

use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_e2e::{Running, Setup};
use sluice_testbed::Bed;

use crate::context::idle_options;
use crate::team::Team;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_gets_ready_and_works_where_there_is_no_ipv4() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        // As in a container whose host has turned it off.
        return println!("not run: this machine has no IPv6");
    }
    let mut options = idle_options();
    options.ipv6 = true;
    let bed = Bed::start(options).await.unwrap();
    assert!(bed.server_url().starts_with("https://[::1]:"), "{}", bed.server_url());
    // The webhook gates: all pods pass it.
    let setup = Setup { webhook_alone: true, ..Setup::default() };
    let running = Running::on(&bed, setup).await.unwrap();
    assert!(running.installation.webhook_address().starts_with("[::1]:"));

    let team = Team::on(&bed, "six").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.pod("fits", &[("cpu", "600m")]).await;
    team.until_released("fits").await;
    team.pod("waits", &[("cpu", "600m")]).await;
    team.until_used("compute", "requests.cpu", "600m").await;
    assert_eq!(team.held().await, ["waits"]);
    // The webhook asks the leader, at the address that its Lease names.
    let grown = Patch::Strategic(json!({ "spec": { "containers": [
        { "name": "main", "resources": { "requests": { "cpu": "1100m" } } },
    ] } }));
    let answer = team.pods.patch_subresource("resize", "fits", &PatchParams::default(), &grown).await;
    let refused = answer.unwrap_err().to_string();
    assert!(refused.contains("exceeded quota: compute"), "{refused}");
}
