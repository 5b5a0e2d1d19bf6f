//! What can still be done from a state, whatever else has stopped for ever. It is looked at from each state that can be
//! reached, so no schedule of the rest leads to one that is stuck.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use parking_lot::RwLock;
use sluice_engine::headroom::{Plan, plan};
use sluice_headroom::protocol::{Command, Rests};

use crate::rules::Rules;
use crate::world::{Quota, Stage, World, natives, need};

const MOST_STEPS: usize = 60;
/// Steps of the clock: a lock of one step in vain rests its namespace for ten,
/// and for as much again if there was one before.
const LONGEST_REST: u8 = 40;

/// How later attempts end from states in which only they go on. They are those of one model: a clone knows none.
#[derive(Debug, Default)]
pub struct EndWell {
    known: RwLock<HashMap<u64, bool>>,
    hasher: RandomState,
}

impl Clone for EndWell {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// All processes have stopped, and all locks are over.
fn later(world: &World) -> World {
    let mut world = world.clone();
    while world.quotas.iter().flatten().any(|quota| world.is_live(quota)) {
        world.clock += 1;
    }
    world.runs.clear();
    world.orphans.clear();
    world.sweeping.clear();
    world
}

fn places(world: &World) -> Vec<(usize, usize)> {
    let quotas = world.quotas.iter().enumerate();
    quotas
        .flat_map(|(namespace, quotas)| (0..quotas.len()).map(move |position| (namespace, position)))
        .collect()
}

impl Rules {
    /// No session goes on and kube-controller-manager is away: the sweep has only to wait.
    pub fn sweep_ends_well(&self, world: &World) -> bool {
        let clean = |quota: &Quota| quota.mark.is_none() && quota.hard <= quota.spec;
        let mut end = later(world);
        self.sweep_all(&mut end);
        end.wrong == world.wrong && end.quotas.iter().flatten().all(clean)
    }

    /// All that was written is shown, and no more time passes than the longest rest of so few locks takes.
    fn rests_end(&self, world: &mut World) -> bool {
        for process in 0..world.processes.len() {
            while !world.processes[process].events.is_empty() {
                self.watch(world, process);
            }
            self.watch(world, process);
        }
        let places = |world: &World| 0..world.processes.len() * world.quotas.len();
        let rests = |world: &World| {
            let each = |at: usize| (at % world.processes.len(), at / world.processes.len());
            places(world).any(|at| self.is_resting(world, each(at)))
        };
        let until = world.clock + LONGEST_REST;
        while rests(world) && world.clock < until {
            world.clock += 1;
        }
        !rests(world)
    }

    fn sweep_all(&self, world: &mut World) {
        for (namespace, position) in places(world) {
            let seen = world.quotas[namespace][position];
            if self.is_left(world, position, &seen) {
                self.restore(world, (namespace, position), &seen);
            }
        }
    }

    /// Sluice is gone for ever: kube-controller-manager does what it has to do.
    pub fn manager_ends_well(&self, world: &World) -> bool {
        let mut end = later(world);
        let synced = places(&end).into_iter().all(|(namespace, quota)| self.sync(&mut end, namespace, quota));
        synced && end.quotas.iter().flatten().all(|quota| quota.hard == quota.spec && quota.mark.is_none())
    }

    /// The sweep and kube-controller-manager have done what they do, and virt-controller tries once more: a target that the
    /// plan allows gets in.
    pub fn retry_ends_well(&self, world: &World) -> bool {
        if world.wrong.is_some() || world.targets.iter().all(|target| target.stage == Stage::In) {
            return true;
        }
        let mut end = later(world);
        self.sweep_all(&mut end);
        for (namespace, quota) in places(&end) {
            self.sync(&mut end, namespace, quota);
        }
        if !self.rests_end(&mut end) {
            return false;
        }
        self.settle_down(&mut end);
        let state = self.ends.hasher.hash_one(&end);
        if let Some(ends_well) = self.ends.known.read().get(&state) {
            return *ends_well;
        }
        let asked = |target: usize| {
            let own = end.targets[target].process;
            if self.roams { 0..end.processes.len() } else { own..own + 1 }
        };
        let ends_well = (0..end.targets.len())
            .all(|target| asked(target).all(|process| self.enters(end.clone(), target, process)));
        self.ends.known.write().insert(state, ends_well);
        ends_well
    }

    /// What a later attempt depends on: all else is left out, so that many states are one.
    fn settle_down(&self, world: &mut World) {
        world.quotas.iter_mut().flatten().for_each(|quota| quota.version = 0);
        (world.clock, world.sessions, world.taken) = (0, 0, 0);
        world.budget = crate::world::Budget::default();
        world.thieves.retain(|thief| thief.since.is_some());
        world.caches = vec![world.quotas.clone(); self.servers];
        for process in &mut world.processes {
            process.quotas.clone_from(&world.quotas);
            process.granted = world.granted;
            process.rests = Rests::default();
            process.events.clear();
            process.restarted = true;
        }
        world.locks.fill((None, None));
        for target in world.targets.iter_mut().filter(|target| target.stage != Stage::In) {
            (target.stage, target.tries, target.posted_at) = (Stage::Idle, 1, 0);
        }
    }

    fn enters(&self, mut world: World, target: usize, process: usize) -> bool {
        let namespace = world.targets[target].namespace;
        if world.targets[target].stage == Stage::In {
            return true;
        }
        let plan = plan(
            &need(self.need),
            &natives(&world.quotas[namespace]),
            &self.budget(&world, process, namespace),
        );
        let quotas = natives(&world.quotas[namespace]);
        let account = self.account(&world, (process, namespace), true);
        let is_allowed = match plan {
            Plan::Fits { .. } => true,
            Plan::Raise(raises) => {
                world.granted && account.objections(&need(self.need), &raises, &quotas).is_empty()
            }
            _ => false,
        };
        if !is_allowed {
            return true;
        }
        self.post(&mut world, target, process);
        for _ in 0..MOST_STEPS {
            world.caches = vec![world.quotas.clone(); self.servers];
            world.processes[process].quotas.clone_from(&world.quotas);
            if let Stage::Asking { ours, .. } = world.targets[target].stage {
                world.targets[target].stage =
                    if ours { Stage::Quota } else { Stage::Asking { ours, sibling: true } };
            }
            match world.targets[target].stage {
                Stage::Quota => self.charge_target(&mut world, target),
                Stage::In => return true,
                _ if world.runs.is_empty() => return false,
                _ if self.can_step(&world, 0) => self.step(&mut world, 0, None),
                _ => return false,
            }
        }
        false
    }

    /// Each API server is asked for a mark that a quota carries, unless the raise is over.
    pub fn asks_for_a_mark(&self, world: &World) -> bool {
        world.runs.iter().all(|run| {
            let Command::Settle(asked) = run.machine.command() else { return true };
            let quotas = &world.quotas[world.targets[run.target].namespace];
            let mut marks = quotas
                .iter()
                .filter_map(|quota| quota.mark)
                .filter(|mark| run.machine.is_own(*mark))
                .peekable();
            marks.peek().is_none() || marks.any(|mark| mark == asked)
        })
    }
}
