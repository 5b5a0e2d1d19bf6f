//! How the commands of the production machine are carried out, as `executor.rs` and `restore.rs` do it.

use sluice_headroom::protocol::{Command, Done, Ending, Look, QuotaRef, RENEWAL_MS, WindowSession};

use crate::actions::let_go;
use crate::looks::Read;
use crate::rules::{Rules, Without};
use crate::world::{Quota, RaiseWrite, Run, Stage, Target, World, Wrong, count, key, native, need, position};

impl Rules {
    /// The webhook is asked about a target.
    pub fn open(&self, world: &mut World, target: usize) {
        let id = world.sessions;
        let tries = world.targets[target].tries;
        let process = world.targets[target].process;
        let is_earlier = |run: &&mut Run| run.target == target && run.process == process;
        if let Some(earlier) = world.runs.iter_mut().rfind(is_earlier) {
            if earlier.let_in_at.is_some() && earlier.attempts.1.is_none() {
                return join(world, target, self.need);
            }
            // A later attempt tells that this one failed.
            earlier.denied = true;
        }
        if self.holds_back(world, (process, world.targets[target].namespace), Without::Rests) {
            world.targets[target].stage = world.targets[target].stage.answered();
            return;
        }
        world.sessions += 1;
        world.runs.push(Run {
            id,
            process,
            target,
            machine: WindowSession::new(need(self.need)),
            read: Read::Nothing,
            records: Vec::new(),
            explained: Vec::new(),
            granted: world.granted,
            locked_at: 0,
            let_in_at: None,
            attempts: (tries, None),
            renewed: false,
            denied: false,
            delayed: false,
        });
    }

    /// Whether an earlier session of this process holds the lane of the namespace.
    pub fn is_queued(world: &World, index: usize) -> bool {
        let place = |run: &Run| (run.process, world.targets[run.target].namespace);
        world.runs[..index].iter().any(|run| place(run) == place(&world.runs[index]))
    }

    pub fn can_step(&self, world: &World, index: usize) -> bool {
        let run = &world.runs[index];
        if Self::is_queued(world, index) {
            return false;
        }
        let target = &world.targets[run.target];
        match run.machine.command() {
            Command::WaitForOther => {
                let view = &world.processes[run.process].quotas[target.namespace];
                !view.iter().filter_map(|quota| quota.mark).any(|mark| !run.machine.is_own(mark))
            }
            Command::Settle(mark) => self.is_settled(world, run, mark),
            Command::Look(Look::Raised) => self.is_shown(world, run),
            Command::Await => self.awaited(world, run).is_some(),
            Command::Confirm => self.is_seen(world, run),
            _ => true,
        }
    }

    fn is_settled(&self, world: &World, run: &Run, mark: i64) -> bool {
        let target = &world.targets[run.target];
        let knows =
            |cache: &Vec<Vec<Quota>>| cache[target.namespace].iter().any(|quota| quota.mark == Some(mark));
        let first = if self.lacks(Without::SettleEverywhere) { 1 } else { 0 };
        self.lacks(Without::Settle) || world.caches[first..].iter().all(knows)
    }

    /// Whether the watch has shown the raises.
    fn is_shown(&self, world: &World, run: &Run) -> bool {
        let target = &world.targets[run.target];
        let view = &world.processes[run.process].quotas[target.namespace];
        let shown = |quota: &QuotaRef| {
            let position = position(&quota.name);
            view[position].version >= run.records[position].version
        };
        self.lacks(Without::ShownRaise) || run.machine.raised().iter().all(shown)
    }

    fn awaited(&self, world: &World, run: &Run) -> Option<Done> {
        let (namespace, raised) = (world.targets[run.target].namespace, run.machine.raised());
        if self.is_seen(world, run) {
            return Some(Done::Ended(Ending::Entered));
        }
        // The watch may not have shown the raise yet.
        let shown = |quota: &QuotaRef| {
            let at = position(&quota.name);
            let shown = world.processes[run.process].quotas[namespace][at];
            let without = self.lacks(Without::OwnWrites);
            native(at, &if without { shown } else { newest(world, run, (namespace, at)) })
        };
        // Quotas that are only marked do not tell.
        let mut charged = raised.iter().filter_map(|quota| shown(quota).is_charged()).peekable();
        if charged.peek().is_some() && charged.all(|is_charged| is_charged) {
            let ending = if self.lacks(Without::Seeing) { Ending::Entered } else { Ending::Taken };
            return Some(Done::Ended(ending));
        }
        let own = |quota: &QuotaRef| shown(quota).mark().is_some_and(|mark| run.machine.is_own(mark));
        if !raised.iter().all(own) {
            return Some(Done::Ended(Ending::NotSeen));
        }
        run.denied.then_some(Done::Ended(Ending::Denied))
    }

