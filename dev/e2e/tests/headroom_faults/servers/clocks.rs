//! Our clock and the API server's disagree.

use std::sync::Arc;
use std::time::Duration;

use sluice_api::names;
use sluice_e2e::tenant::own;
use sluice_testbed::Bed;
use sluice_testbed::proxy::{Action, FaultProxy};

use crate::gate::{Entry, Gate};
use crate::scene::Scene;
use crate::steps::writes_of_a_window;
use crate::world::{World, account, controller_proxy, installed};

const SOON: Duration = Duration::from_secs(60);
const HOUR: i64 = 3600;

/// The webhook and the controller believe that it is another time than the API server says. Windows open at the first
/// attempt, and one that is left behind is cleared neither before its time nor an hour after it.
async fn apart(bed: &'static Bed, world: &World, proxy: &FaultProxy, seconds: i64) {
    proxy.set_clock_ahead(seconds);
    proxy.cut_watches();
    let scene = Scene::unlimited(bed, "apart").await;
    let identity = account(bed, names::WEBHOOK).await;
    let gate = Gate::at(bed, &world.installation, &identity, &[]).await;
    gate.proxy.set_clock_ahead(seconds);
    gate.proxy.cut_watches();
    let name = scene.tenant.name();
    Entry::new(bed, gate.port, &[name]).in_force(bed, &[name], std::slice::from_ref(&gate)).await;
    let account = scene.migrate_through().await;
    assert_eq!(account.raises(), 2, "{account:#?}");
    assert_eq!(scene.tenant.rejected_attempts().await, 0);
    scene.reset().await;
    // Killed with everything raised.
    let steps = writes_of_a_window().await;
    let restore = steps.iter().find(|step| step.is_restore()).unwrap();
    let victim = Arc::clone(&gate.webhook);
    let kill = restore.rule(name, Action::DropBefore).times(1).then(move |_| victim.program.kill());
    let killed = gate.proxy.add(kill);
    let migration = scene.vm.migrate().await.unwrap();
    killed.wait_applied(1, SOON).await.unwrap();
    let account = scene.through(&migration).await;
    assert!(account.raises() >= 4, "{account:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_clock_is_an_hour_off_in_either_direction() {
    let bed: &'static Bed = Box::leak(Box::new(own().await));
    let installation = installed(bed).await;
    let proxy = controller_proxy(bed).await;
    let controller = installation.controller_with(proxy.kubeconfig(), &[]).await.unwrap();
    installation.until_locking().await.unwrap();
    let world = World::of(bed, installation, controller);
    for seconds in [HOUR, -HOUR] {
        apart(bed, &world, &proxy, seconds).await;
    }
}
