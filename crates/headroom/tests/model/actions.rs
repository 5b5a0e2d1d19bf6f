//! Everything that can happen next.

use sluice_engine::headroom::Plan;
use sluice_headroom::protocol::{Command, Opening};

use crate::rules::{Rules, Without};
use crate::world::{Item, Orphan, Quota, Run, SERVERS, Snapshot, Stage, Sweep, SweepStep, World, need};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// virt-controller creates a target.
    Post(usize),
    /// A replica is asked about a target.
    Ask {
        replica: usize,
        target: usize,
    },
    /// The API server does not wait for the webhook any longer.
    GoOn(usize),
    /// The next request of an opening arrives, and its answer.
    Step(usize),
    /// It does not, or nobody hears of it; the write may still be under way.
    Lose {
        replica: usize,
        lands: bool,
    },
    /// Quota admission refuses the window because of a mark.
    Refuse(usize),
    /// The target did not come in time.
    NotSeen(usize),
    Land(usize),
    Crash {
        replica: usize,
        sent: bool,
    },
    Restart(usize),
    StartSweep {
        replica: usize,
        namespace: usize,
    },
    StepSweep(usize),
    /// A server learns of the window as it is.
    Enforce {
        namespace: usize,
        server: usize,
    },
    /// A server learns of the quotas as they are.
    Know {
        namespace: usize,
        server: usize,
    },
    Judge {
        namespace: usize,
        server: usize,
    },
    Tenant {
        namespace: usize,
        server: usize,
    },
    Arrive {
        namespace: usize,
        server: usize,
    },
    Delete(usize),
    Edit(usize),
    Recreate(usize),
    Sync {
        namespace: usize,
        quota: usize,
    },
    Tick(usize),
}

