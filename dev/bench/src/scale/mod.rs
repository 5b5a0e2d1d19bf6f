//! The `sluice controller` process at the size of a large cluster, beside a fake API server: 10,000 namespaces with a quota
//! each, 150,000 pods of which 5,000 wait, and then 500 changes of pods a second, through lists and watches over HTTPS.
//!
//! It begins like an installation: no quota has a status yet, so the controller lists everything, leads,
//! and writes them all.

pub mod controller;
mod traffic;

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};

use crate::fake_api::{FakeApiServer, Size, World};
use crate::report::{Run, figures, say};
use controller::{Controller, quiet};
use traffic::{DESCRIPTION, RATE_PER_S, Traffic};

const GOAL_LOCK_MS: f64 = 2.0;
const GOAL_RSS_MIB: f64 = 128.0;

/// Until everything is listed, twice, and every status is written.
const STARTED: Duration = Duration::from_secs(600);
/// Until what the last changes cause is done.
const SETTLED: Duration = Duration::from_secs(60);

const MEASURED: &str = "lock_hold_*: the controller's histogram sluice_gate_lock_hold_seconds, after less before the \
     changes, linear within its bucket: how long the gate's state is locked for a round of decisions, and \
     watch_lock_hold_*: for an event of a watch. cpu_share: user and system time of the process by wall time while changes \
     are made, without scrapes. events_per_s: events that the watch of pods took, without those that releases cause. \
     rss_mib: the peak of the whole run with two scrapes of the metrics of all quotas; \
     rss_mib_started: before the first of them";

/// Measures, prints, writes `scale.json`.
///
/// # Errors
/// When the controller cannot be started, does not do its part, or releases a pod into a full quota.
pub async fn run(run: &Run) -> anyhow::Result<()> {
    let small = (Size { namespaces: 200, pods: 3_000, waiting: 100 }, 2);
    let large = (Size { namespaces: 10_000, pods: 150_000, waiting: 5_000 }, 30);
    let (size, seconds) = run.either(small, large);
    let file = measure(size, seconds).await?;
    let title = format!(
        "scale: {} namespaces, {} pods, {RATE_PER_S} changes of pods per second for {seconds} s",
        size.namespaces, size.pods
    );
    figures(&title, &LINES, &file);
    run.write("scale", file)
}

const LINES: [(&str, &str, Option<&str>); 10] = [
    ("events that the watch of pods took, per second", "events_per_s", None),
    ("pods released", "releases", None),
    ("status of quotas written", "quota_writes", None),
    ("CPU seconds per second", "cpu_share", None),
    ("state locked for a round of decisions, p50 ms", "lock_hold_p50_ms", None),
    ("the same, p99 ms", "lock_hold_p99_ms", Some("goal_lock_hold_p99_ms")),
    ("state locked for an event, p99 ms", "watch_lock_hold_p99_ms", None),
    ("seconds until every status was written", "started_s", None),
    ("memory until then, peak MiB", "rss_mib_started", None),
    ("memory, peak MiB", "rss_mib", Some("goal_rss_mib")),
];

#[allow(clippy::cast_precision_loss)]
async fn measure(size: Size, seconds: u64) -> anyhow::Result<Value> {
    let Size { namespaces, pods, waiting } = size;
    say(&format!("scale: {namespaces} namespaces and quotas, {pods} pods of which {waiting} wait"));
    let server = FakeApiServer::start(size).await?;
    let begin = Instant::now();
    let controller = Controller::start(&server, &[])?;
    controller.settled(&server, STARTED, "the status of every quota to be written").await?;
    let started = begin.elapsed();
    quiet(&server, SETTLED).await?;
    let rss_mib_started = controller.peak_mib()?;

    let mut traffic = Traffic::new(namespaces);
    say(&format!("scale: {RATE_PER_S} changes of pods per second for {seconds} s"));
    let [rounds_before, events_before] = controller.held().await?;
    let before = controller.counts(&server)?;
    traffic.run(&server, Duration::from_secs(seconds)).await;
    let after = controller.counts(&server)?;
    let [rounds, events] = controller.held().await?;
    let (rounds, events) = (rounds.since(&rounds_before), events.since(&events_before));

    controller.settled(&server, SETTLED, "the last changes to be recorded").await?;
    ensure!(after.releases > before.releases, "no pod was released, so nothing was decided");
    let excess = server.read(World::excess);
    ensure!(excess == 0, "{excess} pods were released although their quota was full");
    let (rss_mib, p99) = (controller.peak_mib()?, rounds.quantile_ms(0.99));
    let took_s = (after.at - before.at).as_secs_f64();
    Ok(json!({
        "namespaces": namespaces,
        "pods": pods,
        "waiting_pods": waiting,
        "seconds": seconds,
        "rate_per_s": RATE_PER_S,
        "changes": DESCRIPTION,
        "events_per_s": (after.delivered - before.delivered) as f64 / took_s,
        "releases": after.releases - before.releases,
        "quota_writes": after.quota_writes - before.quota_writes,
        "cpu_share": after.cpu.saturating_sub(before.cpu).as_secs_f64() / took_s,
        "rounds": rounds.count(),
        "lock_hold_p50_ms": rounds.quantile_ms(0.5),
        "lock_hold_p99_ms": p99,
        "lock_hold_p99_ms_upper_bound": rounds.bound_ms(0.99),
        "watch_lock_hold_p99_ms": events.quantile_ms(0.99),
        "buckets": rounds.json(),
        "started_s": started.as_secs_f64(),
        "rss_mib_started": rss_mib_started,
        "rss_mib": rss_mib,
        "measured": MEASURED,
        "goal_lock_hold_p99_ms": GOAL_LOCK_MS,
        "goal_rss_mib": GOAL_RSS_MIB,
        "met": p99 <= GOAL_LOCK_MS && rss_mib <= GOAL_RSS_MIB,
    }))
}
