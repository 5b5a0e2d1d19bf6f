//! What processes remember of locks, as `observed_locks.rs` keeps it, and when one ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_headroom::protocol::Rests;

use crate::actions::let_go;
use crate::rules::{Rules, Without};
use crate::world::{Process, Quota, World, Wrong, reference};

/// A process and a namespace.
type Place = (usize, usize);

fn now_ms(world: &World) -> u64 {
    u64::try_from(world.now_ms()).unwrap_or(0)
}

/// Stands for what administrators have set, as far as a process knows it.
fn situation(world: &World, (process, namespace): Place) -> u64 {
    let view = &world.processes[process];
    let specs = view.quotas[namespace].iter().fold(0, |sum, quota| sum * 256 + u64::from(quota.spec));
    specs * 2 + u64::from(view.granted)
}

impl Rules {
    /// Something was written: every watch is going to show it.
    /// A lock that ends is in vain if nothing was charged while it held.
    pub fn note_write(&self, world: &mut World, before: &[Vec<Quota>]) {
        for (namespace, before) in before.iter().enumerate() {
            let is_marked = |quotas: &[Quota]| quotas.iter().any(|quota| quota.mark.is_some());
            let used = |quotas: &[Quota]| quotas.iter().map(|quota| quota.used).max();
            let now = &world.quotas[namespace];
            let (began, vain) = &mut world.locks[namespace];
            match (is_marked(before), is_marked(now)) {
                (false, true) => *began = used(now),
                (true, true) if used(now) > *began => (*began, *vain) = (None, None),
                (true, false) => *vain = began.take().map(|_| world.clock),
                _ => {}
            }
        }
        for process in &mut world.processes {
            process.events.push_back(world.quotas.clone());
        }
    }

    /// The watch of quotas of a process shows the next state, or all of them at once.
    pub fn watch(&self, world: &mut World, process: usize) {
        let next = world.processes[process].events.pop_front();
        world.processes[process].quotas = next.unwrap_or_else(|| world.quotas.clone());
        if self.rests {
            self.remember(world, process);
        }
    }

    fn remember(&self, world: &mut World, process: usize) {
        for namespace in 0..world.quotas.len() {
            let (now_ms, situation) = (now_ms(world), situation(world, (process, namespace)));
            let Process { quotas, rests, .. } = &mut world.processes[process];
            let marked = quotas[namespace].iter().enumerate().filter(|(_, quota)| quota.mark.is_some());
            let usage: BTreeMap<_, _> =
                marked.map(|(position, quota)| (reference(position).uid, quota.used.into())).collect();
            let usage = (!usage.is_empty()).then_some(usage);
            let name: Arc<str> = namespace.to_string().into();
            if usage.is_some() || rests.knows(&name) {
                rests.see(&name, usage, situation, now_ms);
            }
        }
    }

    pub fn is_resting(&self, world: &World, place: Place) -> bool {
        let rests = &world.processes[place.0].rests;
        self.rests && rests.is_resting(&place.1.to_string(), situation(world, place), now_ms(world))
    }

    /// Whether a session does not go on here, because the namespace rests. It is not asked where `guard` is taken away.
    pub fn holds_back(&self, world: &mut World, place: Place, guard: Without) -> bool {
        if self.is_resting(world, place) && !self.lacks(guard) && !self.lacks(Without::Rests) {
            return true;
        }
        let process = &world.processes[place.0];
        let is_shown = process.events.is_empty() && !process.restarted;
        if self.rests && is_shown && world.locks[place.1].1 == Some(world.clock) {
            world.blame(Wrong::OpenedInRest);
        }
        false
    }

    /// The room in a namespace was taken by a pod that it was not made for.
    pub fn note_theft(&self, world: &mut World, place: Place) {
        if self.rests {
            let (now_ms, situation) = (now_ms(world), situation(world, place));
            world.processes[place.0].rests.taken(&place.1.to_string().into(), situation, now_ms);
        }
    }

    /// All that a process knew is gone; it lists anew.
    pub fn crash(&self, world: &mut World, process: usize) {
        world.budget.crashes -= 1;
        let (gone, left) =
            std::mem::take(&mut world.runs).into_iter().partition::<Vec<_>, _>(|run| run.process == process);
        world.runs = left;
        gone.iter().for_each(|run| let_go(world, run));
        let view = &mut world.processes[process];
        (view.rests, view.restarted) = (Rests::default(), true);
        view.events.clear();
        self.watch(world, process);
    }
}
