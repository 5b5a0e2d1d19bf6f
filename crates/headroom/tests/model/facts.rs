//! What a session is told of grants and of pods.

use std::sync::Arc;

use sluice_engine::ScopeFacts;
use sluice_engine::headroom::{Account, AccountedPod, Budget, Grant, Stake};

use crate::rules::{Rules, Without};
use crate::world::{Fate, Stage, World, additional, need};

impl Rules {
    pub fn budget(&self, world: &World, process: usize, namespace: usize) -> Budget {
        let view = &world.processes[process];
        if !view.granted {
            return Budget::default();
        }
        let (source, granted) = (Arc::from("model"), additional(self.additional));
        if !self.is_pool {
            return Budget { grants: vec![Grant::Amounts { source, additional: granted, percent: None }] };
        }
        let others = view.quotas.iter().enumerate().filter(|(other, _)| *other != namespace);
        // The watch of pods is taken to be as far as that of quotas here: a target that another replica has let in and that
        // it does not show yet is not counted.
        let taken = others.map(|(other, quotas)| {
            let machines = world.inside(other).map(|_| self.need).sum();
            quotas.iter().map(|quota| quota.overdraft(machines)).max().unwrap_or(0)
        });
        let taken_elsewhere = additional(taken.sum());
        let per_namespace = additional(u8::MAX);
        Budget { grants: vec![Grant::Pool { source, additional: granted, taken_elsewhere, per_namespace }] }
    }

    /// The pods of a namespace: all of them, or those of machines that the process was shown.
    pub fn account(&self, world: &World, (process, namespace): (usize, usize), is_complete: bool) -> Account {
        let pod = |name: &str, since: u8, amount: u8, stake: Stake| AccountedPod {
            name: name.into(),
            since: since.into(),
            charge: need(amount).charge,
            facts: ScopeFacts::default(),
            stake,
        };
        if self.lacks(Without::Account) || self.lacks(Without::AccountAtAll) {
            return Account {
                pods: vec![pod("any", 0, 0, Stake::Passes(need(u8::MAX).charge))],
                is_complete,
            };
        }
        let (mut pods, mut others) = (Vec::new(), world.actual[namespace]);
        let runs = || Stake::Runs(need(self.overhead).charge);
        for (position, target) in world.targets.iter().enumerate().filter(|(_, it)| it.namespace == namespace)
        {
            let is_in = target.stage == Stage::In;
            if self.overhead > 0 && !(is_in && target.fate == Fate::Moved) {
                let size = self.need - self.overhead;
                others = others.saturating_sub(size);
                pods.push(pod("source", 0, size, runs()));
            }
            if !is_in {
                continue;
            }
            others = others.saturating_sub(self.need);
            if is_complete || world.processes[process].seen[position] {
                // A launcher is as old as its machine.
                let (since, stake) = match target.fate {
                    Fate::UnderWay => (u8::MAX, Stake::Passes(need(self.need).charge)),
                    Fate::Left => (u8::MAX, Stake::Stays),
                    Fate::Moved => (0, runs()),
                };
                pods.push(pod("target", since, self.need, stake));
            }
        }
        for thief in world.thieves.iter().filter(|thief| thief.namespace == namespace) {
            let Some(since) = thief.since else { continue };
            others = others.saturating_sub(thief.size);
            pods.extend(is_complete.then(|| pod("other", since, thief.size, Stake::Stays)));
        }
        pods.extend(is_complete.then(|| pod("first", 0, others, Stake::Stays)));
        Account { pods, is_complete }
    }
}