    /// What a wait that is over comes to; `None` if it is not.
    pub fn time_up(&self, world: &World, index: usize) -> Option<Done> {
        let run = &world.runs[index];
        match run.machine.command() {
            Command::WaitForOther => Some(Done::Ended(Ending::Busy)),
            Command::Settle(_) | Command::Look(Look::Raised) if world.budget.impatience > 0 => {
                Some(Done::Ended(Ending::Unproven("slow".into())))
            }
            Command::Settle(mark) if self.never_settles(world, run, mark) => {
                Some(Done::Ended(Ending::Unproven("no such mark".into())))
            }
            Command::Confirm => Some(Done::Ended(self.confirmed(world, run))),
            Command::Await => self.hold_over(world, run),
            _ => None,
        }
    }

    /// No quota has the mark any more.
    fn never_settles(&self, world: &World, run: &Run, mark: i64) -> bool {
        let is_known = world.caches.iter().all(|cache| *cache == world.quotas);
        is_known && !self.is_settled(world, run, mark) && !self.lacks(Without::SettleTime)
    }

    /// The watch has not shown the target in time: what the pods of the namespace tell.
    fn confirmed(&self, world: &World, run: &Run) -> Ending {
        let target = &world.targets[run.target];
        let quotas = &world.quotas[target.namespace];
        let mut raised = run.machine.raised().iter().map(|quota| &quotas[position(&quota.name)]);
        let is_unread = self.lacks(Without::ReadPods) || self.lacks(Without::AnyReplica);
        if target.stage == Stage::In && !is_unread {
            Ending::Entered
        } else if raised.all(|quota| world.actual[target.namespace] < quota.used) {
            Ending::Denied
        } else {
            Ending::NotSeen
        }
    }

    fn is_seen(&self, world: &World, run: &Run) -> bool {
        let seen = world.processes[run.process].seen[run.target];
        seen && (!self.lacks(Without::AnyReplica) || run.is_for(&world.targets[run.target]))
    }

    /// The API server gives up webhooks after 10 s, and a little later the target is not waited for any more.
    fn hold_over(&self, world: &World, run: &Run) -> Option<Done> {
        if self.lacks(Without::HoldForSiblings) {
            return Some(Done::Ended(Ending::NotSeen));
        }
        let is_pending = matches!(world.targets[run.target].stage, Stage::Asking { .. } | Stage::Quota);
        let passed = world.clock - run.let_in_at.unwrap_or(world.clock);
        if !run.renewed {
            let without = self.lacks(Without::Renewal);
            let closing = if without { Done::Ended(Ending::NotSeen) } else { Done::Closing };
            return (world.clock > run.locked_at).then_some(closing);
        }
        (passed > 1 || (passed > 0 && !is_pending)).then_some(Done::Ended(Ending::NotSeen))
    }

    pub fn step(&self, world: &mut World, index: usize, outcome: Option<Done>) {
        let mut run = world.runs[index].clone();
        let place = (run.process, world.targets[run.target].namespace);
        // The turn has come, and the one before may have been in vain.
        if run.is_new() && self.holds_back(world, place, Without::Rests) {
            world.runs.remove(index);
            return let_go(world, &run);
        }
        let outcome = outcome.or_else(|| self.carry_out(world, &mut run));
        if let Some(outcome) = outcome {
            take(world, &mut run, self.need, outcome);
        }
        // What needs no request is done at once.
        while run.machine.command() == Command::LetIn {
            if let Some(outcome) = self.carry_out(world, &mut run) {
                take(world, &mut run, self.need, outcome);
            }
        }
        let Command::Stop(ending) = run.machine.command() else {
            world.runs[index] = run;
            return;
        };
        let Target { stage, namespace, .. } = world.targets[run.target];
        if ending == Ending::Entered && stage != Stage::In {
            world.blame(Wrong::EnteredUnseen);
        } else if ending == Ending::Taken {
            if stage == Stage::In {
                world.blame(Wrong::FalselyTaken);
            }
            self.note_theft(world, (run.process, namespace));
        }
        world.runs.remove(index);
    }

    fn carry_out(&self, world: &mut World, run: &mut Run) -> Option<Done> {
        let namespace = world.targets[run.target].namespace;
        match run.machine.command() {
            Command::Look(Look::Raised) => Some(Done::Seen(self.raised(world, run))),
            Command::Look(look) => self.look(world, run, look),
            Command::WaitForOther => {
                let rests = self.holds_back(world, (run.process, namespace), Without::Rests);
                Some(if rests { Done::Ended(Ending::Resting) } else { Done::Free })
            }
            Command::Clear => {
                self.end(world, run, |world, run, mark| world.is_over(mark) && !run.machine.is_own(mark))
            }
            Command::Raise { .. } => {
                let write = self.raise_write(run, namespace)?;
                if !self.raise(world, &write) {
                    return Some(Done::Conflict);
                }
                run.records[write.quota] = world.quotas[namespace][write.quota];
                run.locked_at = world.clock;
                Some(Done::Written)
            }
            Command::Settle(_) => Some(Done::Settled),
            Command::LetIn => Some(Done::LetIn),
            Command::Await => self.awaited(world, run),
            Command::Renew => Some(Self::renewed(world, run)),
            Command::Restore => {
                let any = self.lacks(Without::OwnMark);
                self.end(world, run, move |_, run, mark| any || run.machine.is_own(mark))
            }
            Command::Confirm => Some(Done::Ended(Ending::Entered)),
            Command::Stop(_) => None,
        }
    }

