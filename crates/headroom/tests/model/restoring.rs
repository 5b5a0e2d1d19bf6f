//! What is raised is put back: by the opening that raised it, or by a sweep, as `clear.rs` does it.

use sluice_headroom::protocol::{Answer, QuotaRef};

use crate::api::{Landed, restoring};
use crate::rules::{Rules, Without};
use crate::world::{Quota, RestoreWrite, Run, Sweep, SweepStep, World, native, position};

impl Rules {
    pub fn carry_out_restore(
        &self,
        world: &mut World,
        run: &mut Run,
        namespace: usize,
        quota: &QuotaRef,
    ) -> Option<Answer> {
        if self.lacks(Without::RestoreBeforeUnlock) && run.is_locked {
            run.is_locked = false;
            self.delete_window(world, namespace, run.nonce);
            return None;
        }
        let position = position(&quota.name);
        if let Some(write) = run.restore_write(quota) {
            if self.restore(world, namespace, &write) == Landed::Conflict {
                run.restoring = Some(None);
                return None;
            }
            run.restoring = None;
            let now = world.namespaces[namespace].quotas[position].snapshot();
            return Some(Answer::Restored(Some(native(position, &now))));
        }
        let now = world.namespaces[namespace].quotas[position].snapshot();
        if native(position, &now).uid != quota.uid {
            run.restoring = None;
            return Some(Answer::Restored(None));
        }
        if restoring(position, &now).is_none() {
            run.restoring = None;
            return Some(Answer::Restored(Some(native(position, &now))));
        }
        run.restoring = Some(Some(now));
        None
    }

    /// The next request of a sweep; `None` when it is done.
    pub fn sweep(&self, world: &mut World, mut sweep: Sweep) -> Option<Sweep> {
        let namespace = sweep.namespace;
        let window = world.namespaces[namespace].window.as_ref();
        sweep.step = match std::mem::replace(&mut sweep.step, SweepStep::Delete) {
            SweepStep::Window => {
                let is_open = window.is_some_and(|window| window.life > 0);
                if is_open && !self.lacks(Without::LookAtTimeBeforeClearing) {
                    return None;
                }
                sweep.found = window.map(|window| window.nonce);
                SweepStep::List
            }
            SweepStep::List => match self.left_raised(world, namespace) {
                raised if raised.is_empty() || self.lacks(Without::LookBeforeRestoring) => {
                    SweepStep::Restore(raised)
                }
                raised => SweepStep::Look(raised),
            },
            SweepStep::Look(raised) if window.map(|window| window.nonce) == sweep.found => {
                SweepStep::Restore(raised)
            }
            SweepStep::Look(_) => SweepStep::Window,
            SweepStep::Restore(writes) => self.restore_next(world, &mut sweep, writes),
            SweepStep::Delete => {
                if let Some(found) = sweep.found {
                    self.delete_window(world, namespace, found);
                }
                return None;
            }
        };
        if sweep.step == SweepStep::Restore(Vec::new()) {
            sweep.found?;
            sweep.step = SweepStep::Delete;
        }
        Some(sweep)
    }

    fn left_raised(&self, world: &World, namespace: usize) -> Vec<RestoreWrite> {
        if self.lacks(Without::RestoreAtSweep) {
            return Vec::new();
        }
        let quotas = world.namespaces[namespace].quotas.iter().map(Quota::snapshot).enumerate();
        let write = |(position, listed)| {
            let write = restoring(position, &listed)?;
            let listed = (!self.lacks(Without::LookBeforeRestoring)).then_some(listed);
            Some(RestoreWrite { listed, ..write })
        };
        quotas.filter_map(write).collect()
    }

    fn restore_next(&self, world: &mut World, sweep: &mut Sweep, mut writes: Vec<RestoreWrite>) -> SweepStep {
        let namespace = sweep.namespace;
        if let Some(write) = writes.first_mut() {
            if self.restore(world, namespace, write) == Landed::Done {
                sweep.restored = true;
                writes.remove(0);
            } else if write.listed.is_some() {
                return SweepStep::Window;
            } else {
                let now = world.namespaces[namespace].quotas[write.quota].snapshot();
                match restoring(write.quota, &now).filter(|_| now.identity == write.identity) {
                    Some(again) => *write = again,
                    None => drop(writes.remove(0)),
                }
            }
        }
        SweepStep::Restore(writes)
    }
}
