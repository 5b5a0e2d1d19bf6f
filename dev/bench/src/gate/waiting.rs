//! Pods that wait already when the controller starts: how fast they are released, and how fast it could be.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::seen::{Seen, rate};
use super::site::{LABEL, Plot, Shape, Site, stop};
use super::{CONCURRENCY, raw};
use crate::report::{median, ms, quantile, say};

/// How long all pods of a run may take.
const LIMIT: Duration = Duration::from_secs(120);

/// One run, of the controller or of PATCHes only.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// From the beginning of the work (the controller's first decision, the first request) to the last gate seen
    /// removed. What is seen first is no good beginning: a watch that is late with it makes any run look fast.
    pub per_s: f64,
    /// From the first to the last gate seen removed.
    per_s_first_to_last: f64,
    /// From the beginning to the release, over the pods.
    p50_ms: f64,
    p99_ms: f64,
}

impl Drain {
    fn new(begin: Instant, moments: &HashMap<String, Instant>) -> Self {
        let since = |moment: &Instant| ms(moment.saturating_duration_since(begin));
        let mut latencies: Vec<f64> = moments.values().map(since).collect();
        #[allow(clippy::cast_precision_loss)]
        let count = moments.len() as f64;
        Self {
            per_s: count / quantile(&mut latencies, 1.0) * 1e3,
            per_s_first_to_last: rate(moments.values()),
            p50_ms: quantile(&mut latencies, 0.5),
            p99_ms: quantile(&mut latencies, 0.99),
        }
    }
}

/// All runs of one shape.
#[derive(Debug)]
pub struct Waiting {
    shape: Shape,
    runs: Vec<(Drain, Drain)>,
}

impl Waiting {
    /// Runs both in turns, each first as often as second, after one unmeasured round.
    pub async fn measure(site: &Site, plot: &Plot, repetitions: usize) -> anyhow::Result<Self> {
        let shape = plot.shape;
        let what = format!("{} × {} pods", shape.namespaces, shape.each);
        say(&format!("gate: {what}: warming up"));
        patch(site, plot).await?;
        let mut runs = Vec::new();
        for repetition in 1..=repetitions {
            say(&format!("gate: {what}: controller and plain PATCHes, {repetition} of {repetitions}"));
            runs.push(if repetition % 2 == 1 {
                let patched = patch(site, plot).await?;
                (release(site, plot).await?, patched)
            } else {
                let released = release(site, plot).await?;
                (released, patch(site, plot).await?)
            });
        }
        Ok(Self { shape, runs })
    }

    fn middle(&self, of: impl Fn(&(Drain, Drain)) -> f64) -> f64 {
        median(&mut self.runs.iter().map(of).collect::<Vec<_>>())
    }

    pub fn releases_per_s(&self) -> f64 {
        self.middle(|(released, _)| released.per_s)
    }

    pub fn raw_patch_per_s(&self) -> f64 {
        self.middle(|(_, patched)| patched.per_s)
    }

    /// The median of the pairs' ratios: how fast a server is changes within minutes, hardly between two runs in a row.
    pub fn ratio(&self) -> f64 {
        self.middle(pair_ratio)
    }

    /// Between these lies the middle half of the pairs' ratios.
    fn ratio_quartiles(&self) -> [f64; 2] {
        let mut ratios: Vec<f64> = self.runs.iter().map(pair_ratio).collect();
        [0.25, 0.75].map(|q| quantile(&mut ratios, q))
    }

    pub fn json(&self) -> Value {
        let run = |(released, patched): &(Drain, Drain)| {
            json!({
                "releases_per_s": released.per_s,
                "releases_per_s_first_to_last": released.per_s_first_to_last,
                "raw_patch_per_s": patched.per_s,
                "raw_patch_per_s_first_to_last": patched.per_s_first_to_last,
                "ratio": released.per_s / patched.per_s,
            })
        };
        let first_to_last =
            self.middle(|(released, patched)| released.per_s_first_to_last / patched.per_s_first_to_last);
        json!({
            "namespaces": self.shape.namespaces,
            "pods": self.shape.pods(),
            "pods_per_namespace": self.shape.each,
            "releases_per_s": self.releases_per_s(),
            "raw_patch_per_s": self.raw_patch_per_s(),
            "ratio": self.ratio(),
            "ratio_quartiles": self.ratio_quartiles(),
            "ratio_first_to_last": first_to_last,
            "p50_ms": self.middle(|(released, _)| released.p50_ms),
            "p99_ms": self.middle(|(released, _)| released.p99_ms),
            "latency": "from the controller's first decision to the pod seen without gate: the time to drain what waited",
            "concurrency": CONCURRENCY,
            "repetitions": self.runs.iter().map(run).collect::<Vec<_>>(),
            "measured": "medians of the repetitions, of their ratios too; rates from the first decision (the first PATCH \
                         sent) to the last gate seen removed by the same watch",
        })
    }
}

fn pair_ratio((released, patched): &(Drain, Drain)) -> f64 {
    released.per_s / patched.per_s
}

/// The controller starts and finds pods waiting.
pub async fn release(site: &Site, plot: &Plot) -> anyhow::Result<Drain> {
    site.create_quotas(plot).await?;
    let pods = site.create_pods(plot).await?.len();
    let seen = Seen::releases(site.admin.clone(), LABEL).await?;
    let clocks = (Instant::now(), Timestamp::now());
    let controller = site.controller().await?;
    let moments = seen.until(pods, LIMIT).await;
    let log = controller.program.log();
    let moments = moments.with_context(|| format!("log of the controller:\n{log}"))?;
    let begin = decided(&log, clocks).context("the controller's log does not say when it began to decide")?;
    stop(&controller);
    site.clear(plot).await?;
    Ok(Drain::new(begin, &moments))
}

/// When the controller says that it began to decide, given one moment on both clocks.
pub fn decided(log: &str, (instant, timestamp): (Instant, Timestamp)) -> Option<Instant> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.into_iter().find(|line| line.get("message").is_some_and(|text| text == "deciding"))?;
    let at: Timestamp = line.get("timestamp")?.as_str()?.parse().ok()?;
    Some(instant + Duration::try_from(at.duration_since(timestamp)).ok()?)
}

/// The same pods, released by PATCHes only.
async fn patch(site: &Site, plot: &Plot) -> anyhow::Result<Drain> {
    site.create_quotas(plot).await?;
    let pods = site.create_pods(plot).await?;
    let count = pods.len();
    let seen = Seen::releases(site.admin.clone(), LABEL).await?;
    let begin = Instant::now();
    raw::release_all(&site.as_controller, pods, CONCURRENCY).await?;
    let moments = seen.until(count, LIMIT).await?;
    site.clear(plot).await?;
    Ok(Drain::new(begin, &moments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_decision_is_found_in_the_log() {
        let log =
            "no JSON\n{\"timestamp\":\"2026-01-01T00:00:01.250000Z\",\"message\":\"deciding\",\"held\":3}\n";
        let clocks = (Instant::now(), "2026-01-01T00:00:01Z".parse().unwrap());
        assert_eq!(decided(log, clocks).unwrap(), clocks.0 + Duration::from_millis(250));
        assert_eq!(decided("", clocks), None);
    }
}
