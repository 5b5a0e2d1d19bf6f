//! The webhook is killed.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};

use super::When;
use crate::gate::{Entry, Forwarder, Gate};
use crate::scene::Scene;
use crate::steps::{Step, writes_of_a_window};
use crate::world::{self, World};

/// How many are killed at the same time.
const AT_ONCE: usize = 8;

/// Kills the webhook at a write. Another one takes over: a replica, or the same one, started again.
async fn killed_at(world: &World, step: &Step, when: When, replica: bool) {
    let scene = Scene::unlimited(world.bed, "crash").await;
    let namespace = scene.tenant.name();
    let mut gate = Gate::behind(world, &[]).await;
    let other = if replica { Some(Gate::behind(world, &[]).await) } else { None };
    let ports = [Some(gate.port), other.as_ref().map(|other| other.port)].into_iter().flatten().collect();
    let forwarder = Forwarder::to(ports).await;
    let entry = Entry::new(world.bed, forwarder.port, &[namespace]);
    entry.in_force(world.bed, &[namespace], std::slice::from_ref(&gate)).await;
    let victim = Arc::clone(&gate.webhook);
    let rule = step.rule(namespace, when.action()).times(1).then(move |_| victim.program.kill());
    let killed = gate.proxy.add(rule);
    let migration = scene.vm.migrate().await.unwrap();
    killed.wait_applied(1, Duration::from_secs(60)).await.unwrap();
    if !replica {
        gate.restart(world.bed, &world.installation).await;
    }
    let account = scene.through(&migration).await;
    assert!(account.raises() >= 2, "{step:?} {when:?}: {account:#?}");
    // The next one finds nothing in its way.
    scene.reset().await;
    scene.migrate_through().await;
}

async fn killed_at_each(replica: bool) {
    let (world, steps) = (world::shared().await, writes_of_a_window().await);
    let cases = steps.iter().flat_map(|step| When::BOTH.map(|when| (step, when)));
    stream::iter(cases)
        .for_each_concurrent(AT_ONCE, |(step, when)| killed_at(world, step, when, replica))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhook_is_killed_at_each_write_and_started_again() {
    killed_at_each(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhook_is_killed_at_each_write_and_a_replica_goes_on() {
    killed_at_each(true).await;
}
