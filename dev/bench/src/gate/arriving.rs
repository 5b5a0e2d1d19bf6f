//! Pods that come one after the other while the controller runs: how long each is held.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::{Controller, objects};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::seen::{Seen, key, rate};
use super::site::{LABEL, Plot, Shape, Site, gated_pod, stop};
use crate::report::{ms, quantile, round, say};

/// How long the last pod may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What was measured.
#[derive(Debug)]
pub struct Arriving {
    wanted_per_s: f64,
    releases_per_s: f64,
    pods: usize,
    /// Quantiles 0.5, 0.99 and 1 from sending the request.
    from_sent: [f64; 3],
    /// The same from its answer.
    from_answer: [f64; 3],
    /// The same of the create request alone.
    create: [f64; 3],
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
        let since = |of: fn(&Arrival) -> Instant| {
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
            from_sent: quantiles(since(|it| it.sent)),
            from_answer: quantiles(since(|it| it.answered)),
            create: quantiles(arrivals.iter().map(|it| ms(it.answered - it.sent)).collect()),
            writes: after
                .into_iter()
                .map(|(kind, count)| (kind.clone(), count - before.get(&kind).unwrap_or(&0.0)))
                .collect(),
        })
    }

    pub const fn pods(&self) -> usize {
        self.pods
    }

    pub const fn releases_per_s(&self) -> f64 {
        self.releases_per_s
    }

    pub const fn p50_ms(&self) -> f64 {
        self.from_sent[0]
    }

    pub const fn p99_ms(&self) -> f64 {
        self.from_sent[1]
    }

    pub fn json(&self, run: &str, shape: Shape) -> Value {
        let rounded =
            |of: &[f64; 3]| json!({"p50": round(of[0], 2), "p99": round(of[1], 2), "max": round(of[2], 2)});
        json!({
            "run": run,
            "namespaces": shape.namespaces,
            "pods": self.pods,
            "arrivals_per_s": round(self.wanted_per_s, 1),
            "releases_per_s": round(self.releases_per_s, 1),
            "p50_ms": round(self.p50_ms(), 2),
            "p99_ms": round(self.p99_ms(), 2),
            "max_ms": round(self.from_sent[2], 2),
            "latency": "from sending the create request to the pod seen without gate in a watch",
            "from_answer_ms": rounded(&self.from_answer),
            "create_request_ms": rounded(&self.create),
            "controller_writes": self.writes,
        })
    }
}

fn quantiles(mut values: Vec<f64>) -> [f64; 3] {
    [0.5, 0.99, 1.0].map(|q| quantile(&mut values, q))
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

/// The controller's own count of its writes.
pub async fn writes(controller: &Controller) -> anyhow::Result<HashMap<String, f64>> {
    let (_, text) = sluice_e2e::probe::get(&controller.admin, names::PATH_METRICS).await?;
    let counts = text.lines().filter_map(|line| {
        let (labels, count) = line.strip_prefix("sluice_api_writes_total{")?.split_once('}')?;
        Some((labels.replace('"', ""), count.trim().parse().ok()?))
    });
    Ok(counts.collect())
}
