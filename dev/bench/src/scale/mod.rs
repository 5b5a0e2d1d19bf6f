//! The `sluice controller` process at the size of a large cluster, beside a fake API server: 10,000 namespaces with a quota
//! each, 150,000 pods of which 5,000 wait, and then 500 changes of pods a second, through lists and watches over HTTPS.
//!
//! It begins like an installation: no quota has a status yet, so the controller lists everything, leads, and writes them all.

mod controller;
mod traffic;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};

use crate::fake_api::{FakeApiServer, Size, World};
use crate::histogram::Histogram;
use crate::report::{self, Table, round, say, verdict};
use controller::{Controller, Counts, quiet};
use traffic::{DESCRIPTION, RATE_PER_S, Traffic};

const GOAL_LOCK_MS: f64 = 2.0;
const GOAL_RSS_MIB: f64 = 128.0;

/// Until everything is listed, twice, and every status is written.
const STARTED: Duration = Duration::from_secs(600);
/// Until what the last changes cause is done.
const SETTLED: Duration = Duration::from_secs(60);

const MEASURED: &str = "lock_hold_*: the controller's histogram sluice_gate_lock_hold_seconds, after less before the changes, \
     linear within its bucket: how long the gate's state is locked for a round of decisions, and watch_lock_hold_*: for an event \
     of a watch. cpu_share: user and system time of the process by wall time while changes are made, without scrapes. \
     events_per_s: events that the watch of pods took, without those that releases cause. rss_mib: the peak of the whole run \
     with two scrapes of the metrics of all quotas; rss_mib_started: before the first of them";

/// What a run is like.
#[derive(Clone, Copy, Debug)]
struct Scale {
    size: Size,
    seconds: u64,
}

impl Scale {
    const fn of(quick: bool) -> Self {
        if quick {
            Self { size: Size { namespaces: 200, pods: 3_000, waiting: 100 }, seconds: 2 }
        } else {
            Self { size: Size { namespaces: 10_000, pods: 150_000, waiting: 5_000 }, seconds: 30 }
        }
    }
}

/// What was measured.
struct Figures {
    started: Duration,
    before: Counts,
    after: Counts,
    rounds: Histogram,
    events: Histogram,
    rss_mib_started: f64,
    rss_mib: f64,
}

/// Measures, prints, writes `scale.json`.
///
/// # Errors
/// When the controller cannot be started, does not do its part, or releases a pod into a full quota.
pub async fn run(quick: bool, out: &Path) -> anyhow::Result<()> {
    let machine = report::machine();
    let scale = Scale::of(quick);
    let figures = measure(scale).await?;
    figures.print(scale);
    report::write(out, "scale", &figures.json(scale, quick, &machine))
}

async fn measure(scale: Scale) -> anyhow::Result<Figures> {
    let Size { namespaces, pods, waiting } = scale.size;
    say(&format!("scale: {namespaces} namespaces and quotas, {pods} pods of which {waiting} wait"));
    let server = FakeApiServer::start(scale.size).await?;
    let begin = Instant::now();
    let controller = Controller::start(&server)?;
    controller.settled(&server, STARTED, "the status of every quota to be written").await?;
    let started = begin.elapsed();
    quiet(&server, SETTLED).await?;
    let rss_mib_started = controller.peak_mib()?;

    let mut traffic = Traffic::new(namespaces);
    say(&format!("scale: {RATE_PER_S} changes of pods per second for {} s", scale.seconds));
    let [rounds_before, events_before] = controller.held().await?;
    let before = controller.counts(&server)?;
    traffic.run(&server, Duration::from_secs(scale.seconds)).await;
    let after = controller.counts(&server)?;
    let [rounds, events] = controller.held().await?;
    let (rounds, events) = (rounds.since(&rounds_before), events.since(&events_before));

    controller.settled(&server, SETTLED, "the last changes to be recorded").await?;
    ensure!(after.releases > before.releases, "no pod was released, so nothing was decided");
    let excess = server.read(World::excess);
    ensure!(excess == 0, "{excess} pods were released although their quota was full");
    let rss_mib = controller.peak_mib()?;
    Ok(Figures { started, before, after, rounds, events, rss_mib_started, rss_mib })
}

