//! API servers whose clocks differ.

use sluice_api::names;

use crate::faults::gate::Gate;
use crate::faults::invariants::Invariants;
use crate::faults::scene::Scene;
use crate::faults::world::{account, shared};

/// The largest difference at which raises pass.
const APART: i64 = 5;

/// The webhook has the time from the fastest API server that it asks, and writes at a slower one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_passes_through_an_api_server_whose_clock_is_behind() {
    let world = shared().await;
    let scene = Scene::with_own_webhook(world.bed, "clocks").await;
    let gate = Gate::start(world, &account(world.bed, names::WEBHOOK).await, &[]).await;
    gate.serve(world.bed, scene.tenant.name(), &[world.bed.admin().unwrap()]).await;
    gate.proxy.advance_dates(APART);
    for _ in 0..3 {
        scene.migrate_through().await;
        scene.reset().await;
    }
    assert_eq!(scene.tenant.rejected_attempts().await, 0);
    let invariants = Invariants::of(world.bed, scene.tenant.name()).await;
    assert_eq!(invariants.raises(), 6, "{invariants:#?}");
}
