//! What can happen next, and what comes of it.

use sluice_headroom::protocol::{Command, Done, Ending};

use crate::rules::Rules;
use crate::world::{Fate, Flight, Run, Stage, World};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// virt-controller creates a target, or tries again, and this process is asked about it.
    Post {
        target: usize,
        process: usize,
    },
    /// The other webhook answers about a target.
    Sibling {
        target: usize,
        allows: bool,
    },
    ChargeTarget(usize),
    PostThief {
        thief: usize,
        server: usize,
    },
    ChargeThief(usize),
    /// The informer of an API server.
    CatchUp(usize),
    /// A process's watch of quotas.
    Watch(usize),
    /// A process's watch of targets.
    See {
        process: usize,
        target: usize,
    },
    Step(usize),
    /// A wait of a session is over.
    TimeUp(usize),
    /// The answer to a raise is lost; the raise itself may come later.
    Lose {
        run: usize,
        lands: bool,
    },
    Land(usize),
    Crash(usize),
    Sweep {
        namespace: usize,
        quota: usize,
    },
    StepSweep(usize),
    Sync {
        namespace: usize,
        quota: usize,
    },
    Nudge {
        namespace: usize,
        quota: usize,
    },
    Edit {
        namespace: usize,
        quota: usize,
    },
    AddKey {
        namespace: usize,
        quota: usize,
    },
    Free(usize),
    /// The migration of a target ends, and the target stays.
    Leave(usize),
    /// The migration of a target succeeds, and its source ends.
    Move(usize),
    Revoke,
    Tick,
}

/// How far the clock goes on while nothing but sessions is left; more than a lock that is renewed holds.
const OVERTIME: u8 = 4;

