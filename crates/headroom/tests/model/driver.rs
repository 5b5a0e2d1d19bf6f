//! What a replica does with each command of the production machine, as `hands.rs` and `clear.rs` do it.

use std::time::Duration;

use sluice_engine::headroom::Raise;
use sluice_headroom::protocol::{Answer, Command, Opening, QuotaRef};

use crate::actions::queue;
use crate::api::Landed;
use crate::rules::{Rules, Without};
use crate::world::{
    Item, Orphan, Quota, RaiseWrite, RestoreWrite, Run, SERVERS, Snapshot, Stage, Sweep, World, amount,
    native, position,
};

impl Run {
    pub fn new(nonce: u8, target: usize, machine: Opening, remembered: Vec<Snapshot>) -> Self {
        Self {
            nonce,
            target,
            machine,
            is_locked: false,
            looks: false,
            other: None,
            records: Vec::new(),
            remembered,
            raised: Vec::new(),
            restoring: None,
            drains: None,
            clearing: None,
            was_overtaken: false,
            has_promised: false,
        }
    }

    /// Whether the command is a request, or a wait, that can come to nothing.
    pub fn can_fail(&self) -> bool {
        !matches!(self.machine.command(), Command::Await | Command::ReadBudget)
    }

    fn raise_write(&self, raise: &Raise, need: u8) -> RaiseWrite {
        let quota = position(&raise.quota);
        let (read, to) = (self.records[quota], amount(&raise.hard));
        RaiseWrite { run: self.nonce, quota, read, to, marks: raise.marked, need }
    }

    /// The next write that restores this quota; `None`: it has to be read first.
    pub fn restore_write(&self, quota: &QuotaRef) -> Option<RestoreWrite> {
        let position = position(&quota.name);
        let known = match self.restoring {
            Some(known) => known?,
            None => *self.records.get(position)?,
        };
        let is_it = native(position, &known).uid == quota.uid;
        let Snapshot { identity, spec, .. } = known;
        is_it.then_some(RestoreWrite { quota: position, identity, spec, listed: None })
    }
}

impl Rules {
    pub fn can_step(&self, world: &World, run: &Run) -> bool {
        let namespace = &world.namespaces[world.targets[run.target].namespace];
        match run.machine.command() {
            Command::Lock => self.can_lock(world, run),
            Command::WaitForOther => namespace.window.as_ref().map(|window| window.nonce) != run.other,
            Command::Prove => self.is_proven(world, run) || namespace.life(run.nonce) < 2,
            Command::Drain => run.drains.is_none_or(|left| left == 0) || self.lacks(Without::Drain),
            Command::Settle(marked) => self.settled(world, run, marked.as_ref()).is_some(),
            Command::Await => self.awaited(world, run).is_some(),
            _ => true,
        }
    }

    fn is_proven(&self, world: &World, run: &Run) -> bool {
        let namespace = &world.namespaces[world.targets[run.target].namespace];
        if self.lacks(Without::Proof) {
            return true;
        }
        if self.lacks(Without::ProofEverywhere) {
            return namespace.life(run.nonce) > 0 && namespace.enforced[0] == Some(run.nonce);
        }
        namespace.is_proven(run.nonce)
    }

    fn left(&self, world: &World, run: &Run) -> Duration {
        let life = world.namespaces[world.targets[run.target].namespace].life(run.nonce);
        match life {
            2 => Duration::from_secs(4),
            _ if self.lacks(Without::TimeLeft) => Duration::from_secs(4),
            1 => Duration::from_secs(1),
            _ => Duration::ZERO,
        }
    }

    /// The write under way, if the command is one.
    pub fn orphan(&self, world: &World, run: &Run) -> Option<Orphan> {
        let namespace = world.targets[run.target].namespace;
        match run.machine.command() {
            Command::Lock if !run.looks => {
                Some(Orphan::Create { namespace, nonce: run.nonce, target: run.target })
            }
            Command::Raise(raise) => {
                Some(Orphan::Raise { namespace, write: run.raise_write(&raise, self.need) })
            }
            Command::Restore(quota) => {
                run.restore_write(&quota).map(|write| Orphan::Restore { namespace, write })
            }
            _ => None,
        }
    }

