//! Two replicas of the webhook: each attempt of a migration is shown to one of them, and what the other has raised for an
//! earlier attempt is used by the next one.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use futures::future::join;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use sluice_api::names;
use sluice_e2e::simulated_webhook::{SimulatedWebhook, Verdict, WebhookOptions, rule};

use crate::faults::gate::Gate;
use crate::faults::invariants::Invariants;
use crate::faults::scene::Scene;
use crate::faults::world::{self, account};

/// The ends of generated names that the first replica is asked about, and all others.
const HALVES: [&str; 2] = ["[b-n]$", "[^b-n]$"];
/// So many migrations have had one attempt at each of them.
const CROSSED: usize = 3;
/// Half of them do.
const MIGRATIONS: usize = 30;

/// Another webhook denies the first attempt of each migration, so there are two of each; which replica is asked is chance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_comes_by_another_replica_is_no_thief() {
    let world = world::shared().await;
    let identity = account(world.bed, names::WEBHOOK).await;
    let scene = Scene::with_own_webhook(world.bed, "replicas").await;
    let tenant = &scene.tenant;
    let (first, second) = join(Gate::start(world, &identity, &[]), Gate::start(world, &identity, &[])).await;
    let gates = [&first, &second];
    for (gate, half) in gates.iter().zip(HALVES) {
        gate.serve_matching(world.bed, tenant.name(), half).await;
    }
    let options =
        WebhookOptions::new("once.simulated.test", tenant.name(), vec![rule(&["CREATE"], &["pods"])]);
    let denied = Mutex::new(HashSet::new());
    let once = SimulatedWebhook::start(tenant.bed, options, move |review| {
        let migration = review.label("object", names::MIGRATION_JOB_LABEL).to_owned();
        let is_first = denied.lock().unwrap_or_else(PoisonError::into_inner).insert(migration.clone());
        if migration.is_empty() || !is_first { Verdict::allow() } else { Verdict::deny(403, "not yet") }
    });
    let once = once.await.unwrap();
    let mut crossed = 0;
    for _ in 0..MIGRATIONS {
        let before = [first.asked().await, second.asked().await];
        let migration = scene.vm.migrate().await.unwrap();
        scene.settled_when_woken(&migration).await;
        scene.reset().await;
        let after = [first.asked().await, second.asked().await];
        crossed += usize::from(before.iter().zip(after).all(|(before, after)| *before < after));
        if crossed == CROSSED {
            break;
        }
    }
    assert_eq!(crossed, CROSSED, "of {MIGRATIONS} migrations");
    for gate in gates {
        assert_eq!(gate.endings("taken").await, 0);
    }
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let told = events.list(&ListParams::default().fields("reason=HeadroomTaken")).await.unwrap();
    assert!(told.items.is_empty(), "{told:#?}");
    Invariants::of(world.bed, tenant.name()).await.holds(1);
    once.stop().await.unwrap();
}
