//! What API servers do with writes and with pods.

use sluice_engine::headroom::{Grant, reserve, restore};

use crate::rules::{Rules, Without};
use crate::world::{
    Item, Orphan, RaiseWrite, Raised, RestoreWrite, Snapshot, Stage, Window, World, Wrong, count, native,
    need,
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
        let left = stored.quotas.iter().any(|quota| quota.raised.is_some() && quota.hard > quota.spec);
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
        let as_read = quota.identity == write.identity
            && (quota.spec == write.spec || self.lacks(Without::TestOnSpecInRaise))
            && quota.hard == write.hard
            && (quota.used == write.used || self.lacks(Without::TestOnUsed));
        if !as_read {
            return Landed::Conflict;
        }
        let to = if self.lacks(Without::ExactFit) { quota.hard + write.need } else { write.to };
        if to < quota.spec.min(quota.hard) {
            world.blame(Wrong::LoweredBelowSpec);
            return Landed::Done;
        }
        quota.hard = to;
        if to > quota.spec {
            quota.raised = Some(Raised { run: write.run, fit: quota.used + write.need, left: !driven });
        }
        let grant = match &limit.grants[0] {
            Grant::Amounts { additional, .. } => additional.values().next().map(count),
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
        if quota.identity != write.identity || !same_spec {
            return Landed::Conflict;
        }
        let is_lowered = write.spec < quota.spec.min(quota.hard);
        quota.hard = write.spec;
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
        let now: Vec<Snapshot> = stored.quotas.iter().map(crate::world::Quota::snapshot).collect();
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
            Item::Target(target) => world.targets[target].stage = Stage::Idle,
            _ => {}
        }
        let stored = &mut world.namespaces[namespace];
        if fits {
            stored.known[server] = stored.quotas.iter().map(crate::world::Quota::snapshot).collect();
        }
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
    let spec = restore.hard.values().next().map(count).expect("one key");
    Some(RestoreWrite { quota: position, identity: snapshot.identity, spec })
}
