//! The API server is killed and started again.

use futures::future::join_all;
use kube::Api;
use kube::api::ListParams;
use sluice_api::MigrationWindow;
use sluice_testbed::kubevirt::Migration;
use sluice_testbed::proxy::{Action, FaultProxy};
use sluice_testbed::{Bed, BedOptions};

use crate::gate::Gate;
use crate::scene::Scene;
use crate::steps::writes_of_a_controller;
use crate::stop::Stop;
use crate::world::{World, controller_proxy, installed};

async fn world() -> (World, FaultProxy) {
    // What was answered is in the log, even if the API server is killed at once.
    let api_server_args = vec!["--audit-log-mode=blocking".to_owned()];
    let options = BedOptions { kubevirt: true, api_server_args, ..BedOptions::default() };
    let bed: &'static Bed = Box::leak(Box::new(Bed::start(options).await.unwrap()));
    let installation = installed(bed).await;
    let proxy = controller_proxy(bed).await;
    let controller = installation.controller_with(proxy.kubeconfig(), &[]).await.unwrap();
    installation.until_locking().await.unwrap();
    (World::of(bed, installation, controller), proxy)
}

/// After each write of a window, whose answer is lost. An API server that starts may not know of our kinds at first: for the
/// half minute until it looks again it enforces no window, nothing is proven and nothing raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_restarts_at_each_write_of_a_window() {
    let (world, proxy) = world().await;
    let steps = writes_of_a_controller(world.bed, &proxy).await;
    // One more is the webhook's: its target is on its way when the API server is killed.
    let asked = Scene::unlimited(world.bed, "asked").await;
    let gate = Gate::of(&world, &[&asked]).await;
    let scenes: Vec<(Scene, Migration)> =
        join_all(steps.iter().map(|_| Scene::rejected(world.bed, "restart"))).await;
    let stop = Stop::default();
    let lost = Action::ApplyThenLoseResponse;
    for (step, (scene, _)) in steps.iter().zip(&scenes) {
        stop.hold(&proxy, scene.tenant.name(), step, lost.clone());
    }
    join_all(scenes.iter().map(|(scene, _)| scene.tenant.unlimited())).await;
    stop.until_all_stand().await;
    // While it stands virt-controller makes no other target.
    let raise = steps.iter().rfind(|step| step.is_raise()).unwrap();
    stop.hold(&gate.proxy, asked.tenant.name(), raise, lost);
    let migration = asked.vm.migrate().await.unwrap();
    stop.until_all_stand().await;
    let windows: Api<MigrationWindow> = Api::all(world.bed.admin().unwrap());
    let open = windows.list(&ListParams::default()).await.unwrap().items.len();
    assert!(open > steps.len() / 2, "only {open} windows are open");
    world.bed.stop_api_server();
    stop.let_go();
    world.bed.start_api_server().await.unwrap();
    asked.through(&migration).await;
    join_all(scenes.iter().map(|(scene, migration)| scene.through(migration))).await;
}
