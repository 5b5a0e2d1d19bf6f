//! Pods that come one after the other while the controller runs: how long each is held.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_e2e::metrics::Samples;
use sluice_e2e::{Controller, objects};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::seen::{Seen, key, rate};
use super::site::{LABEL, Plot, Shape, Site, gated_pod, stop};
use crate::report::{ms, quantile, say};

/// How long the last pod may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What was measured.
#[derive(Debug)]
pub struct Arriving {
    wanted_per_s: f64,
    releases_per_s: f64,
    pods: usize,
    /// From sending the request.
    from_sent: Quantiles,
    /// From its answer.
    from_answer: Quantiles,
    /// Of the create request alone.
    create: Quantiles,
    /// Writes of the controller, by labels.
    writes: HashMap<String, f64>,
}

/// One created pod.
pub struct Arrival {
    key: String,
    sent: Instant,
    answered: Instant,
}

impl Arriving {
    /// Creates pods at a steady rate, whatever becomes of those before, and waits until all are released.
    pub async fn measure(site: &Site, plot: &Plot, per_s: f64, pods: usize) -> anyhow::Result<Self> {
        let Shape { namespaces, .. } = plot.shape;
        say(&format!("gate: {pods} pods arriving at {per_s:.0}/s in {namespaces} namespaces"));
        site.create_quotas(plot).await?;
        let seen = Seen::releases(site.admin.clone(), LABEL).await?;
        let controller = site.controller().await?;
        let warmed = warm_up(site, plot, &seen).await;
        let warmed =
            warmed.with_context(|| format!("log of the controller:\n{}", controller.program.log()))?;
        let before = writes(&controller).await?;
        let arrivals = arrive(site, plot, per_s, pods).await?;
        let moments = seen.until(warmed + pods, LIMIT).await?;
        let after = writes(&controller).await?;
        stop(&controller);
        site.clear(plot).await?;
        let released = |arrival: &Arrival| moments.get(&arrival.key).copied();
        let waited = |of: fn(&Arrival) -> Instant| {
            arrivals
                .iter()
                .filter_map(|it| Some(ms(released(it)?.saturating_duration_since(of(it)))))
                .collect()
        };
        let of_arrivals: Vec<Instant> = arrivals.iter().filter_map(released).collect();
        Ok(Self {
            wanted_per_s: per_s,
            releases_per_s: rate(of_arrivals.iter()),
            pods,
            from_sent: quantiles(waited(|it| it.sent)),
            from_answer: quantiles(waited(|it| it.answered)),
            create: quantiles(arrivals.iter().map(|it| ms(it.answered - it.sent)).collect()),
            writes: since(after, &before),
        })
    }

    pub const fn p50_ms(&self) -> f64 {
        self.from_sent.p50
    }

    pub const fn p99_ms(&self) -> f64 {
        self.from_sent.p99
    }

    pub fn json(&self, run: &str, shape: Shape) -> Value {
        json!({
            "run": run,
            "namespaces": shape.namespaces,
            "pods": self.pods,
            "arrivals_per_s": self.wanted_per_s,
            "releases_per_s": self.releases_per_s,
            "p50_ms": self.from_sent.p50,
            "p99_ms": self.from_sent.p99,
            "max_ms": self.from_sent.max,
            "latency": "from sending the create request to the pod seen without gate in a watch",
            "from_answer_ms": self.from_answer,
            "create_request_ms": self.create,
            "controller_writes": self.writes,
        })
    }
}

/// Of some times, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Quantiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
    max: f64,
}

pub(super) fn quantiles(mut values: Vec<f64>) -> Quantiles {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| quantile(&mut values, q));
    Quantiles { p50, p99, max }
}

/// One pod in each namespace: the controller leads, and connections are open, when they are released. Returns how many.
async fn warm_up(site: &Site, plot: &Plot, seen: &Seen) -> anyhow::Result<usize> {
    for namespace in &plot.namespaces {
        objects::create(&site.admin, namespace, &gated_pod("warm-up")).await?;
    }
    let count = plot.namespaces.len();
    seen.until(count, LIMIT).await?;
    Ok(count)
}

/// Creates pods at a steady rate, whatever becomes of those before; returns when all are created.
pub async fn arrive(site: &Site, plot: &Plot, per_s: f64, pods: usize) -> anyhow::Result<Vec<Arrival>> {
    let begin = tokio::time::Instant::now() + Duration::from_millis(50);
    let mut creations = JoinSet::new();
    for number in 0..pods {
        let (client, namespace) = (site.admin.clone(), plot.namespace(number)?.to_owned());
        #[allow(clippy::cast_precision_loss)]
        let due = begin + Duration::from_secs_f64(number as f64 / per_s);
        creations.spawn(async move {
            let name = format!("pod-{number:04}");
            let pod = gated_pod(&name);
            sleep_until(due).await;
            let sent = Instant::now();
            objects::create(&client, &namespace, &pod).await?;
            anyhow::Ok(Arrival { key: key(&namespace, &name), sent, answered: Instant::now() })
        });
    }
    let mut arrivals = Vec::with_capacity(pods);
    while let Some(created) = creations.join_next().await {
        arrivals.push(created?.context("creating a pod")?);
    }
    Ok(arrivals)
}

/// The controller's own count of its writes, by labels.
pub async fn writes(controller: &Controller) -> anyhow::Result<HashMap<String, f64>> {
    let samples = Samples::of(&controller.admin).await?;
    let counts = samples.matching("sluice_api_writes_total", &[]).into_iter().map(|sample| {
        let labels = sample.labels.iter().map(|(key, value)| format!("{key}={value}"));
        (labels.collect::<Vec<_>>().join(","), sample.value)
    });
    Ok(counts.collect())
}

/// What was counted after `before`.
pub fn since(after: HashMap<String, f64>, before: &HashMap<String, f64>) -> HashMap<String, f64> {
    let since = after.into_iter().map(|(labels, count)| {
        let since = count - before.get(&labels).unwrap_or(&0.0);
        (labels, since)
    });
    since.collect()
}