impl Rules {
    pub fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        self.of_targets(world, actions);
        self.of_thieves(world, actions);
        self.of_sluice(world, actions);
        self.of_quotas(world, actions);
        let stale = (0..world.caches.len()).filter(|server| world.caches[*server] != world.quotas);
        actions.extend(stale.map(Action::CatchUp));
        if world.clock < self.ticks && self.may_tick(world) {
            actions.push(Action::Tick);
        }
        // Sessions that are left only wait for time to pass; limits of a marked quota may be refused to be synced.
        let is_quiet = actions.iter().all(|action| matches!(action, Action::Sync { .. }));
        let is_left = !world.runs.is_empty() && (self.ticks..self.ticks + OVERTIME).contains(&world.clock);
        if is_quiet && is_left && self.is_prompt(world) {
            actions.push(Action::Tick);
        }
    }

    /// No session waits for what never comes.
    pub fn sessions_end(&self, world: &World) -> bool {
        if world.runs.is_empty() || world.wrong.is_some() {
            return true;
        }
        let mut actions = Vec::new();
        self.possible(world, &mut actions);
        actions.iter().any(|action| {
            let mut next = world.clone();
            self.act(&mut next, action);
            next != *world
        })
    }

    fn of_targets(&self, world: &World, actions: &mut Vec<Action>) {
        for (position, target) in world.targets.iter().enumerate() {
            match target.stage {
                Stage::Idle if target.tries > 0 => {
                    let all = if self.roams {
                        0..world.processes.len()
                    } else {
                        target.process..target.process + 1
                    };
                    actions.extend(all.map(|process| Action::Post { target: position, process }));
                }
                Stage::Asking { sibling: false, .. } => {
                    actions.push(Action::Sibling { target: position, allows: true });
                    if world.budget.denials > 0 {
                        actions.push(Action::Sibling { target: position, allows: false });
                    }
                }
                Stage::Quota if self.can_judge(world, 0, target.namespace, self.need) => {
                    actions.push(Action::ChargeTarget(position));
                }
                _ => {}
            }
            if target.stage != Stage::In {
                continue;
            }
            if target.fate == Fate::UnderWay && world.budget.leftovers > 0 {
                actions.push(Action::Leave(position));
            }
            if target.fate == Fate::UnderWay && world.budget.moves > 0 {
                actions.push(Action::Move(position));
            }
            let watching = |process: &usize| {
                (self.roams || *process == target.process) && !world.processes[*process].seen[position]
            };
            let all = (0..world.processes.len()).filter(watching);
            actions.extend(all.map(|process| Action::See { process, target: position }));
        }
    }

    fn of_thieves(&self, world: &World, actions: &mut Vec<Action>) {
        for (position, thief) in world.thieves.iter().enumerate() {
            match thief.flight {
                Flight::Idle => {
                    let servers = 0..world.caches.len();
                    let open = servers.filter(|server| self.passes(world, *server, thief.namespace));
                    actions.extend(open.map(|server| Action::PostThief { thief: position, server }));
                }
                Flight::Passed { server, .. }
                    if self.can_judge(world, server, thief.namespace, thief.size) =>
                {
                    actions.push(Action::ChargeThief(position));
                }
                _ => {}
            }
        }
    }

    fn of_sluice(&self, world: &World, actions: &mut Vec<Action>) {
        for (index, run) in world.runs.iter().enumerate() {
            let queued = Self::is_queued(world, index);
            if queued || self.time_up(world, index).is_some() {
                actions.push(Action::TimeUp(index));
            }
            if self.can_step(world, index) {
                actions.push(Action::Step(index));
            }
            let is_raise = matches!(run.machine.command(), Command::Raise { .. });
            if world.budget.losses > 0 && is_raise && !queued {
                actions.extend([true, false].map(|lands| Action::Lose { run: index, lands }));
            }
        }
        for process in 0..world.processes.len() {
            let view = &world.processes[process];
            let is_late = if self.rests { !view.events.is_empty() } else { view.quotas != world.quotas };
            if is_late {
                actions.push(Action::Watch(process));
            }
            let works = world.runs.iter().any(|run| run.process == process);
            if works && world.budget.crashes > 0 {
                actions.push(Action::Crash(process));
            }
        }
        actions.extend((0..world.orphans.len()).map(Action::Land));
        actions.extend((0..world.sweeping.len()).map(Action::StepSweep));
    }

    fn of_quotas(&self, world: &World, actions: &mut Vec<Action>) {
        let budget = &world.budget;
        for (namespace, quotas) in world.quotas.iter().enumerate() {
            for (position, stored) in quotas.iter().enumerate() {
                let quota = position;
                if world.sweeping.len() < self.sweeps && self.is_left(world, position, stored) {
                    actions.push(Action::Sweep { namespace, quota });
                }
                if stored.stale || budget.resyncs > 0 {
                    actions.push(Action::Sync { namespace, quota });
                }
                if budget.nudges > 0 {
                    actions.push(Action::Nudge { namespace, quota });
                }
                if budget.edits > 0 {
                    actions.push(Action::Edit { namespace, quota });
                }
                if budget.keys > 0 {
                    actions.push(Action::AddKey { namespace, quota });
                }
            }
            if budget.frees > 0 && world.actual[namespace] > 0 {
                actions.push(Action::Free(namespace));
            }
        }
        if budget.revokes > 0 {
            actions.push(Action::Revoke);
        }
    }

    /// The clock waits for what takes milliseconds, or something is held up; for other webhooks it waits never, but the API
    /// server gives them up after 10 s.
    fn may_tick(&self, world: &World) -> bool {
        let gives_up = world.targets.iter().any(|target| {
            matches!(target.stage, Stage::Asking { sibling: false, .. }) && world.clock > target.posted_at
        });
        !gives_up && (world.budget.delays > 0 || self.is_prompt(world))
    }

    fn is_prompt(&self, world: &World) -> bool {
        let waits = |index: usize| {
            world.runs[index].machine.command() == Command::Await && !self.can_step(world, index)
        };
        let judged = world.targets.iter().all(|target| target.stage != Stage::Quota);
        judged && (0..world.runs.len()).all(waits)
    }

    /// Takes an action. Where the model has rests, watches are going to show what it wrote.
    pub fn act(&self, world: &mut World, action: &Action) {
        let before = self.rests.then(|| world.quotas.clone());
        self.take_action(world, action);
        if let Some(before) = before.filter(|before| *before != world.quotas) {
            self.note_write(world, &before);
        }
    }

    fn take_action(&self, world: &mut World, action: &Action) {
        match *action {
            Action::Post { target, process } => self.post(world, target, process),
            Action::Sibling { target, allows: true } => {
                if let Stage::Asking { ours, .. } = world.targets[target].stage {
                    let asking = Stage::Asking { ours, sibling: true };
                    world.targets[target].stage = if ours { Stage::Quota } else { asking };
                }
            }
            Action::Sibling { target, allows: false } => {
                world.budget.denials -= 1;
                self.refuse(world, target, false);
            }
            Action::ChargeTarget(target) => self.charge_target(world, target),
            Action::PostThief { thief, server } => {
                let namespace = world.thieves[thief].namespace;
                let late = world.targets.iter().any(|target| {
                    target.namespace == namespace && target.promised && target.stage != Stage::In
                });
                world.thieves[thief].flight = Flight::Passed { server, late };
            }
            Action::ChargeThief(thief) => self.charge_thief(world, thief),
            Action::CatchUp(server) => world.caches[server].clone_from(&world.quotas),
            Action::Watch(process) => self.watch(world, process),
            Action::See { process, target } => world.processes[process].seen[target] = true,
            Action::Step(run) => self.step(world, run, None),
            Action::TimeUp(run) => self.end_wait(world, run),
            Action::Lose { run, lands } => self.lose(world, run, lands),
            Action::Land(orphan) => {
                let write = world.orphans.remove(orphan);
                self.raise(world, &write);
            }
            Action::Crash(process) => self.crash(world, process),
            Action::Tick => self.tick(world),
            _ => self.act_on_quotas(world, action),
        }
    }

    fn act_on_quotas(&self, world: &mut World, action: &Action) {
        match *action {
            Action::Sweep { namespace, quota } => {
                world.sweeping.push((namespace, quota, world.quotas[namespace][quota]));
            }
            Action::StepSweep(sweep) => {
                let (namespace, quota, seen) = world.sweeping.remove(sweep);
                self.restore(world, (namespace, quota), &seen);
            }
            Action::Sync { namespace, quota } => {
                let is_due = world.quotas[namespace][quota].stale;
                if self.sync(world, namespace, quota) {
                    world.budget.resyncs -= u8::from(!is_due);
                }
            }
            Action::Nudge { namespace, quota } => {
                world.budget.nudges -= 1;
                world.quotas[namespace][quota].written();
            }
            Action::Edit { namespace, quota } => {
                world.budget.edits -= 1;
                let stored = &mut world.quotas[namespace][quota];
                (stored.spec, stored.stale, stored.since) = (self.edit, true, world.clock + 1);
                stored.written();
            }
            Action::AddKey { namespace, quota } => {
                world.budget.keys -= 1;
                let stored = &mut world.quotas[namespace][quota];
                (stored.second[0], stored.stale) = (true, true);
                stored.written();
            }
            Action::Free(namespace) => {
                world.budget.frees -= 1;
                world.actual[namespace] -= 1;
                world.quotas[namespace].iter_mut().for_each(|quota| quota.stale = true);
            }
            Action::Leave(target) => {
                world.budget.leftovers -= 1;
                world.targets[target].fate = Fate::Left;
            }
            Action::Move(target) => {
                world.budget.moves -= 1;
                world.targets[target].fate = Fate::Moved;
                let namespace = world.targets[target].namespace;
                world.actual[namespace] -= self.need - self.overhead;
                world.quotas[namespace].iter_mut().for_each(|quota| quota.stale = true);
            }
            Action::Revoke => {
                world.budget.revokes -= 1;
                world.granted = false;
            }
            _ => {}
        }
    }

    pub fn post(&self, world: &mut World, position: usize, process: usize) {
        let clock = world.clock;
        let target = &mut world.targets[position];
        target.tries -= 1;
        target.process = process;
        target.stage = Stage::Asking { ours: false, sibling: !self.slow_sibling };
        target.posted_at = clock;
        self.open(world, position);
    }

    fn end_wait(&self, world: &mut World, index: usize) {
        if Self::is_queued(world, index) {
            let run = world.runs.remove(index);
            return let_go(world, &run);
        }
        let Some(outcome) = self.time_up(world, index) else { return };
        if matches!(outcome, Done::Ended(Ending::Unproven(_))) {
            world.budget.impatience = world.budget.impatience.saturating_sub(1);
        }
        self.step(world, index, Some(outcome));
    }

    fn lose(&self, world: &mut World, index: usize, lands: bool) {
        world.budget.losses -= 1;
        world.excuse();
        let run = &mut world.runs[index];
        run.delayed = true;
        let write = self.raise_write(&world.runs[index], world.targets[world.runs[index].target].namespace);
        world.orphans.extend(write.filter(|_| lands));
        self.step(world, index, Some(Done::Unanswered));
    }

    fn tick(&self, world: &mut World) {
        if !self.is_prompt(world) {
            world.budget.delays -= 1;
            world.excuse();
            world.runs.iter_mut().for_each(|run| run.delayed = true);
        }
        world.clock += 1;
    }
}

/// The webhook does not answer: its `failurePolicy` is `Ignore`.
pub fn let_go(world: &mut World, run: &Run) {
    let target = &mut world.targets[run.target];
    if run.is_for(target) {
        target.promised = false;
        target.stage = target.stage.answered();
    }
}
