//! Releases on a real control plane, with a quota for each namespace, beside gate-removing PATCHes of the same server in the same
//! run. The bench of cluster quotas measures with the same means.
//!
//! Pods are created with the gate by the administrator: the webhook has a bench of its own, and without it the
//! PATCHes have nothing to wait for but the API server, which makes the ratio the harder one to reach.

mod arriving;
mod raw;
mod seen;
mod site;
mod waiting;

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::report::{self, Table, say, verdict};
pub use arriving::{Arriving, arrive, writes};
pub use site::{Shape, Site, stop};
pub use waiting::Waiting;

/// Releases under way at a time, and so PATCHes: the product's default.
const CONCURRENCY: usize = 32;
pub const GOAL_RATIO: f64 = 0.8;
/// Pods that come per second to an idle server.
pub const IDLE_PER_S: f64 = 10.0;
/// For a pod that fits, on an idle server.
const GOAL_IDLE_P99_MS: f64 = 50.0;

/// Measures, prints, writes `gate.json`.
///
/// # Errors
/// When the control plane or the controller does not do its part.
pub async fn run(quick: bool, out: &Path) -> anyhow::Result<()> {
    let machine = report::machine();
    say("gate: starting a control plane");
    let site = Site::start().await?;
    let server = site.server_constants().await?;
    let (shapes, repetitions) = if quick {
        ([Shape { namespaces: 1, each: 100 }, Shape { namespaces: 10, each: 10 }], 1)
    } else {
        ([Shape { namespaces: 1, each: 500 }, Shape { namespaces: 50, each: 20 }], 9)
    };
    let common = json!({"server": server, "machine": machine, "quick": quick});
    let mut rows = Rows { table: table(), json: Vec::new(), common };
    for shape in shapes {
        let plot = site.plot(shape).await?;
        let waiting = Waiting::measure(&site, &plot, repetitions).await?;
        rows.waiting("waiting", &waiting);
        let half = waiting.releases_per_s() / 2.0;
        let pods = if quick { 60 } else { 300 };
        let arriving =
            Arriving::measure(&site, &plot, half, pods).await.context("pods arriving at half the rate")?;
        rows.arriving(shape, "arriving", &arriving, Some(&waiting));
        let idle = Arriving::measure(&site, &plot, IDLE_PER_S, pods / 5)
            .await
            .context("pods arriving now and then")?;
        rows.arriving(shape, "idle", &idle, None);
    }
    rows.table.print();
    println!(
        "  waiting: pods wait already when the controller starts; ratio = releases/s ÷ PATCHes/s of the same\n  repetition, goal ≥ {GOAL_RATIO}; medians"
    );
    println!(
        "  arriving: pods come at half the release rate; idle: ten a second, goal p99 ≤ {GOAL_IDLE_P99_MS} ms"
    );
    println!("  latency: from sending the create request to seeing the pod without gate in a watch");
    report::write(out, "gate", &Value::Array(rows.json))
}

fn table() -> Table {
    Table::new(
        "gate: releases on a real control plane",
        &["run", "namespaces", "pods", "releases/s", "PATCHes/s", "ratio", "p50 ms", "p99 ms", "goal"],
    )
}

struct Rows {
    table: Table,
    json: Vec<Value>,
    /// What is the same for every row.
    common: Value,
}

impl Rows {
    fn waiting(&mut self, name: &str, run: &Waiting) {
        let ratio = run.ratio();
        self.table.row([
            name.to_owned(),
            run.shape.namespaces.to_string(),
            run.shape.pods().to_string(),
            format!("{:.0}", run.releases_per_s()),
            format!("{:.0}", run.raw_patch_per_s()),
            format!("{ratio:.2}"),
            "-".to_owned(),
            "-".to_owned(),
            verdict(ratio >= GOAL_RATIO),
        ]);
        let mut row = run.json();
        put(&mut row, "run", json!(name));
        put(&mut row, "goal_ratio", json!(GOAL_RATIO));
        put(&mut row, "met", json!(ratio >= GOAL_RATIO));
        self.push(row);
    }

    fn arriving(&mut self, shape: Shape, name: &str, run: &Arriving, waiting: Option<&Waiting>) {
        let idle = waiting.is_none();
        let met = idle.then(|| run.p99_ms() <= GOAL_IDLE_P99_MS);
        self.table.row([
            name.to_owned(),
            shape.namespaces.to_string(),
            run.pods().to_string(),
            format!("{:.0}", run.releases_per_s()),
            "-".to_owned(),
            "-".to_owned(),
            format!("{:.1}", run.p50_ms()),
            format!("{:.1}", run.p99_ms()),
            met.map_or_else(|| "-".to_owned(), verdict),
        ]);
        let mut row = run.json(name, shape);
        put(
            &mut row,
            "raw_patch_per_s",
            waiting.map_or(Value::Null, |run| json!(report::round(run.raw_patch_per_s(), 1))),
        );
        // At a given rate of arrival there is nothing to compare: releases come as fast as pods do.
        put(&mut row, "ratio", Value::Null);
        if let Some(met) = met {
            put(&mut row, "goal_p99_ms", json!(GOAL_IDLE_P99_MS));
            put(&mut row, "met", json!(met));
        }
        self.push(row);
    }

    fn push(&mut self, mut row: Value) {
        for (name, value) in self.common.as_object().into_iter().flatten() {
            put(&mut row, name, value.clone());
        }
        self.json.push(row);
    }
}

/// Sets a field.
pub fn put(object: &mut Value, name: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(name.to_owned(), value);
    }
}
