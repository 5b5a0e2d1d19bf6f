//! Killed or hindered at each write: the next attempt puts everything right.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use rstest::rstest;
use sluice_api::names;
use sluice_e2e::pair::{at_second, both};
use sluice_testbed::kubevirt::Migration;
use sluice_testbed::proxy::Action;
use sluice_testbed::{Component, ports, wait};

use crate::faults::gate::{Forwarder, Gate};
use crate::faults::invariants::Invariants;
use crate::faults::scene::Scene;
use crate::faults::steps::{Step, writes};
use crate::faults::world::{self, Shared, account};

const SOON: Duration = Duration::from_secs(60);

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
enum When {
    /// The request never reaches the API server.
    Before,
    /// The API server has done it; the process does not learn of it.
    After,
}

impl When {
    const fn action(self) -> Action {
        match self {
            Self::Before => Action::DropBefore,
            Self::After => Action::ApplyThenLoseResponse,
        }
    }
}

/// A webhook that was killed at a write, and the migration that it was asked about.
struct Killed {
    scene: Scene,
    migration: Migration,
    /// Where the API server asks: at the webhook that was killed, or else at the port that is named.
    _forwarder: Forwarder,
}

impl Killed {
    async fn at(world: &'static Shared, (step, when): (&Step, When), next: u16) -> Self {
        let identity = account(world.bed, names::WEBHOOK).await;
        let (scene, gate) =
            tokio::join!(Scene::with_own_webhook(world.bed, "crash"), Gate::start(world, &identity, &[]));
        let name = scene.tenant.name();
        let forwarder = Forwarder::to(vec![gate.port, next]).await;
        gate.serve_at(world.bed, forwarder.port, name, &[world.bed.admin().unwrap()]).await;
        let victim = Arc::clone(&gate.webhook);
        let rule = step.rule(name, when.action()).times(1).then(move |_| victim.program.kill());
        let killed = gate.proxy.add(rule);
        let migration = scene.vm.migrate().await.unwrap();
        killed.wait_applied(1, SOON).await.unwrap_or_else(|error| panic!("{step:?} {when:?}: {error}"));
        Self { scene, migration, _forwarder: forwarder }
    }

    /// The migration succeeds, and so does the next one.
    async fn goes_on(&self) {
        let (scene, bed) = (&self.scene, self.scene.tenant.bed);
        scene.settled_when_woken(&self.migration).await;
        scene.reset().await;
        let migration = scene.vm.migrate().await.unwrap();
        scene.settled(&migration).await;
        Invariants::of(bed, scene.tenant.name()).await.holds(0);
    }
}

/// What a webhook left that was killed is put back when its lock is over; the next process goes on.
async fn restarted_after(world: &'static Shared, step: &Step, when: When) {
    let port = ports::free().unwrap();
    let killed = Killed::at(world, (step, when), port).await;
    killed.scene.tenant.until_clear().await;
    let identity = account(world.bed, names::WEBHOOK).await;
    let _next = Gate::start_at(world, &identity, port, &[]).await;
    killed.goes_on().await;
}

#[rstest]
#[case::before(When::Before)]
#[case::after(When::After)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhook_is_killed_at_each_write_and_started_again(#[case] when: When) {
    let (world, steps) = (world::shared().await, writes().await);
    join_all(steps.iter().map(|step| restarted_after(world, step, when))).await;
}

/// The shared webhook is the replica: it has seen the lock that was left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_killed_after_its_raise_and_a_replica_goes_on() {
    let (world, steps) = (world::shared().await, writes().await);
    let raise = steps.iter().find(|step| step.is_raise()).unwrap();
    Killed::at(world, (raise, When::After), world.gate.port).await.goes_on().await;
}

/// The first two of each kind of write go wrong, in each of the ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_write_goes_wrong_in_each_way() {
    let (world, steps) = (world::shared().await, writes().await);
    let faults = Action::failures();
    let scenes = join_all(faults.iter().map(|_| Scene::unlimited(world.bed, "wrong"))).await;
    let all = faults.iter().zip(&scenes).map(|((name, fault), scene)| async move {
        for step in steps {
            let met = world.gate.proxy.add(step.rule(scene.tenant.name(), fault.clone()).times(2));
            scene.migrate_through().await;
            assert!(met.applied() >= 1, "{name}: {step:?} was never met");
            world.gate.proxy.remove(&met);
            scene.reset().await;
        }
    });
    join_all(all).await;
}

/// A process that starts needs an API server that is ready: before, it does not know anyone's rights.
async fn until_ready(server: &Client) {
    let ready = || async {
        let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
        server.request_text(request).await.ok().map(drop)
    };
    wait::eventually(SOON, ready, "the API server to be ready").await.unwrap();
}

/// KubeVirt's controller and the webhook speak with the API server that is killed, the rest of the cluster with another one.
/// Proofs go to each API server directly, past the proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_is_killed_at_each_write() {
    let (world, steps) = (world::pair().await, writes().await);
    let bed = world.bed;
    let scene = Scene::unlimited(bed, "killed").await;
    let name = scene.tenant.name();
    let identity = bed.at_second_server(&account(bed, names::WEBHOOK).await).unwrap();
    let (servers, port) = (both(bed), ports::free().unwrap());
    let args = servers.each_ref().map(String::as_str);
    let mut gate = Gate::start_at(&world, &identity, port, &args).await;
    gate.serve(bed, name, &[bed.admin().unwrap(), at_second(bed)]).await;
    for step in steps.iter().filter(|step| !step.is_probe()) {
        let kill = move |_: &_| bed.stop(Component::SecondApiServer);
        let rule = step.rule(name, Action::ApplyThenLoseResponse).times(1).then(kill);
        let killed = gate.proxy.add(rule);
        let migration = scene.vm.migrate().await.unwrap();
        killed.wait_applied(1, SOON).await.unwrap_or_else(|error| panic!("{step:?}: {error}"));
        bed.start_component(Component::SecondApiServer).unwrap();
        scene.tenant.until_clear().await;
        until_ready(&at_second(bed)).await;
        // Another process, which does not know that the namespace was locked in vain.
        drop(gate);
        gate = Gate::start_at(&world, &identity, port, &args).await;
        scene.settled_when_woken(&migration).await;
        Invariants::of(bed, name).await.holds(2);
        scene.reset().await;
    }
}
