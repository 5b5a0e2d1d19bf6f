//! One cluster quota over many namespaces: releases beside gate-removing PATCHes as in the bench of the gate, what a change of a
//! pod costs, and what is written for people to read.

mod many;
mod shown;

use std::path::Path;

use serde_json::{Value, json};

use crate::gate::{Arriving, GOAL_RATIO, IDLE_PER_S, Shape, Site, Waiting, put};
use crate::report::{self, Table, round, say, verdict};
use many::Many;
use shown::Shown;

/// An event must not cost more than this many times as much with 10,000 namespaces as with one: caches make it a little
/// dearer, a loop over namespaces would make it 10,000 times as dear.
const GROWTH_LIMIT: f64 = 5.0;
/// As etcd has it (`--max-request-bytes`).
const LARGEST_OBJECT: usize = 1_536 * 1_024;

/// Measures, prints, writes `cluster_quota.json`.
///
/// # Errors
/// When the control plane or the controller does not do its part.
pub async fn run(quick: bool, out: &Path) -> anyhow::Result<()> {
    let machine = report::machine();
    let sizes = if quick { [1, 100, 1_000] } else { [1, 1_000, 10_000] };
    let many = sizes.into_iter().map(|namespaces| Many::measure(namespaces, quick));
    let many = many.collect::<anyhow::Result<Vec<_>>>()?;

    say("cluster_quota: starting a control plane");
    let site = Site::start().await?;
    site.allow_cluster_quotas().await?;
    let server = site.server_constants().await?;
    let (shape, repetitions) =
        if quick { (Shape { namespaces: 10, each: 10 }, 1) } else { (Shape { namespaces: 50, each: 20 }, 9) };
    let plot = site.cluster_plot(shape).await?;
    let waiting = Waiting::measure(&site, &plot, repetitions).await?;
    let idle = Arriving::measure(&site, &plot, IDLE_PER_S, if quick { 12 } else { 60 }).await?;
    // Namespaces that were measured are in the way of none that follow: their label is another.
    let shown = Shown::measure(&site, if quick { 20 } else { 1_000 }, if quick { 3 } else { 20 }).await?;
    let growth = growth(&many);
    print(&waiting, &idle, &many, &shown, growth);

    let mut file = waiting.json();
    let is_small =
        many.iter().map(Many::largest).chain([shown.largest()]).all(|bytes| bytes < LARGEST_OBJECT);
    let further = json!({
        "goal_ratio": GOAL_RATIO,
        "met": waiting.ratio() >= GOAL_RATIO && growth <= GROWTH_LIMIT && is_small,
        "idle": idle.json("idle", shape),
        "many": many.iter().map(Many::json).collect::<Vec<_>>(),
        "ns_per_event_growth": round(growth, 2),
        "growth_limit": GROWTH_LIMIT,
        "shown": shown.json(),
        "largest_object_of_etcd": LARGEST_OBJECT,
        "server": server,
        "machine": machine,
        "quick": quick,
    });
    for (name, value) in further.as_object().into_iter().flatten() {
        put(&mut file, name, value.clone());
    }
    report::write(out, "cluster_quota", &file)
}

/// How much more an event costs with the most namespaces than with one.
fn growth(many: &[Many]) -> f64 {
    match (many.first(), many.last()) {
        (Some(one), Some(most)) => most.event_ns / one.event_ns,
        _ => f64::NAN,
    }
}

fn print(waiting: &Waiting, idle: &Arriving, many: &[Many], shown: &Shown, growth: f64) {
    let mut table = Table::new(
        "cluster_quota: releases on a real control plane under one cluster quota (medians)",
        &["namespaces", "pods", "releases/s", "PATCHes/s", "ratio", "goal"],
    );
    table.row([
        waiting.shape.namespaces.to_string(),
        waiting.shape.pods().to_string(),
        format!("{:.0}", waiting.releases_per_s()),
        format!("{:.0}", waiting.raw_patch_per_s()),
        format!("{:.2}", waiting.ratio()),
        format!("≥ {GOAL_RATIO}: {}", verdict(waiting.ratio() >= GOAL_RATIO)),
    ]);
    table.print();
    println!(
        "  pods that come {IDLE_PER_S} a second are released after {:.1} ms, p99 {:.1} ms",
        idle.p50_ms(),
        idle.p99_ms()
    );
    let mut table = Table::new(
        "cluster_quota: pods of all namespaces change all the time (no server)",
        &[
            "namespaces",
            "ns per event",
            "p99 ns",
            "status/s",
            "mirrors/s",
            "ms to plan them",
            "quota B",
            "mirror B",
        ],
    );
    for many in many {
        table.row(many.cells());
    }
    table.print();
    println!(
        "  the most namespaces cost {growth:.2} × what one costs (at most {GROWTH_LIMIT}): {}",
        verdict(growth <= GROWTH_LIMIT)
    );
    let mut table = Table::new(
        "cluster_quota: the same on a real control plane",
        &[
            "namespaces",
            "releases/s",
            "charges/s",
            "status/s",
            "mirrors/s",
            "quota B",
            "charge B",
            "mirror B",
        ],
    );
    table.row(shown.cells());
    table.print();
    println!(
        "  at most one status and {} mirrors a second; etcd takes objects of {LARGEST_OBJECT} B",
        many::MIRRORS
    );
}

/// Sizes of objects.
fn bytes(quota: usize, mirror: usize) -> Value {
    json!({ "quota": quota, "mirror": mirror })
}
