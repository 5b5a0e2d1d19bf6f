//! What Prometheus itself says of the alerts and of the queries of the dashboards.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod cases;
mod dashboards;
mod rules;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sluice_testbed::debian::prometheus;

/// What promtool prints, or what it says is wrong.
fn promtool(arguments: &[&str], file: &Path) -> Result<String, String> {
    let output = Command::new(prometheus().unwrap().promtool).args(arguments).arg(file).output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    if output.status.success() { Ok(text) } else { Err(text) }
}

/// JSON is YAML too.
fn write(path: &Path, value: &Value) {
    std::fs::write(path, value.to_string()).unwrap();
}
