//! Starts a bed, prints its processes as one line of JSON and waits to be killed.
//!
//! Used by the tests that check that nothing is left behind; also a minimal example.

use std::io::Write as _;

use sluice_testbed::{Bed, BedOptions};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let bed = Bed::start(BedOptions::default()).await?;
    let line = serde_json::json!({
        "dir": bed.dir(), "processes": bed.processes(), "ready_ms": bed.ready_after().as_millis() as u64,
    });
    writeln!(std::io::stdout(), "{line}")?;
    std::future::pending().await
}
