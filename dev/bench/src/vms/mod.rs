//! Virtual machines under quotas that count them as such: what they cost the gate's state, and how long targets of a drain are held
//! under full quotas of the real virt-controller's VMs.

mod drain;
mod state;

use std::path::Path;

use serde_json::json;

use crate::report::{self, Table, round, say, verdict};
use drain::Drains;
use state::Machines;

/// No lock is held longer.
const GOAL_LOCK_MS: f64 = 2.0;
/// No target is held longer.
const GOAL_HELD_MS: f64 = 50.0;

/// Measures, prints, writes `vms.json`.
///
/// # Errors
/// When the control plane or Sluice does not do its part.
pub async fn run(quick: bool, out: &Path) -> anyhow::Result<()> {
    let machine = report::machine();
    let machines = Machines::measure(if quick { 500 } else { 10_000 })?;
    say("vms: starting a control plane with KubeVirt");
    let drains = Drains::measure(if quick { 1 } else { 3 }).await?;
    let is_met = machines.longest_ms() <= GOAL_LOCK_MS && drains.held_max_ms() <= GOAL_HELD_MS;

    machines.print();
    drains.print();
    println!(
        "  state locked at most {:.2} ms (goal {GOAL_LOCK_MS}), targets held at most {:.1} ms (goal {GOAL_HELD_MS}): {}",
        machines.longest_ms(),
        drains.held_max_ms(),
        verdict(is_met)
    );
    let mut file = machines.json();
    let further = json!({
        "goal_lock_hold_ms": GOAL_LOCK_MS,
        "goal_held_ms": GOAL_HELD_MS,
        "met": is_met,
        "drain": drains.json(),
        "drain_s": round(drains.full_s(), 2),
        "drain_unlimited_s": round(drains.unlimited_s(), 2),
        "machine": machine,
        "quick": quick,
    });
    for (name, value) in further.as_object().into_iter().flatten() {
        crate::gate::put(&mut file, name, value.clone());
    }
    report::write(out, "vms", &file)
}

/// A table of one row of figures.
fn figures(title: &str, rows: &[(&str, String)]) {
    let mut table = Table::new(title, &["figure", ""]);
    for (name, value) in rows {
        table.row([(*name).to_owned(), value.clone()]);
    }
    table.print();
}
