//! What API servers do with writes and with pods.

use sluice_engine::headroom::{Grant, reserve, restore};

use crate::rules::{Rules, Without};
use crate::world::{
    Item, Orphan, Quota, RaiseWrite, Raised, RestoreWrite, Run, Snapshot, Stage, Window, World, Wrong,
    amount, count, native, need,
};

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landed {
    Done,
    Conflict,
}

impl Rules {
    pub fn create_window(&self, world: &mut World, namespace: usize, nonce: u8, target: usize) -> Landed {
        if world.namespaces[namespace].window.is_some() {
            return Landed::Conflict;
        }
        let raises = reserve(&need(self.need), &world.namespaces[namespace].native());
        let above = raises.iter().map(|raise| {
            let spec = world.namespaces[namespace].quotas[crate::world::position(&raise.quota)].spec;
            count(&raise.keys[0].to).saturating_sub(spec)
        });
        let planned = above.max().unwrap_or_default();
        world.namespaces[namespace].window = Some(Window { nonce, target, life: 2, planned });
        Landed::Done
    }

    /// Deletes the window if it is this one.
    pub fn delete_window(&self, world: &mut World, namespace: usize, nonce: u8) {
        let stored = &mut world.namespaces[namespace];
        let is_it = stored.window.as_ref().is_some_and(|window| window.nonce == nonce);
        if !(is_it || (self.lacks(Without::PreconditionOfDelete) && stored.window.is_some())) {
            return;
        }
        stored.window = None;
        let is_left =
            |quota: &Quota| quota.mark.is_some() || (quota.raised.is_some() && quota.hard > quota.spec);
        let left = stored.quotas.iter().any(is_left);
        if left && !self.consequences {
            world.blame(Wrong::UnlockedRaised);
        }
    }

    pub fn raise(&self, world: &mut World, namespace: usize, write: &RaiseWrite) -> Landed {
        let limit = self.granted(world, namespace);
        let driven = world.drives(write.run);
        let stored = &mut world.namespaces[namespace];
        let is_proven = stored.is_proven(write.run);
        let quota = &mut stored.quotas[write.quota];
        let (read, now) = (&write.read, quota.snapshot());
        let as_read = now.identity == read.identity
            && (now.spec == read.spec || self.lacks(Without::TestOnSpecInRaise))
            && (now.hard, now.mark) == (read.hard, read.mark)
            && (now.used == read.used || self.lacks(Without::TestOnUsed));
        if !as_read {
            return Landed::Conflict;
        }
        let to = if self.lacks(Without::ExactFit) { quota.hard + write.need } else { write.to };
        if to < quota.spec.min(quota.hard) {
            world.blame(Wrong::LoweredBelowSpec);
            return Landed::Done;
        }
        quota.hard = to;
        if write.marks {
            quota.mark = Some(write.run);
        }
        if to > quota.spec {
            quota.raised = Some(Raised { run: write.run, fit: quota.used + write.need, left: !driven });
        }
        let grant = match &limit.grants[0] {
            Grant::Amounts { additional, .. } => Some(amount(additional)),
            _ => None,
        };
        let is_over_budget = grant.is_some_and(|grant| to > quota.spec + grant);
        if self.consequences {
            return Landed::Done;
        }
        if !is_proven {
            world.blame(Wrong::RaisedUnproven);
        } else if is_over_budget {
            world.blame(Wrong::RaisedOverBudget);
        }
        Landed::Done
    }

    pub fn restore(&self, world: &mut World, namespace: usize, write: &RestoreWrite) -> Landed {
        let quota = &mut world.namespaces[namespace].quotas[write.quota];
        let same_spec = quota.spec == write.spec || self.lacks(Without::TestOnSpecInRestore);
        let as_listed = write.listed.is_none_or(|listed| quota.snapshot() == listed);
        if quota.identity != write.identity || !same_spec || !as_listed {
            return Landed::Conflict;
        }
        let is_lowered = write.spec < quota.spec.min(quota.hard);
        quota.hard = write.spec;
        quota.mark = None;
        quota.plain = write.spec;
        quota.raised = None;
        if is_lowered {
            world.blame(Wrong::LoweredBelowSpec);
        }
        Landed::Done
    }

    pub fn land(&self, world: &mut World, orphan: &Orphan) {
        match orphan {
            Orphan::Create { namespace, nonce, target } => {
                self.create_window(world, *namespace, *nonce, *target);
            }
            Orphan::Raise { namespace, write } => {
                self.raise(world, *namespace, write);
            }
            Orphan::Restore { namespace, write } => {
                self.restore(world, *namespace, write);
            }
        }
    }

