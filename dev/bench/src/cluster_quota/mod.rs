//! One cluster quota over many namespaces: releases beside gate-removing PATCHes as in the bench of the gate, what a change
//! of a pod costs, and what is written for people to read.

mod many;
mod shown;

use serde_json::{Value, json};

use crate::gate::{Arriving, GOAL_RATIO, IDLE_PER_S, Shape, Site, Waiting};
use crate::report::{Run, extend, number, rows, say, verdict};
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
pub async fn run(run: &Run) -> anyhow::Result<()> {
    let many = run.either([1, 100, 1_000], [1, 1_000, 10_000]);
    let many = many.into_iter().map(|namespaces| Many::measure(namespaces, run.quick));
    let many = many.collect::<anyhow::Result<Vec<_>>>()?;

    say("cluster_quota: starting a control plane");
    let site = Site::start().await?;
    site.allow_cluster_quotas().await?;
    let server = site.server_constants().await?;
    let shape = run.either(Shape { namespaces: 10, each: 10 }, Shape { namespaces: 50, each: 20 });
    let plot = site.cluster_plot(shape).await?;
    let waiting = Waiting::measure(&site, &plot, run.either(1, 9)).await?;
    let idle = Arriving::measure(&site, &plot, IDLE_PER_S, run.either(12, 60)).await?;
    // Namespaces that were measured are in the way of none that follow: their label is another.
    let shown = Shown::measure(&site, run.either(20, 1_000), run.either(3, 20)).await?;
    let growth = growth(&many);
    let is_small =
        many.iter().map(Many::largest).chain([shown.largest()]).all(|bytes| bytes < LARGEST_OBJECT);

    let mut file = waiting.json();
    let further = json!({
        "goal_ratio": GOAL_RATIO,
        "met": waiting.ratio() >= GOAL_RATIO && growth <= GROWTH_LIMIT && is_small,
        "idle": idle.json("idle", shape),
        "many": many,
        "ns_per_event_growth": growth,
        "growth_limit": GROWTH_LIMIT,
        "shown": shown.json(),
        "largest_object_of_etcd": LARGEST_OBJECT,
        "server": server,
    });
    extend(&mut file, further);
    print(&file, &many)?;
    run.write("cluster_quota", file)
}

/// How much more an event costs with the most namespaces than with one.
fn growth(many: &[Many]) -> f64 {
    match (many.first(), many.last()) {
        (Some(one), Some(most)) => most.ns_per_event / one.ns_per_event,
        _ => f64::NAN,
    }
}

fn print(file: &Value, many: &[Many]) -> anyhow::Result<()> {
    let title = "cluster_quota: releases on a real control plane under one cluster quota (medians)";
    let columns = [
        ("namespaces", "namespaces"),
        ("pods", "pods"),
        ("releases/s", "releases_per_s"),
        ("PATCHes/s", "raw_patch_per_s"),
        ("ratio", "ratio"),
        ("goal, at least", "goal_ratio"),
        ("idle, p50 ms", "idle/p50_ms"),
        ("p99 ms", "idle/p99_ms"),
    ];
    rows(title, &columns, &[file])?;
    let title = "cluster_quota: pods of all namespaces change all the time (no server)";
    let columns = [
        ("namespaces", "namespaces"),
        ("ns per event", "ns_per_event"),
        ("p99 ns", "p99_ns_per_event"),
        ("status/s", "writes_per_s/status"),
        ("mirrors/s", "writes_per_s/mirrors"),
        ("ms to plan them", "plan_ms_per_s"),
        ("quota B", "bytes/quota"),
        ("mirror B", "bytes/mirror"),
    ];
    rows(title, &columns, many)?;
    let title = "cluster_quota: the same on a real control plane";
    let columns = [
        ("namespaces", "shown/namespaces"),
        ("releases/s", "shown/writes_per_s/releases"),
        ("charges/s", "shown/writes_per_s/charges"),
        ("status/s", "shown/writes_per_s/status"),
        ("mirrors/s", "shown/writes_per_s/mirrors"),
        ("quota B", "shown/bytes/quota"),
        ("charge B", "shown/bytes/charge"),
        ("mirror B", "shown/bytes/mirror"),
    ];
    rows(title, &columns, &[file])?;
    println!(
        "  idle: pods that come {IDLE_PER_S} a second; at most one status and {} mirrors a second",
        many::MIRRORS
    );
    println!(
        "  the most namespaces cost {:.2} × what one costs (at most {GROWTH_LIMIT}), \
         etcd takes objects of {LARGEST_OBJECT} B: all goals {}",
        number(file, "ns_per_event_growth"),
        verdict(file.get("met") == Some(&Value::Bool(true)))
    );
    Ok(())
}
