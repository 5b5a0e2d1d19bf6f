//! Each request is answered late, with an error, or not at all.

use std::time::Duration;

use futures::future::join_all;
use sluice_testbed::proxy::Action;

use crate::gate::Gate;
use crate::scene::Scene;
use crate::steps::{of_a_window, writes_of_a_window};
use crate::world;

/// The first two of each kind of write go wrong, in each of the ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_write_goes_wrong_in_each_way() {
    let (world, steps) = (world::shared().await, writes_of_a_window().await);
    let faults = Action::failures();
    let scenes = join_all(faults.iter().map(|_| Scene::unlimited(world.bed, "wrong"))).await;
    let gate = &Gate::of(world, &scenes.iter().collect::<Vec<_>>()).await;
    let steps = &steps;
    let all = faults.iter().zip(&scenes).map(|((name, fault), scene)| async move {
        for step in steps {
            let met = gate.proxy.add(step.rule(scene.tenant.name(), fault.clone()).times(2));
            scene.migrate_through().await;
            assert!(met.applied() >= 1, "{name}: {step:?} was never met");
            gate.proxy.remove(&met);
            scene.reset().await;
        }
    });
    join_all(all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_request_is_slow() {
    let (world, steps) = (world::shared().await, of_a_window().await);
    let scenes = join_all((0..4).map(|_| Scene::unlimited(world.bed, "slow"))).await;
    let gate = &Gate::of(world, &scenes.iter().collect::<Vec<_>>()).await;
    let share = steps.len().div_ceil(scenes.len());
    let all = steps.chunks(share).zip(&scenes).map(|(steps, scene)| async move {
        for step in steps {
            let slow = Action::Delay(Duration::from_millis(1_500));
            let met = gate.proxy.add(step.rule(scene.tenant.name(), slow));
            scene.migrate_through().await;
            assert!(!step.is_write() || met.applied() >= 1, "{step:?} was never met");
            gate.proxy.remove(&met);
            scene.reset().await;
        }
    });
    join_all(all).await;
}
