//! A large cluster whose pods are all asked about, beside the same one without evaluators.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_testbed::wait;

use super::releases::WORK;
use super::sidecar::Sidecar;
use crate::fake_api::{FakeApiServer, Size, World};
use crate::gate::decided;
use crate::histogram::Histogram;
use crate::report::{Run, say, tail};
use crate::scale::controller::{Controller, quiet};

const STARTED: Duration = Duration::from_secs(600);
const QUIET: Duration = Duration::from_secs(120);
const HELD: &str = "sluice_gate_lock_hold_seconds";

/// A controller that was started and has done what there was to do.
struct Started {
    peak_mib: f64,
    rss_mib: f64,
    /// From the start of the process until the last answer, and from its first decision on.
    answered_s: f64,
    answered_after_lists_s: f64,
    /// From its first decision until the pod of a namespace with room went.
    first_release_s: f64,
    /// Each by what the state was locked for.
    lock_p99_ms: Vec<(&'static str, f64)>,
}

/// Starts it twice.
pub(super) async fn measure(run: &Run) -> anyhow::Result<Value> {
    let small = Size { namespaces: 200, pods: 3_000, waiting: 100 };
    let size = run.either(small, Size { namespaces: 10_000, pods: 150_000, waiting: 5_000 });
    say(&format!("evaluators: {} pods in {} namespaces, none is asked about", size.pods, size.namespaces));
    let without = start(size, None).await?;
    say("evaluators: the same, all are asked about");
    let with = start(size, Some(&Sidecar::start(WORK)?)).await?;
    let longest = with.lock_p99_ms.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
    let locks = |started: &Started| -> Value {
        started
            .lock_p99_ms
            .iter()
            .map(|(by, ms)| ((*by).to_owned(), json!(ms)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    Ok(json!({
        "pods": size.pods, "namespaces": size.namespaces, "work_ms": WORK.as_secs_f64() * 1e3,
        "peak_mib": with.peak_mib, "without_peak_mib": without.peak_mib,
        "added_mib": with.peak_mib - without.peak_mib,
        "rss_mib": with.rss_mib, "without_rss_mib": without.rss_mib,
        "answered_s": with.answered_s, "answered_after_lists_s": with.answered_after_lists_s,
        "first_release_s": with.first_release_s, "without_first_release_s": without.first_release_s,
        "lock_p99_ms": longest, "lock_p99_ms_by": locks(&with), "without_lock_p99_ms_by": locks(&without),
    }))
}

async fn start(size: Size, sidecar: Option<&Sidecar>) -> anyhow::Result<Started> {
    let server = FakeApiServer::start(size).await?;
    // So there is room for the pod that waits there.
    ensure!(server.change(|world| world.end(0)), "no pod runs in the first namespace");
    let args = sidecar.map(|sidecar| vec![sidecar.argument(), "--evaluator-other-pods=none".to_owned()]);
    let clocks = (Instant::now(), Timestamp::now());
    let controller = Controller::start(&server, &args.unwrap_or_default())?;
    let (mut released, mut answered) = (None, None);
    let probe = || {
        let is_released = server.read(World::releases) > 0;
        // The pod that has ended need not be asked about.
        let is_answered = sidecar.is_none_or(|sidecar| sidecar.answers() + 1 >= size.pods);
        released = released.or_else(|| is_released.then(Instant::now));
        answered = answered.or_else(|| is_answered.then(Instant::now));
        let both = released.zip(answered);
        async move { both }
    };
    let both = wait::eventually(STARTED, probe, "every pod to be asked about, and one to be released").await;
    let log = || format!("log of the controller ends with:\n{}", tail(&controller.log()));
    let (released, answered) = both.with_context(log)?;
    let decided =
        decided(&controller.log(), clocks).context("the log does not say when it began to decide")?;
    controller.settled(&server, STARTED, "the status of every quota to be written").await?;
    quiet(&server, QUIET).await?;
    let (peak_mib, rss_mib) = (controller.peak_mib()?, controller.rss_mib()?);
    let samples = controller.samples().await?;
    if sidecar.is_some() {
        let open = samples.sum("sluice_evaluator_unanswered_pods", &[]);
        ensure!(open == Some(0.0), "{open:?} pods have no answer");
    }
    let of = |by| anyhow::Ok((by, Histogram::read(&samples, HELD, &[("by", by)])?.quantile_ms(0.99)));
    let since = |moment: Instant, begin: Instant| moment.saturating_duration_since(begin).as_secs_f64();
    Ok(Started {
        peak_mib,
        rss_mib,
        answered_s: since(answered, clocks.0),
        answered_after_lists_s: since(answered, decided),
        first_release_s: since(released, decided),
        lock_p99_ms: ["plan", "watch", "settle"].into_iter().map(of).collect::<Result<_, _>>()?,
    })
}
