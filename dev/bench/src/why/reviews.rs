//! A tenant asks why its pod waits, a hundred times a second, while pods of another one come and are released.

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

/// With and without questions, by turns.
pub(super) async fn measure(run: &Run) -> anyhow::Result<Value> {
    say("why: starting a control plane");
    let site = Site::start_with(Setup::default()).await?;
    let (bed, installation) = site.parts();
    let _webhook = installation.webhook().await?;
    installation.until_gating().await?;
    let tenant_namespace = bed.namespace("tenant", objects::TARGETED).await?;
    let tenant = bed.tenant(&tenant_namespace).await?.client()?;
    objects::create(&site.admin, &tenant_namespace.name, &objects::quota("none", &[("pods", "0")])).await?;
    objects::create(&site.admin, &tenant_namespace.name, &gated_pod("held")).await?;
    let plot = site.plot(Shape { namespaces: 1, each: 1 }).await?;
    let pods = run.either(30, 300);
    let (mut alone, mut beside) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let (mut sent, mut answered) = (Vec::new(), Vec::new());
    for turn in 0..run.either(1, 3) {
        for asks in if turn % 2 == 0 { [false, true] } else { [true, false] } {
            say(&format!("why: releases {} questions", if asks { "beside" } else { "without" }));
            let asking = asks.then(|| Asking::start(&tenant, &tenant_namespace.name));
            let arriving = Arriving::measure(&site, &plot, IDLE_PER_S, pods).await;
            let arriving = arriving.context("pods arriving")?;
            let [p50, p99] = if asks { &mut beside } else { &mut alone };
            p50.push(arriving.p50_ms());
            p99.push(arriving.p99_ms());
            if let Some(asking) = asking {
                let (of_sent, of_answered) = asking.end();
                sent.push(of_sent);
                answered.push(of_answered);
            }
        }
    }
    ensure!(answered.iter().all(|per_s| *per_s > 0.0), "no question was answered");
    let ratio = |with: &[f64], without: &[f64]| {
        median(&mut with.iter().zip(without).map(|(with, without)| with / without).collect::<Vec<_>>())
    };
    let ([mut p50, mut p99], [alone_p50, mut alone_p99]) = (beside, alone);
    let (p50_ratio, p99_ratio) = (ratio(&p50, &alone_p50), ratio(&p99, &alone_p99));
    Ok(json!({
        "pods": pods, "arrivals_per_s": IDLE_PER_S, "sent_per_s": median(&mut sent),
        "answered_per_s": median(&mut answered), "p50_ratio": p50_ratio, "p99_ratio": p99_ratio,
        "p50_ms": median(&mut p50), "p99_ms": median(&mut p99), "without_p99_ms": median(&mut alone_p99),
    }))
}

/// Somebody who asks all the time, whatever the answer. Ends when it is dropped.
struct Asking {
    task: JoinHandle<()>,
    counts: Arc<[AtomicU64; 2]>,
    since: Instant,
}

impl Asking {
    fn start(tenant: &Client, namespace: &str) -> Self {
        let path = format!(
            "/apis/quota.sluice.dev/v1alpha1/namespaces/{namespace}/{}?dryRun=All",
            names::QUOTA_REVIEWS
        );
        let body: Arc<Value> = Arc::new(json!({
            "apiVersion": "quota.sluice.dev/v1alpha1", "kind": names::QUOTA_REVIEW,
            "metadata": {"generateName": "ask-"}, "spec": {"pod": "held"},
        }));
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
                    let has_said =
                        |body: &Value| body.pointer("/status/source").is_some_and(Value::is_object);
                    if answer.is_ok_and(|answer| answer.is_ok() && has_said(&answer.body)) {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Self { task, counts, since: Instant::now() }
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
