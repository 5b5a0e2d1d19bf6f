//! A tenant creates QuotaReviews, a hundred a second, while pods of another tenant are created and released.
//!
//! A control run has the same number of requests that Sluice does not take part in. It shows how much of a delay is the API
//! server's own work, which takes time of the same cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::post;
use sluice_e2e::{Setup, objects};
use tokio::task::{JoinHandle, JoinSet};

use crate::gate::{Arriving, IDLE_PER_S, Shape, Site, gated_pod};
use crate::report::{Run, median, say};

const PER_S: u32 = 100;

/// The requests that the tenant sends while pods arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Nothing,
    /// Dry runs that create ConfigMaps.
    Others,
    /// Dry runs that create QuotaReviews.
    Questions,
}

/// How long pods took from creation to release, in milliseconds, by run.
#[derive(Debug, Default)]
struct Releases {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

/// Measures releases beside each kind of requests. Each turn begins with another kind.
pub(super) async fn measure(run: &Run) -> anyhow::Result<Value> {
    say("why: starting a control plane");
    let site = Site::start_with(Setup::default()).await?;
    let (bed, installation) = site.parts();
    let _webhook = installation.webhook().await?;
    installation.until_gating().await?;
    let tenant_namespace = bed.namespace("tenant", objects::TARGETED).await?;
    let mut config = bed.tenant(&tenant_namespace).await?.config();
    // By default the client repeats a request that is refused with 429, up to 15 times.
    config.default_retry = false;
    let tenant = Client::try_from(config).context("making a client for the tenant")?;
    objects::create(&site.admin, &tenant_namespace.name, &objects::quota("none", &[("pods", "0")])).await?;
    objects::create(&site.admin, &tenant_namespace.name, &gated_pod("held")).await?;
    let plot = site.plot(Shape { namespaces: 1, each: 1 }).await?;
    let pods = run.either(30, 300);
    let [mut alone, mut others, mut beside] = [Releases::default(), Releases::default(), Releases::default()];
    let (mut sent, mut answered) = (Vec::new(), Vec::new());
    for turn in 0..run.either(1, 3) {
        let mut order = [Sent::Nothing, Sent::Others, Sent::Questions];
        order.rotate_left(turn);
        for what in order {
            say(&format!("why: releases beside {what:?}"));
            let asking = Asking::start(&tenant, &tenant_namespace.name, what);
            let arriving = Arriving::measure(&site, &plot, IDLE_PER_S, pods).await;
            let arriving = arriving.context("pods arriving")?;
            let releases = match what {
                Sent::Nothing => &mut alone,
                Sent::Others => &mut others,
                Sent::Questions => &mut beside,
            };
            releases.p50.push(arriving.p50_ms());
            releases.p99.push(arriving.p99_ms());
            let Some(asking) = asking else { continue };
            let (of_sent, of_answered) = asking.end();
            ensure!(of_answered > 0.0, "no request was answered: {what:?}");
            if what == Sent::Questions {
                sent.push(of_sent);
                answered.push(of_answered);
            }
        }
    }
    let ratio = |with: &[f64], without: &[f64]| {
        median(&mut with.iter().zip(without).map(|(with, without)| with / without).collect::<Vec<_>>())
    };
    Ok(json!({
        "pods": pods, "arrivals_per_s": IDLE_PER_S, "sent_per_s": median(&mut sent),
        "answered_per_s": median(&mut answered),
        "p50_ratio": ratio(&beside.p50, &alone.p50), "p99_ratio": ratio(&beside.p99, &alone.p99),
        "others_p50_ratio": ratio(&others.p50, &alone.p50), "others_p99_ratio": ratio(&others.p99, &alone.p99),
        "beside_others_p50_ratio": ratio(&beside.p50, &others.p50),
        "beside_others_p99_ratio": ratio(&beside.p99, &others.p99),
        "p50_ms": median(&mut beside.p50), "p99_ms": median(&mut beside.p99),
        "others_p99_ms": median(&mut others.p99), "without_p99_ms": median(&mut alone.p99),
    }))
}

/// A task that sends requests as the tenant, [`PER_S`] a second, and waits for no answer before it sends the next one.
/// Dropping it aborts the task.
struct Asking {
    task: JoinHandle<()>,
    counts: Arc<[AtomicU64; 2]>,
    since: Instant,
}

impl Asking {
    fn start(tenant: &Client, namespace: &str, what: Sent) -> Option<Self> {
        let metadata = json!({"generateName": "ask-"});
        let (path, body) = match what {
            Sent::Nothing => return None,
            Sent::Others => (
                format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All"),
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"pod": "held"}}),
            ),
            Sent::Questions => (
                format!(
                    "/apis/quota.sluice.dev/v1alpha1/namespaces/{namespace}/{}?dryRun=All",
                    names::QUOTA_REVIEWS
                ),
                json!({
                    "apiVersion": "quota.sluice.dev/v1alpha1", "kind": names::QUOTA_REVIEW,
                    "metadata": metadata, "spec": {"pod": "held"},
                }),
            ),
        };
        let body = Arc::new(body);
        let counts: Arc<[AtomicU64; 2]> = Arc::default();
        let (counted, tenant) = (Arc::clone(&counts), tenant.clone());
        let task = tokio::spawn(async move {
            let mut beat = tokio::time::interval(Duration::from_secs(1) / PER_S);
            let mut questions = JoinSet::new();
            loop {
                beat.tick().await;
                while questions.try_join_next().is_some() {}
                let (client, path, body, counts) =
                    (tenant.clone(), path.clone(), Arc::clone(&body), Arc::clone(&counted));
                questions.spawn(async move {
                    let [sent, answered] = &*counts;
                    sent.fetch_add(1, Ordering::Relaxed);
                    let answer = post(&client, &path, &body).await;
                    let has_said = |body: &Value| {
                        what == Sent::Others || body.pointer("/status/source").is_some_and(Value::is_object)
                    };
                    if answer.is_ok_and(|answer| answer.is_ok() && has_said(&answer.body)) {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Some(Self { task, counts, since: Instant::now() })
    }

    /// How many a second were sent, and how many the leader answered.
    #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
    fn end(self) -> (f64, f64) {
        let seconds = self.since.elapsed().as_secs_f64();
        let [sent, answered] =
            self.counts.each_ref().map(|count| count.load(Ordering::Relaxed) as f64 / seconds);
        (sent, answered)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.abort();
    }
}