    /// Whether a tenant's pod passes the policy as this server sees it.
    pub fn passes(world: &World, namespace: usize, server: usize) -> bool {
        let stored = &world.namespaces[namespace];
        match stored.enforced[server] {
            None => true,
            // A window that is not there any more denies until the server knows, or its time is over.
            Some(nonce) => {
                stored.window.as_ref().is_some_and(|window| window.nonce == nonce && window.life == 0)
            }
        }
    }

    /// Quota admission at one server takes the next of its queue.
    pub fn judge(&self, world: &mut World, namespace: usize, server: usize) {
        let Some(item) = world.namespaces[namespace].queues[server].first().copied() else { return };
        let amount = match item {
            Item::Tenant => 1,
            Item::Target(_) => self.need,
            // As long as it is refused because of the mark of an earlier window, it is tried again.
            Item::Drain(_) if self.knows_of_gone_mark(world, namespace, server) => {
                return world.namespaces[namespace].queues[server].rotate_left(1);
            }
            Item::Drain(nonce) => {
                world.namespaces[namespace].queues[server].remove(0);
                for run in world.replicas.iter_mut().filter_map(|replica| replica.run.as_mut()) {
                    if run.nonce == nonce {
                        run.drains = run.drains.map(|left| left.saturating_sub(1));
                    }
                }
                return;
            }
        };
        let stored = &mut world.namespaces[namespace];
        let fits = stored.known[server].iter().all(|quota| quota.used + amount <= quota.hard);
        let now: Vec<Snapshot> = stored.quotas.iter().map(Quota::snapshot).collect();
        if fits && stored.known[server] != now {
            // The write is a compare-and-swap: it is judged again by what is stored.
            stored.known[server] = now;
            return;
        }
        stored.queues[server].remove(0);
        match item {
            Item::Tenant if fits => self.let_tenant_in(world, namespace),
            Item::Target(target) if fits => {
                world.targets[target].stage = Stage::Entered;
                charge(world, namespace, amount);
            }
            Item::Target(target) => self.refuse(world, target),
            _ => {}
        }
        let stored = &mut world.namespaces[namespace];
        if fits {
            stored.known[server] = stored.quotas.iter().map(Quota::snapshot).collect();
        }
    }

    fn knows_of_gone_mark(&self, world: &World, namespace: usize, server: usize) -> bool {
        let is_there = world.namespaces[namespace].quotas.iter().any(|quota| quota.mark.is_some());
        let is_known = self.refuses_windows(world, namespace, server);
        is_known && !is_there && !self.lacks(Without::DrainOfMarks)
    }

    fn refuse(&self, world: &mut World, target: usize) {
        let namespace = &world.namespaces[world.targets[target].namespace];
        let runs = world.replicas.iter().filter_map(|replica| replica.run.as_ref());
        let mut promises = runs.filter(|run| run.target == target && namespace.life(run.nonce) > 0);
        if promises.any(Run::keeps_promise) {
            world.blame(Wrong::RefusedAfterAdmit);
        }
        world.targets[target].stage = Stage::Idle;
    }

    fn let_tenant_in(&self, world: &mut World, namespace: usize) {
        let mut wrong = None;
        let mut taken = 0;
        for quota in &world.namespaces[namespace].quotas {
            let after = quota.used + 1;
            let own = quota.plain.max(quota.spec);
            if after <= own {
                continue;
            }
            match quota.raised {
                Some(raised) if raised.left || self.gap => {
                    taken = 1;
                    if after > own.max(raised.fit) {
                        wrong = Some(Wrong::LeftTooMuch);
                    }
                }
                _ => wrong = Some(Wrong::TenantBeyond),
            }
        }
        world.taken += taken;
        world.namespaces[namespace].tenant += 1;
        charge(world, namespace, 1);
        if let Some(wrong) = wrong {
            world.blame(wrong);
        }
    }

    /// kube-controller-manager: the limits as they are wanted, the usage as it is.
    pub fn sync(&self, world: &mut World, namespace: usize, position: usize) {
        let targets = world.targets.iter();
        let inside = targets.filter(|t| t.namespace == namespace && t.stage == Stage::Entered).count();
        let targets = self.need * u8::try_from(inside).expect("few targets");
        let stored = &mut world.namespaces[namespace];
        let quota = &mut stored.quotas[position];
        quota.hard = quota.spec;
        quota.mark = None;
        quota.plain = quota.spec;
        quota.used = stored.tenant + targets;
        quota.raised = None;
        quota.stale = false;
    }
}

fn charge(world: &mut World, namespace: usize, amount: u8) {
    for quota in &mut world.namespaces[namespace].quotas {
        quota.used += amount;
    }
}

/// What a sweep or an opening writes to restore a quota that it has read just now; `None` if nothing is raised.
pub fn restoring(position: usize, snapshot: &Snapshot) -> Option<RestoreWrite> {
    let restore = restore(&native(position, snapshot))?;
    let spec = amount(&restore.hard);
    Some(RestoreWrite { quota: position, identity: snapshot.identity, spec, listed: None })
}
