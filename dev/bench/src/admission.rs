//! What gating costs the one who creates a pod: beside a namespace whose pods are not gated, on the same control plane in the
//! same run, by turns. Once gated by the admission policy with no process of Sluice alive, once by the webhook alone.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, BedOptions};

use crate::report::{self, Table, median, ms, quantile, round, say};
use crate::resize;

/// Creations that are not counted: connections and caches warm up.
const WARM_UP: usize = 20;

/// Measures, prints, writes `admission.json`.
///
/// # Errors
/// When the control plane or Sluice does not do its part.
pub async fn run(quick: bool, out: &Path) -> anyhow::Result<()> {
    let machine = report::machine();
    let creations = if quick { 60 } else { 1_000 };
    let columns =
        ["gated by", "pods", "not targeted p50 ms", "targeted p50 ms", "added ms", "targeted p99 ms"];
    let mut table = Table::new("admission: creating a pod, one client", &columns);
    let mut file = json!({ "creations": creations, "machine": machine, "quick": quick });
    for (name, webhook_alone) in [("policy", false), ("webhook", true)] {
        say(&format!("admission: pods gated by {name}"));
        let (mut free, mut gated) = measure(webhook_alone, creations).await?;
        let (free_p50, gated_p50) = (median(&mut free), median(&mut gated));
        let gated_p99 = quantile(&mut gated, 0.99);
        let added = gated_p50 - free_p50;
        table.row([
            name.to_owned(),
            creations.to_string(),
            format!("{free_p50:.2}"),
            format!("{gated_p50:.2}"),
            format!("{added:.2}"),
            format!("{gated_p99:.2}"),
        ]);
        let figures = json!({
            "untargeted_p50_ms": round(free_p50, 3),
            "targeted_p50_ms": round(gated_p50, 3),
            "added_p50_ms": round(added, 3),
            "targeted_p99_ms": round(gated_p99, 3),
        });
        if let Some(fields) = file.as_object_mut() {
            fields.insert(name.to_owned(), figures);
        }
    }
    table.print();
    println!(
        "  policy: no process of Sluice runs; webhook: the controller stands still, so that no release is measured too"
    );
    say("admission: resizing a pod");
    let (mut free, mut charged) = resize::measure(creations).await?;
    let figures = json!({
        "untargeted_p50_ms": round(median(&mut free), 3),
        "untargeted_p99_ms": round(quantile(&mut free, 0.99), 3),
        "targeted_p50_ms": round(median(&mut charged), 3),
        "targeted_p99_ms": round(quantile(&mut charged, 0.99), 3),
    });
    let columns = ["resizes", "not targeted p50 ms", "p99 ms", "charged p50 ms", "p99 ms"];
    let mut table = Table::new("admission: a resize that takes more of a quota, one client", &columns);
    let cell = |name: &str| {
        format!("{:.2}", figures.get(name).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN))
    };
    table.row([
        creations.to_string(),
        cell("untargeted_p50_ms"),
        cell("untargeted_p99_ms"),
        cell("targeted_p50_ms"),
        cell("targeted_p99_ms"),
    ]);
    table.print();
    if let Some(fields) = file.as_object_mut() {
        fields.insert("resize".to_owned(), figures.clone());
    }
    report::write(out, "admission", &file)
}

/// Milliseconds of each creation in a namespace that is not targeted, and in one that is.
async fn measure(webhook_alone: bool, creations: usize) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let options = BedOptions { kwok: false, scheduler: false, audit: false, ..BedOptions::default() };
    let bed = Bed::start(options).await?;
    let setup = Setup { webhook_alone, ..Setup::default() };
    let Running { installation, controller, webhook, .. } = Running::on(&bed, setup).await?;
    controller.program.pause();
    if !webhook_alone {
        for program in [&webhook.program, &controller.program, installation.operator()?] {
            program.kill();
        }
    }
    let client = bed.admin()?;
    let free = bed.namespace("free", &[]).await?;
    let gated = bed.namespace("gated", TARGETED).await?;
    let (free, gated) = (Side::of(&client, &free.name), Side::of(&client, &gated.name));
    let (mut free_ms, mut gated_ms) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + creations {
        let (one, other) = (free.create(number, false).await?, gated.create(number, true).await?);
        if number >= WARM_UP {
            free_ms.push(one);
            gated_ms.push(other);
        }
        if number % 100 == 99 {
            free.clear().await?;
            gated.clear().await?;
        }
    }
    Ok((free_ms, gated_ms))
}

/// One of the two namespaces.
struct Side(Api<k8s_openapi::api::core::v1::Pod>);

impl Side {
    fn of(client: &Client, namespace: &str) -> Self {
        Self(Api::namespaced(client.clone(), namespace))
    }

    async fn create(&self, number: usize, held: bool) -> anyhow::Result<f64> {
        let mut pod = objects::pod(&format!("pod-{number}"), &[("cpu", "100m"), ("memory", "64Mi")]);
        if let Some(spec) = pod.spec.as_mut() {
            spec.automount_service_account_token = Some(false);
        }
        let started = Instant::now();
        let created = self.0.create(&PostParams::default(), &pod).await.context("creating a pod")?;
        let took = ms(started.elapsed());
        ensure!(is_held(&created) == held, "the pod is gated: {}", !held);
        Ok(took)
    }

    async fn clear(&self) -> anyhow::Result<()> {
        let now = DeleteParams::default().grace_period(0);
        self.0.delete_collection(&now, &ListParams::default()).await.context("removing pods")?;
        Ok(())
    }
}
