//! Virtual machines under quotas that count them as such: what they cost the gate's state, and how long targets of a drain
//! are held under full quotas of the real virt-controller's VMs.

mod drain;
mod state;

use serde_json::json;

use crate::report::{Run, extend, figures, say, verdict};
use drain::{Drains, VMS};
use state::Machines;

/// No lock is held longer.
const GOAL_LOCK_MS: f64 = 2.0;
/// No target is held longer.
const GOAL_HELD_MS: f64 = 50.0;

/// Measures, prints, writes `vms.json`.
///
/// # Errors
/// When the control plane or Sluice does not do its part.
pub async fn run(run: &Run) -> anyhow::Result<()> {
    let machines = Machines::measure(run.either(500, 10_000))?;
    say("vms: starting a control plane with KubeVirt");
    let drains = Drains::measure(run.either(1, 3)).await?;
    let is_met = machines.longest_ms() <= GOAL_LOCK_MS && drains.held_max_ms() <= GOAL_HELD_MS;
    let mut file = serde_json::to_value(&machines)?;
    extend(&mut file, drains.json());
    let goals = json!({"goal_lock_hold_ms": GOAL_LOCK_MS, "goal_held_ms": GOAL_HELD_MS, "met": is_met});
    extend(&mut file, goals);

    machines.print()?;
    let lines = [
        ("targets under full quotas that were created with a gate", "drain/gated", None),
        ("held longest, ms", "drain/held_max_ms", Some("goal_held_ms")),
        ("one patch of a pod by KubeVirt in these drains, p50 ms", "drain/patch_p50_ms", None),
        ("the same, longest", "drain/patch_max_ms", None),
        ("targets with a gate where all migrate at once", "drain_at_once/gated", None),
        ("held longest, ms", "drain_at_once/held_max_ms", Some("goal_held_ms")),
        ("one patch of a pod by KubeVirt in these drains, p50 ms", "drain_at_once/patch_p50_ms", None),
        ("the same, longest", "drain_at_once/patch_max_ms", None),
        ("targets with a gate where nothing is copied besides", "drain_busy/gated", None),
        ("one patch of a pod by KubeVirt in these drains, p50 ms", "drain_busy/patch_p50_ms", None),
        ("the same, longest", "drain_busy/patch_max_ms", None),
        ("seconds of such a drain under full quotas", "drain_busy_s", None),
        ("the same without quotas", "drain_unlimited_busy_s", None),
    ];
    figures(&format!("vms: drains of {VMS} VMs"), &lines, &file);
    println!(
        "  state locked at most {:.2} ms (goal {GOAL_LOCK_MS}), targets held at most {:.1} ms (goal {GOAL_HELD_MS}): {}",
        machines.longest_ms(),
        drains.held_max_ms(),
        verdict(is_met)
    );
    run.write("vms", file)
}