    pub fn step(&self, world: &mut World, replica: usize) {
        let Some(mut run) = world.replicas[replica].run.take() else { return };
        // What it does is done as the holder of its window.
        world.replicas[replica].run = Some(run.clone());
        if let Some(answer) = self.carry_out(world, &mut run) {
            run.machine.take(answer);
        }
        self.go_on(world, replica, run);
    }

    pub fn not_seen(&self, world: &mut World, replica: usize) {
        let Some(mut run) = world.replicas[replica].run.take() else { return };
        let target = &world.targets[run.target];
        let life = world.namespaces[target.namespace].life(run.nonce);
        if target.stage != Stage::Idle && life == 2 {
            world.budget.impatience -= 1;
        }
        run.machine.take(Answer::NotSeen);
        self.go_on(world, replica, run);
    }

    /// The mark of another window refuses this one.
    pub fn refuse_window(&self, world: &mut World, replica: usize) {
        let Some(mut run) = world.replicas[replica].run.take() else { return };
        run.machine.take(Answer::Failed("refused".into()));
        self.go_on(world, replica, run);
    }

    pub fn lose(&self, world: &mut World, replica: usize, lands: bool) {
        let Some(mut run) = world.replicas[replica].run.take() else { return };
        world.budget.losses -= 1;
        if lands {
            let orphan = self.orphan(world, &run);
            world.orphans.extend(orphan);
            world.orphans.sort();
        }
        let failed = || Answer::Failed("lost".into());
        let life = world.namespaces[world.targets[run.target].namespace].life(run.nonce);
        run.was_overtaken |= matches!(run.machine.command(), Command::Raise(_));
        let answer = match run.machine.command() {
            Command::Lock if !run.looks => {
                run.looks = true;
                None
            }
            Command::WaitForOther => Some(Answer::TimeUp),
            Command::Settle(_) => Some(Answer::Settled),
            Command::Raise(_) if self.lacks(Without::MemoryOfLostRaises) => Some(Answer::Conflict),
            Command::Raise(_) => Some(Answer::Unanswered),
            Command::Restore(_) if self.lacks(Without::RestoreBeforeGivingUp) => Some(Answer::Restored(None)),
            // It is tried again, as long as there is time.
            Command::Restore(_) if life > 1 => {
                run.restoring = Some(None);
                None
            }
            _ => Some(failed()),
        };
        if let Some(answer) = answer {
            run.machine.take(answer);
        }
        self.go_on(world, replica, run);
    }

    /// What needs no request is done at once.
    fn go_on(&self, world: &mut World, replica: usize, mut run: Run) {
        loop {
            match run.machine.command() {
                Command::Recall => {
                    let namespace = world.targets[run.target].namespace;
                    let answer = self.recall(world, &mut run, namespace);
                    run.machine.take(answer);
                }
                Command::Catchup => run.machine.take(Answer::CaughtUp),
                Command::Settle(marked) => match self.settled(world, &run, marked.as_ref()) {
                    Some(answer) => run.machine.take(answer),
                    None => break,
                },
                Command::Admit => {
                    run.has_promised |= self.promises(world, &run);
                    queue(world, run.target);
                    run.machine.take(Answer::Admitted);
                }
                Command::Stop(_) => {
                    world.replicas[replica].run = None;
                    return;
                }
                _ => break,
            }
        }
        world.replicas[replica].run = Some(run);
    }

