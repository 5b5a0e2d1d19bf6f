//! Dashboards for Grafana, which reads them as files or from a ConfigMap.

mod operations;
mod quotas;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::Files;

/// Columns of Grafana's grid.
const COLUMNS: u32 = 24;

/// What a panel looks like.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The latest value, large.
    Stat,
    /// Bars of the latest values, from 0 to 1.
    Share,
    Lines,
    /// The latest values, one a row.
    Table,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Share => "bargauge",
            Self::Lines => "timeseries",
            Self::Table => "table",
        }
    }
}

/// One picture.
#[derive(Clone, Copy, Debug)]
struct Panel {
    title: &'static str,
    kind: Kind,
    /// As Grafana names it.
    unit: &'static str,
    /// Columns of the grid.
    width: u32,
    /// Queries of Prometheus with the names of their series.
    queries: &'static [(&'static str, &'static str)],
}

/// The files by their path under `deploy/`.
///
/// # Errors
/// When one cannot be written as JSON.
pub(crate) fn files() -> anyhow::Result<Files> {
    let all = [
        ("quotas", "Sluice / Quotas and tenants", quotas::PANELS),
        ("operations", "Sluice / Head-room and operations", operations::PANELS),
    ];
    let file = |(name, title, panels): (&str, &str, &[Panel])| {
        let text = serde_json::to_string_pretty(&dashboard(name, title, panels))
            .with_context(|| format!("could not write the dashboard {name} as JSON"))?;
        let path: PathBuf = Path::new("monitoring/grafana").join(format!("{name}.json"));
        Ok((path, text + "\n"))
    };
    all.into_iter().map(file).collect()
}

fn dashboard(name: &str, title: &str, panels: &[Panel]) -> Value {
    json!({
        "uid": format!("sluice-{name}"),
        "title": title,
        "tags": ["sluice"],
        "schemaVersion": 36,
        "editable": true,
        "refresh": "30s",
        "time": { "from": "now-3h", "to": "now" },
        "templating": { "list": [
            { "name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus" },
            {
                "name": "namespace",
                "type": "query",
                "datasource": source(),
                "query": "label_values(kube_application_aware_resourcequota, namespace)",
                "includeAll": true,
                "allValue": ".*",
                "multi": true,
                "current": { "text": ["All"], "value": ["$__all"] },
                "refresh": 2,
                "sort": 1,
            },
        ] },
        "panels": placed(panels),
    })
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// From left to right, then from top to bottom.
fn placed(panels: &[Panel]) -> Vec<Value> {
    let (mut x, mut y, mut row) = (0, 0, 0);
    let mut all = Vec::new();
    for (id, each) in panels.iter().enumerate() {
        if x + each.width > COLUMNS {
            (x, y, row) = (0, y + row, 0);
        }
        let height = if matches!(each.kind, Kind::Stat) { 4 } else { 8 };
        row = row.max(height);
        let place = json!({ "x": x, "y": y, "w": each.width, "h": height });
        x += each.width;
        all.push(panel(id, each, &place));
    }
    all
}

fn panel(id: usize, panel: &Panel, place: &Value) -> Value {
    let is_now = !matches!(panel.kind, Kind::Lines);
    let target = |(number, (query, legend)): (usize, &(&str, &str))| {
        json!({
            "refId": char::from(b'A'.saturating_add(u8::try_from(number).unwrap_or(0))).to_string(),
            "datasource": source(),
            "expr": query,
            "legendFormat": legend,
            "instant": is_now,
            "range": !is_now,
            "format": if matches!(panel.kind, Kind::Table) { "table" } else { "time_series" },
        })
    };
    let mut defaults = json!({ "unit": panel.unit });
    let mut options = json!({});
    match panel.kind {
        Kind::Share => {
            let steps = json!([
                { "color": "green", "value": null },
                { "color": "orange", "value": 0.9 },
                { "color": "red", "value": 1 },
            ]);
            defaults = json!({
                "unit": panel.unit, "min": 0, "max": 1, "thresholds": { "mode": "absolute", "steps": steps },
            });
            options = json!({ "orientation": "horizontal", "displayMode": "basic" });
        }
        Kind::Stat => options = json!({ "colorMode": "none", "graphMode": "none" }),
        Kind::Lines | Kind::Table => {}
    }
    json!({
        "id": id + 1,
        "title": panel.title,
        "type": panel.kind.name(),
        "datasource": source(),
        "gridPos": place,
        "fieldConfig": { "defaults": defaults, "overrides": [] },
        "options": options,
        "targets": panel.queries.iter().enumerate().map(target).collect::<Vec<_>>(),
    })
}
