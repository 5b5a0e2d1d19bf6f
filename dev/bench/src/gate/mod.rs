//! Releases on a real control plane, with a quota for each namespace, beside gate-removing PATCHes of the same server in the
//! same run. The bench of cluster quotas measures with the same means.
//!
//! Pods are created with the gate by the administrator: the webhook has a bench of its own, and without it the
//! PATCHes have nothing to wait for but the API server, which makes the ratio the harder one to reach.

mod arriving;
mod floor;
mod raw;
mod seen;
mod site;
mod stuck;
mod waiting;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::report::{Run, extend, rows, say};
pub use arriving::{Arriving, arrive, since, writes};
pub use site::{LABEL, Plot, Shape, Site, gated_pod, stop};
pub use waiting::{Waiting, decided, release};

/// Releases under way at a time, and so PATCHes: the product's default.
const CONCURRENCY: usize = 32;
pub const GOAL_RATIO: f64 = 0.89;
/// Pods that come per second to an idle server.
pub const IDLE_PER_S: f64 = 10.0;
/// For a pod that fits, on an idle server.
const GOAL_IDLE_P99_MS: f64 = 15.0;

/// Measures, prints, writes `gate.json`.
///
/// # Errors
/// When the control plane or the controller does not do its part.
pub async fn run(run: &Run) -> anyhow::Result<()> {
    say("gate: starting a control plane");
    let site = Site::start().await?;
    let server = site.server_constants().await?;
    let shapes = run.either([(1, 100), (10, 10)], [(1, 500), (50, 20)]);
    let mut file = Vec::new();
    for (namespaces, each) in shapes {
        let shape = Shape { namespaces, each };
        let plot = site.plot(shape).await?;
        let waiting = Waiting::measure(&site, &plot, run.either(1, 9)).await?;
        let mut row = waiting.json();
        let met = waiting.ratio() >= GOAL_RATIO;
        extend(&mut row, json!({"run": "waiting", "goal_ratio": GOAL_RATIO, "met": met}));
        file.push(row);

        // At a given rate of arrival there is nothing to compare: releases come as fast as pods do.
        let (half, pods) = (waiting.releases_per_s() / 2.0, run.either(60, 300));
        let arriving = Arriving::measure(&site, &plot, half, pods).await;
        let mut row = arriving.context("pods arriving at half the rate")?.json("arriving", shape);
        extend(&mut row, json!({"raw_patch_per_s": waiting.raw_patch_per_s(), "ratio": null}));
        file.push(row);

        let floor = floor::measure(&site, &plot, IDLE_PER_S, pods).await?;
        let idle = Arriving::measure(&site, &plot, IDLE_PER_S, pods).await;
        let idle = idle.context("pods arriving now and then")?;
        let mut row = idle.json("idle", shape);
        let met = idle.p99_ms() <= GOAL_IDLE_P99_MS;
        extend(&mut row, json!({"raw_patch_per_s": null, "ratio": null, "floor_ms": floor}));
        extend(&mut row, json!({"floor_p50_ms": floor.p50, "floor_p99_ms": floor.p99}));
        extend(&mut row, json!({"goal_p99_ms": GOAL_IDLE_P99_MS, "met": met}));
        file.push(row);
        if namespaces == 1 {
            file.push(stuck::measure(&site, &plot, &idle, pods).await?);
        }
    }
    print(&file)?;
    for row in &mut file {
        extend(row, json!({"server": server}));
    }
    run.write("gate", Value::Array(file))
}

fn print(file: &[Value]) -> anyhow::Result<()> {
    let columns = [
        ("run", "run"),
        ("namespaces", "namespaces"),
        ("pods", "pods"),
        ("releases/s", "releases_per_s"),
        ("PATCHes/s", "raw_patch_per_s"),
        ("ratio", "ratio"),
        ("p50 ms", "p50_ms"),
        ("p99 ms", "p99_ms"),
        ("floor p50", "floor_p50_ms"),
        ("floor p99", "floor_p99_ms"),
        ("goal", "met"),
    ];
    rows("gate: releases on a real control plane", &columns, file)?;
    println!(
        "  waiting: pods wait already when the controller starts; ratio = releases/s ÷ PATCHes/s of the same\n\
         \x20 repetition, goal ≥ {GOAL_RATIO}; medians; latency: the time to drain what waited"
    );
    println!(
        "  arriving: pods come at half the release rate; idle: ten a second, goal p99 ≤ {GOAL_IDLE_P99_MS} ms; \
         latency: from\n  sending the create request to seeing the pod without gate in a watch; floor: the same three \
         writes by the\n  bench, one after the other, without Sluice; beside stuck: idle, beside 300 pods of another \
         tenant whose updates a\n  webhook keeps for ten seconds; ratio = p99 ÷ p99 of idle, goal ≤ 1.2"
    );
    Ok(())
}