    /// The raise that is the next command.
    pub fn raise_write(&self, run: &Run, namespace: usize) -> Option<RaiseWrite> {
        let Command::Raise { raise, mark } = run.machine.command() else { return None };
        let quota = position(&raise.quota);
        let Quota { version, hard, .. } = run.records[quota];
        let to =
            raise.keys.iter().find(|raised| raised.key == key()).map_or(hard, |raised| count(&raised.to));
        Some(RaiseWrite {
            namespace,
            quota,
            version,
            to,
            mark,
            granted: run.granted,
            explained: run.explained.get(quota).copied().unwrap_or(true),
        })
    }

    fn renewed(world: &mut World, run: &mut Run) -> Done {
        let namespace = world.targets[run.target].namespace;
        run.renewed = true;
        for quota in run.machine.raised().to_vec() {
            let at = (namespace, position(&quota.name));
            let known = newest(world, run, at);
            let own = known.mark.filter(|mark| run.machine.is_own(*mark));
            if own.is_some_and(|own| Self::renew(world, at, known.version, own + RENEWAL_MS)) {
                run.records[at.1] = world.quotas[at.0][at.1];
                run.locked_at = world.clock;
            }
        }
        Done::Written
    }

    /// Ends one raise after the other, whatever else has changed: after a conflict a quota is read, and written in the next
    /// step.
    fn end(
        &self,
        world: &mut World,
        run: &mut Run,
        is_own: impl Fn(&World, &Run, i64) -> bool,
    ) -> Option<Done> {
        let namespace = world.targets[run.target].namespace;
        let left = |world: &World, run: &Run, position: usize| {
            let known = newest(world, run, (namespace, position));
            known.mark.is_some_and(|mark| is_own(world, run, mark)).then_some((position, known))
        };
        let mut all = 0..world.quotas[namespace].len();
        if let Some((position, known)) = all.clone().find_map(|position| left(world, run, position)) {
            self.restore(world, (namespace, position), &known);
            run.records[position] = world.quotas[namespace][position];
        }
        all.all(|position| left(world, run, position).is_none()).then_some(Done::Written)
    }
}

/// The quota as it was written, read or shown last.
fn newest(world: &World, run: &Run, (namespace, position): (usize, usize)) -> Quota {
    let shown = world.processes[run.process].quotas[namespace][position];
    let known = run.records.get(position).copied();
    known.filter(|known| known.version > shown.version).unwrap_or(shown)
}

fn take(world: &mut World, run: &mut Run, need: u8, outcome: Done) {
    let lets_in = run.machine.command() == Command::LetIn && outcome == Done::LetIn;
    run.machine.on_done(outcome);
    if !lets_in {
        return;
    }
    run.let_in_at = Some(world.clock);
    let is_due = run.machine.command() == Command::Await && !run.delayed;
    let promised = is_due && has_room(world, run.target, need);
    let target = &mut world.targets[run.target];
    if run.is_for(target) && target.stage.is_asking() {
        target.promised = promised;
        target.stage = target.stage.answered();
    }
}

/// The attempt uses the raise that was made for the one before it, as long as that is held.
fn join(world: &mut World, target: usize, need: u8) {
    let (clock, tries) = (world.clock, world.targets[target].tries);
    let process = world.targets[target].process;
    let is_earlier = |run: &&mut Run| run.target == target && run.process == process;
    let Some(earlier) = world.runs.iter_mut().rfind(is_earlier) else { return };
    earlier.attempts.1 = Some(tries);
    // What is left of the waiting time may be less than another webhook takes.
    let is_held = earlier.machine.command() == Command::Await && earlier.let_in_at == Some(clock);
    let is_due = is_held && !earlier.delayed && !earlier.denied;
    let promised = is_due && has_room(world, target, need);
    let target = &mut world.targets[target];
    target.stage = target.stage.answered();
    target.promised = promised;
}

/// Another pod of the same size may have been charged before.
fn has_room(world: &World, target: usize, need: u8) -> bool {
    let quotas = &world.quotas[world.targets[target].namespace];
    quotas.iter().all(|quota| quota.used + need <= quota.hard)
}
