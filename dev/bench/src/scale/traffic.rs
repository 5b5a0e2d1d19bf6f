//! What happens to the pods of a busy cluster: they are created behind the gate, start, change, end and are deleted.

use std::time::Duration;

use crate::fake_api::{FakeApiServer, World};
use crate::pod_json::mix;

/// Changes of pods per second.
pub(super) const RATE_PER_S: u32 = 500;

/// What happens to a pod, in turns: as many come as go. What cannot happen to any pod now gives way to a change that quotas
/// do not depend on, so that there are always as many changes.
const TURNS: [fn(&mut World, u64) -> bool; 5] =
    [World::create, |world, _| world.start(), World::touch, World::end, |world, _| world.delete()];

/// What the turns are, for the figures' file.
pub(super) const DESCRIPTION: &str = "in equal parts: a pod is created with the gate; a released pod runs; a running pod \
     changes; a running pod ends; an ended pod is deleted. Namespaces at random; changes that are due and possible nowhere \
     become changes of running pods. Releases come on top";

/// The changes of a cluster with so many namespaces.
pub(super) struct Traffic {
    namespaces: u64,
    made: u64,
}

impl Traffic {
    pub(super) const fn new(namespaces: u64) -> Self {
        Self { namespaces, made: 0 }
    }

    /// Makes changes for so long, at an even pace.
    pub(super) async fn run(&mut self, server: &FakeApiServer, time: Duration) {
        let mut beat = tokio::time::interval(Duration::from_secs(1) / RATE_PER_S);
        for _ in 0..u64::from(RATE_PER_S) * time.as_secs() {
            beat.tick().await;
            server.change(|world| self.make(world));
        }
    }

    fn make(&mut self, world: &mut World) {
        let (number, namespaces) = (self.made, self.namespaces.max(1));
        self.made += 1;
        let first = mix(number) % namespaces;
        let mut anywhere = |turn: fn(&mut World, u64) -> bool| {
            (0..namespaces).any(|step| turn(world, (first + step) % namespaces))
        };
        let turns = TURNS.len() as u64;
        let turn = usize::try_from(number % turns).ok().and_then(|at| TURNS.get(at));
        if !turn.is_some_and(|turn| anywhere(*turn)) {
            anywhere(World::touch);
        }
    }
}
