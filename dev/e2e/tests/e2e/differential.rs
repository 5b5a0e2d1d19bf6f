//! The engine against the real API server: generated quantities, quota specs, pods and resizes must get the same
//! verdict and cost the same.
//!
//! The seed of a run is printed, as is every case on which the two do not agree; `SLUICE_SEED=<seed>` repeats it.

mod natives;
mod quantities;
mod report;
mod resize;
mod server;
mod shapes;
mod specs;
mod team;

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use report::Report;
use serde_json::{Value, json};
use server::Server;
use sluice_e2e::random::{self, Random};
use sluice_testbed::{Bed, BedOptions, wait};
use team::Team;

/// Requests that are under way at one time.
const CONCURRENCY: usize = 16;
const QUANTITIES: usize = 400;
const SPECS: usize = 1500;
const TEAMS: usize = 60;
const PODS_PER_TEAM: usize = 28;

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_agrees_with_the_api_server() {
    let report = Report::new(random::seed());
    println!("differential: seed {}", report.seed);
    // Only the API server may write what is used.
    let options = BedOptions {
        kwok: false,
        audit: false,
        controller_manager: false,
        scheduler: false,
        ..BedOptions::default()
    };
    let bed = Bed::start(options).await.unwrap();
    let server = Server::new(bed.admin().unwrap()).await;
    quantities_and_specs(&bed, &server, &report).await;
    pods(&bed, &server, &report).await;
    let at_least = [
        ("quantity: same amount", QUANTITIES / 4),
        ("quantity: both unreadable", QUANTITIES / 20),
        ("quantity: both negative", QUANTITIES / 40),
        ("spec: both accept", SPECS / 8),
        ("spec: both refuse, same fields", SPECS / 8),
        ("spec: both unreadable", SPECS / 100),
        ("pod: both allow", 300),
        ("pod: both miss amounts", 50),
        ("pod: both find it exceeds", 80),
        ("resize: both allow", 100),
        ("resize: both find it exceeds", 3),
    ];
    report.conclude(2500, &at_least);
}

async fn quantities_and_specs(bed: &Bed, server: &Server, report: &Report) {
    let path = format!("/api/v1/namespaces/{}/resourcequotas", bed.namespace("specs", &[]).await.unwrap());
    let path = path.as_str();
    let each = |index| async move {
        quantities::compare(server, report, path, &mut Random::of_case(report.seed, 1, index)).await;
    };
    stream::iter(0..QUANTITIES).for_each_concurrent(CONCURRENCY, each).await;
    let each = |index| async move {
        specs::compare(server, report, path, &mut Random::of_case(report.seed, 2, index)).await;
    };
    stream::iter(0..SPECS).for_each_concurrent(CONCURRENCY, each).await;
}

async fn pods(bed: &Bed, server: &Server, report: &Report) {
    classes(server).await;
    let open = format!("{}/pods", team::namespace(bed, server, "open").await);
    let teams = stream::iter(0..TEAMS).map(|index| Team::new(bed, server, report, index));
    let teams: Vec<Team<'_>> = teams.buffered(CONCURRENCY).collect().await;
    until_seen(bed, server).await;
    let open = open.as_str();
    stream::iter(teams.into_iter().enumerate())
        .for_each_concurrent(CONCURRENCY, |(number, mut team)| async move {
            for pod in 0..PODS_PER_TEAM {
                if !team.broken {
                    team.pod_case(open, number * PODS_PER_TEAM + pod).await;
                }
            }
        })
        .await;
}

async fn classes(server: &Server) {
    for (name, overhead) in shapes::RUNTIME_CLASSES {
        let fixed: serde_json::Map<String, Value> =
            overhead.iter().map(|(key, amount)| ((*key).to_owned(), json!(amount))).collect();
        let mut class = json!({"metadata": {"name": name}, "handler": "none"});
        if !fixed.is_empty() {
            class["overhead"] = json!({ "podFixed": fixed });
        }
        server.set_up("/apis/node.k8s.io/v1/runtimeclasses", &class).await;
    }
    for (value, name) in shapes::PRIORITY_CLASSES.iter().enumerate() {
        let class = json!({"metadata": {"name": name}, "value": value});
        server.set_up("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
    }
}

/// Returns when admission has seen all quotas and classes that exist now: it learns of them by watch, in order.
async fn until_seen(bed: &Bed, server: &Server) {
    let path = &team::namespace(bed, server, "sentinel").await;
    let quotas = format!("{path}/resourcequotas");
    server.set_up(&quotas, &json!({"metadata": {"name": "sentinel"}, "spec": {"hard": {"pods": "0"}}})).await;
    server.record(&quotas, "sentinel", json!({"hard": {"pods": "0"}, "used": {"pods": "0"}})).await;
    let pod = json!({"metadata": {"name": "sentinel"}, "spec": {
        "containers": [{"name": "a", "image": "none"}],
        "priorityClassName": shapes::PRIORITY_CLASSES[shapes::PRIORITY_CLASSES.len() - 1],
        "runtimeClassName": shapes::RUNTIME_CLASSES[shapes::RUNTIME_CLASSES.len() - 1].0,
    }});
    let body = &pod.to_string();
    let probe = || async move {
        let refusal = server.create(&format!("{path}/pods"), body.clone(), true).await.err()?;
        refusal.message.contains("exceeded quota: sentinel").then_some(())
    };
    wait::eventually(Duration::from_secs(30), probe, "admission to see the sentinel's quota").await.unwrap();
}