impl Figures {
    fn took_s(&self) -> f64 {
        (self.after.at - self.before.at).as_secs_f64()
    }

    fn cpu_share(&self) -> f64 {
        self.after.cpu.saturating_sub(self.before.cpu).as_secs_f64() / self.took_s()
    }

    #[allow(clippy::cast_precision_loss)]
    fn events_per_s(&self) -> f64 {
        self.after.delivered.saturating_sub(self.before.delivered) as f64 / self.took_s()
    }

    const fn releases(&self) -> u64 {
        self.after.releases.saturating_sub(self.before.releases)
    }

    const fn quota_writes(&self) -> usize {
        self.after.quota_writes.saturating_sub(self.before.quota_writes)
    }

    fn print(&self, scale: Scale) {
        let Size { namespaces, pods, .. } = scale.size;
        let mut table = Table::new(
            &format!(
                "scale: {namespaces} namespaces, {pods} pods, {RATE_PER_S} changes of pods per second for {} s",
                scale.seconds
            ),
            &["figure", "", "goal", ""],
        );
        let mut row = |figure: &str, value: String, goal: Option<(String, bool)>| {
            let (goal, met) =
                goal.map_or_else(|| ("-".to_owned(), "-".to_owned()), |(goal, met)| (goal, verdict(met)));
            table.row([figure.to_owned(), value, goal, met]);
        };
        let (p50, p99) = (self.rounds.quantile_ms(0.5), self.rounds.quantile_ms(0.99));
        row("events that the watch of pods took, per second", format!("{:.0}", self.events_per_s()), None);
        row("pods released", self.releases().to_string(), None);
        row("status of quotas written", self.quota_writes().to_string(), None);
        row("CPU seconds per second", format!("{:.3}", self.cpu_share()), None);
        row("state locked for a round of decisions, p50 ms", format!("{p50:.3}"), None);
        let goal = (format!("≤ {GOAL_LOCK_MS}"), p99 <= GOAL_LOCK_MS);
        row("the same, p99 ms", format!("{p99:.3}"), Some(goal));
        let watch = self.events.quantile_ms(0.99);
        row("state locked for an event, p99 ms", format!("{watch:.3}"), None);
        row("seconds until every status was written", format!("{:.1}", self.started.as_secs_f64()), None);
        row("memory until then, peak MiB", format!("{:.1}", self.rss_mib_started), None);
        let goal = (format!("≤ {GOAL_RSS_MIB}"), self.rss_mib <= GOAL_RSS_MIB);
        row("memory, peak MiB", format!("{:.1}", self.rss_mib), Some(goal));
        table.print();
    }

    fn json(&self, scale: Scale, quick: bool, machine: &Value) -> Value {
        let p99 = self.rounds.quantile_ms(0.99);
        json!({
            "namespaces": scale.size.namespaces,
            "pods": scale.size.pods,
            "waiting_pods": scale.size.waiting,
            "seconds": scale.seconds,
            "rate_per_s": RATE_PER_S,
            "changes": DESCRIPTION,
            "events_per_s": round(self.events_per_s(), 1),
            "releases": self.releases(),
            "quota_writes": self.quota_writes(),
            "cpu_share": round(self.cpu_share(), 4),
            "rounds": self.rounds.count(),
            "lock_hold_p50_ms": round(self.rounds.quantile_ms(0.5), 4),
            "lock_hold_p99_ms": round(p99, 4),
            "lock_hold_p99_ms_upper_bound": round(self.rounds.bound_ms(0.99), 4),
            "watch_lock_hold_p99_ms": round(self.events.quantile_ms(0.99), 4),
            "buckets": self.rounds.json(),
            "started_s": round(self.started.as_secs_f64(), 1),
            "rss_mib_started": round(self.rss_mib_started, 1),
            "rss_mib": round(self.rss_mib, 1),
            "measured": MEASURED,
            "goal_lock_hold_p99_ms": GOAL_LOCK_MS,
            "goal_rss_mib": GOAL_RSS_MIB,
            "met": p99 <= GOAL_LOCK_MS && self.rss_mib <= GOAL_RSS_MIB,
            "quick": quick,
            "machine": machine,
        })
    }
}
