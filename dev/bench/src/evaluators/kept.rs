//! The memory that the gate keeps for pods that evaluators are asked about, as the allocator counts it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::event::{Constant, config};
use super::world::World;
use crate::memory::Held;
use crate::report::{Run, say};

/// Measures it when all pods are listed, and when all have an answer, each beside the same without evaluators. Both figures
/// include the store of pod texts, because no process that reads them runs here.
pub(super) fn measure(run: &Run) -> anyhow::Result<Value> {
    say("evaluators: what is kept of pods");
    let (namespaces, pods) = run.either((200, 3_000), (10_000, 150_000));
    let without = kept(namespaces, pods, false)?;
    let with = kept(namespaces, pods, true)?;
    #[allow(clippy::cast_precision_loss)]
    let per_pod = |mib: f64| mib * f64::from(1 << 20) / pods as f64;
    Ok(json!({
        "pods": pods,
        "listed_mib": with.0 - without.0, "listed_bytes_per_pod": per_pod(with.0 - without.0),
        "answered_mib": with.1 - without.1, "answered_bytes_per_pod": per_pod(with.1 - without.1),
    }))
}

/// The memory (MiB) after the lists, and when the gate has nothing more to do.
fn kept(namespaces: u64, pods: u64, asks: bool) -> anyhow::Result<(f64, f64)> {
    let before = Held::read()?.allocated_mib;
    let mut world = World::listed(namespaces, pods, asks.then(|| config(Arc::new(Constant))))?;
    let listed = Held::read()?.allocated_mib - before;
    world.settle_all()?;
    Ok((listed, Held::read()?.allocated_mib - before))
}