impl Rules {
    pub fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        for target in 0..world.targets.len() {
            self.of_target(world, target, actions);
        }
        for replica in 0..world.replicas.len() {
            self.of_replica(world, replica, actions);
        }
        actions.extend((0..world.orphans.len()).map(Action::Land));
        for namespace in 0..world.namespaces.len() {
            self.of_namespace(world, namespace, actions);
        }
    }

    fn of_target(&self, world: &World, position: usize, actions: &mut Vec<Action>) {
        let target = &world.targets[position];
        match target.stage {
            Stage::Idle if target.tries > 0 => actions.push(Action::Post(position)),
            Stage::Asking => {
                let free = |replica: &usize| {
                    let replica = &world.replicas[*replica];
                    replica.alive && replica.run.is_none()
                };
                let is_asked = world
                    .replicas
                    .iter()
                    .any(|replica| replica.run.as_ref().is_some_and(|run| run.target == position));
                if !is_asked {
                    let free = (0..world.replicas.len()).filter(free);
                    actions.extend(free.map(|replica| Action::Ask { replica, target: position }));
                }
                if world.budget.impatience > 0 || world.replicas.iter().all(|replica| !replica.alive) {
                    actions.push(Action::GoOn(position));
                }
            }
            _ => {}
        }
    }

    fn of_replica(&self, world: &World, position: usize, actions: &mut Vec<Action>) {
        let replica = &world.replicas[position];
        if !replica.alive {
            return actions.push(Action::Restart(position));
        }
        if let Some(run) = &replica.run {
            if self.can_step(world, run) {
                actions.push(Action::Step(position));
            }
            if self.lacks(Without::LockBesideMarks) && self.refusals(world, run) > 0 {
                actions.push(Action::Refuse(position));
            }
            if world.budget.losses > 0 && run.can_fail() {
                actions.push(Action::Lose { replica: position, lands: false });
                if self.late_writes && self.orphan(world, run).is_some() {
                    actions.push(Action::Lose { replica: position, lands: true });
                }
            }
            if run.machine.command() == Command::Await {
                let target = &world.targets[run.target];
                let life = world.namespaces[target.namespace].life(run.nonce);
                if life < 2 || target.stage == Stage::Idle || world.budget.impatience > 0 {
                    actions.push(Action::NotSeen(position));
                }
            }
        }
        let busy = replica.run.is_some() || replica.sweep.is_some();
        if world.budget.crashes > 0 && busy {
            actions.push(Action::Crash { replica: position, sent: false });
            if replica.run.as_ref().is_some_and(|run| self.late_writes && self.orphan(world, run).is_some()) {
                actions.push(Action::Crash { replica: position, sent: true });
            }
        }
        if replica.sweep.is_some() {
            actions.push(Action::StepSweep(position));
        } else {
            let dirty = (0..world.namespaces.len()).filter(|namespace| {
                let stored = &world.namespaces[*namespace];
                stored.window.as_ref().map_or_else(
                    || stored.native().iter().any(|quota| quota.is_raised()),
                    |window| window.life == 0 || self.lacks(Without::LookAtTimeBeforeClearing),
                )
            });
            actions.extend(dirty.map(|namespace| Action::StartSweep { replica: position, namespace }));
        }
    }

    fn of_namespace(&self, world: &World, namespace: usize, actions: &mut Vec<Action>) {
        let stored = &world.namespaces[namespace];
        let budget = &world.budget;
        for server in 0..SERVERS {
            if stored.enforced[server] != stored.window.as_ref().map(|window| window.nonce) {
                actions.push(Action::Enforce { namespace, server });
            }
            let stale =
                || !stored.quotas.iter().map(Quota::snapshot).eq(stored.known[server].iter().copied());
            if self.lag && stale() {
                actions.push(Action::Know { namespace, server });
            }
            if !stored.queues[server].is_empty() {
                actions.push(Action::Judge { namespace, server });
            }
            if budget.tenants > 0 && Self::passes(world, namespace, server) {
                actions.push(Action::Tenant { namespace, server });
            }
            if stored.between[server] > 0 {
                actions.push(Action::Arrive { namespace, server });
            }
        }
        if budget.deletes > 0 && stored.tenant > 0 {
            actions.push(Action::Delete(namespace));
        }
        if budget.edits > 0 {
            actions.push(Action::Edit(namespace));
        }
        if budget.recreations > 0 {
            actions.push(Action::Recreate(namespace));
        }
        for (quota, state) in stored.quotas.iter().enumerate() {
            let may_write =
                self.privileged_manager || self.lacks(Without::KeptStatus) || !stored.keeps_status();
            if (state.stale || budget.resyncs > 0) && may_write {
                actions.push(Action::Sync { namespace, quota });
            }
        }
        if let Some(window) = stored.window.as_ref().filter(|window| window.life > 0)
            && (window.life > 1 || !world.drives(window.nonce) || budget.delays > 0)
        {
            actions.push(Action::Tick(namespace));
        }
    }

    pub fn act(&self, world: &mut World, action: &Action) {
        match action {
            Action::Post(target) => {
                let target = &mut world.targets[*target];
                target.tries = target.tries.saturating_sub(1);
                target.stage = Stage::Asking;
            }
            Action::Ask { replica, target } => self.ask(world, *replica, *target),
            Action::GoOn(target) => {
                if world.replicas.iter().any(|replica| replica.alive) {
                    world.budget.impatience = world.budget.impatience.saturating_sub(1);
                }
                queue(world, *target);
            }
            Action::Step(replica) => self.step(world, *replica),
            Action::Lose { replica, lands } => self.lose(world, *replica, *lands),
            Action::Refuse(replica) => self.refuse_window(world, *replica),
            Action::NotSeen(replica) => self.not_seen(world, *replica),
            Action::Land(orphan) => {
                let orphan = world.orphans.remove(*orphan);
                self.land(world, &orphan);
            }
            Action::Crash { replica, sent } => self.crash(world, *replica, *sent),
            Action::Restart(replica) => world.replicas[*replica].alive = true,
            Action::StartSweep { replica, namespace } => {
                world.replicas[*replica].sweep = Some(Sweep::new(*namespace));
            }
            Action::StepSweep(replica) => {
                let sweep = world.replicas[*replica].sweep.take();
                world.replicas[*replica].sweep = sweep.and_then(|sweep| self.sweep(world, sweep));
            }
            _ => self.act_around(world, action),
        }
    }

    /// What others do than Sluice and virt-controller.
    fn act_around(&self, world: &mut World, action: &Action) {
        match action {
            Action::Enforce { namespace, server } => {
                let stored = &mut world.namespaces[*namespace];
                stored.enforced[*server] = stored.window.as_ref().map(|window| window.nonce);
            }
            Action::Know { namespace, server } => know(world, *namespace, *server),
            Action::Judge { namespace, server } => {
                if !self.lag {
                    know(world, *namespace, *server);
                }
                self.judge(world, *namespace, *server);
            }
            Action::Tenant { namespace, server } => {
                world.budget.tenants -= 1;
                let stored = &mut world.namespaces[*namespace];
                if self.gap {
                    stored.between[*server] += 1;
                } else {
                    stored.queues[*server].push(Item::Tenant);
                }
            }
            Action::Arrive { namespace, server } => {
                let stored = &mut world.namespaces[*namespace];
                stored.between[*server] -= 1;
                stored.queues[*server].push(Item::Tenant);
            }
            Action::Delete(namespace) => {
                world.budget.deletes -= 1;
                let stored = &mut world.namespaces[*namespace];
                stored.tenant -= 1;
                stored.quotas.iter_mut().for_each(|quota| quota.stale = true);
            }
            Action::Edit(namespace) => {
                world.budget.edits -= 1;
                let quota = &mut world.namespaces[*namespace].quotas[0];
                quota.spec = self.edit;
                quota.stale = true;
            }
            Action::Recreate(namespace) => {
                world.budget.recreations -= 1;
                self.sync(world, *namespace, 0);
                world.namespaces[*namespace].quotas[0].identity += 1;
            }
            Action::Sync { namespace, quota } => {
                if !world.namespaces[*namespace].quotas[*quota].stale {
                    world.budget.resyncs = world.budget.resyncs.saturating_sub(1);
                }
                self.sync(world, *namespace, *quota);
            }
            Action::Tick(namespace) => self.tick(world, *namespace),
            _ => {}
        }
    }

    fn ask(&self, world: &mut World, replica: usize, target: usize) {
        if matches!(self.plan(world, world.targets[target].namespace), Plan::Fits { tight: false }) {
            return queue(world, target);
        }
        world.runs += 1;
        let remembered =
            world.namespaces[world.targets[target].namespace].quotas.iter().map(Quota::snapshot).collect();
        let opening = Opening::new(need(self.need));
        world.replicas[replica].run = Some(Run::new(world.runs, target, opening, remembered));
    }

    fn crash(&self, world: &mut World, position: usize, sent: bool) {
        world.budget.crashes = world.budget.crashes.saturating_sub(1);
        world.crashed = true;
        let replica = &mut world.replicas[position];
        replica.alive = false;
        replica.sweep = None;
        let Some(run) = replica.run.take() else { return };
        if sent {
            let orphan = self.orphan(world, &run);
            world.orphans.extend(orphan);
            world.orphans.sort();
        }
        leave(world, run.nonce);
        // The webhook does not answer: its configuration says that this is as good as yes.
        if world.targets[run.target].stage == Stage::Asking {
            queue(world, run.target);
        }
    }

    fn tick(&self, world: &mut World, namespace: usize) {
        let Some(window) = &mut world.namespaces[namespace].window else { return };
        window.life -= 1;
        let (nonce, life) = (window.nonce, window.life);
        if life > 0 {
            return;
        }
        if world.drives(nonce) {
            world.budget.delays = world.budget.delays.saturating_sub(1);
        }
        leave(world, nonce);
        if !self.lacks(Without::TimeLeft) {
            // The API server was given less time for it than the lock had left.
            let late = |orphan: &Orphan| matches!(orphan, Orphan::Raise { write, .. } if write.run == nonce);
            world.orphans.retain(|orphan| !late(orphan));
        }
    }
}

/// The target goes into the queue of its server.
pub fn queue(world: &mut World, position: usize) {
    let target = &mut world.targets[position];
    if target.stage == Stage::Asking {
        target.stage = Stage::Queued;
        world.namespaces[target.namespace].queues[position % SERVERS].push(Item::Target(position));
    }
}

/// Nobody restores in time what this opening raised.
fn leave(world: &mut World, nonce: u8) {
    for quota in world.namespaces.iter_mut().flat_map(|namespace| &mut namespace.quotas) {
        if let Some(raised) = quota.raised.as_mut().filter(|raised| raised.run == nonce) {
            raised.left = true;
        }
    }
}

fn know(world: &mut World, namespace: usize, server: usize) {
    let stored = &mut world.namespaces[namespace];
    let now: Vec<Snapshot> = stored.quotas.iter().map(Quota::snapshot).collect();
    stored.known[server] = now;
}

impl Sweep {
    pub fn new(namespace: usize) -> Self {
        Self { namespace, step: SweepStep::Window, found: None, restored: false }
    }
}