    fn carry_out(&self, world: &mut World, run: &mut Run) -> Option<Answer> {
        let namespace = world.targets[run.target].namespace;
        match run.machine.command() {
            Command::Lock if run.looks => Some(look(world, run, namespace)),
            Command::Lock => match self.create_window(world, namespace, run.nonce, run.target) {
                Landed::Done => {
                    run.is_locked = true;
                    Some(Answer::Locked)
                }
                Landed::Conflict => {
                    run.looks = true;
                    None
                }
            },
            Command::WaitForOther => Some(Answer::Free),
            Command::ClearOther => {
                let sweep = run.clearing.take().unwrap_or_else(|| Sweep::new(namespace));
                run.clearing = self.sweep(world, sweep);
                run.clearing.is_none().then_some(Answer::Free)
            }
            Command::Prove if self.is_proven(world, run) => Some(Answer::Proven(self.left(world, run))),
            Command::Prove => Some(Answer::Failed("no proof".into())),
            Command::Drain => self.drain(world, run, namespace),
            Command::Read => Some(self.read(world, run, namespace)),
            Command::ReadBudget => Some(Answer::BudgetRead),
            Command::Raise(raise) => Some(self.carry_out_raise(world, run, namespace, &raise)),
            Command::Settle(marked) => self.settled(world, run, marked.as_ref()),
            Command::Await => self.awaited(world, run),
            Command::Restore(quota) => self.carry_out_restore(world, run, namespace, &quota),
            Command::Unlock => {
                if run.is_locked {
                    self.delete_window(world, namespace, run.nonce);
                }
                Some(Answer::Unlocked)
            }
            Command::Recall | Command::Catchup | Command::Admit | Command::Stop(_) => None,
        }
    }

    fn drain(&self, world: &mut World, run: &mut Run, namespace: usize) -> Option<Answer> {
        if run.drains == Some(0) || self.lacks(Without::Drain) {
            run.drains = None;
            return Some(Answer::Drained);
        }
        for queue in &mut world.namespaces[namespace].queues {
            queue.push(Item::Drain(run.nonce));
        }
        run.drains = u8::try_from(SERVERS).ok();
        None
    }

    fn recall(&self, world: &World, run: &mut Run, namespace: usize) -> Answer {
        run.records = std::mem::take(&mut run.remembered);
        let quotas =
            run.records.iter().enumerate().map(|(position, quota)| native(position, quota)).collect();
        let (budget, left) = (self.granted(world, namespace), self.left(world, run));
        Answer::Quotas { quotas, budget, left }
    }

    fn read(&self, world: &World, run: &mut Run, namespace: usize) -> Answer {
        let stored = &world.namespaces[namespace];
        run.records = stored.quotas.iter().map(Quota::snapshot).collect();
        let (budget, left) = (self.granted(world, namespace), self.left(world, run));
        Answer::Quotas { quotas: stored.native(), budget, left }
    }

    fn carry_out_raise(&self, world: &mut World, run: &mut Run, namespace: usize, raise: &Raise) -> Answer {
        // The API server gave up on it before the lock's end.
        if world.namespaces[namespace].life(run.nonce) == 0 && !self.lacks(Without::TimeLeft) && run.is_locked
        {
            return Answer::Conflict;
        }
        let write = run.raise_write(raise, self.need);
        match self.raise(world, namespace, &write) {
            Landed::Done => {
                let after = world.namespaces[namespace].quotas[write.quota].snapshot();
                run.raised.retain(|(other, _)| *other != write.quota);
                run.raised.push((write.quota, after));
                Answer::Raised
            }
            Landed::Conflict => {
                run.was_overtaken = true;
                Answer::Conflict
            }
        }
    }
}

/// Somebody holds the window, or we do without knowing.
fn look(world: &World, run: &mut Run, namespace: usize) -> Answer {
    run.looks = false;
    let Some(window) = &world.namespaces[namespace].window else { return Answer::Free };
    if window.nonce == run.nonce {
        run.is_locked = true;
        return Answer::Locked;
    }
    run.other = Some(window.nonce);
    if window.life == 0 {
        Answer::HeldExpired
    } else if window.target == run.target {
        Answer::HeldForTarget
    } else {
        Answer::Held
    }
}
