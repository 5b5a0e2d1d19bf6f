//! What a session looks at, as `executor.rs` reads it.

use std::sync::Arc;

use sluice_engine::headroom::{Budget, Grant, NativeQuota};
use sluice_headroom::protocol::{Done, Ending, Look, Snapshot};

use crate::rules::{Rules, Without};
use crate::world::{Run, World, additional, natives};

/// So long a lock holds; milliseconds.
const LOCK_MS: i64 = 10_000;

/// What a look has read: it asks for one thing after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Read {
    Nothing,
    Grants,
    Quotas,
}

impl Rules {
    /// The next read of a look; with the last one it is done.
    pub fn look(&self, world: &mut World, run: &mut Run, look: Look) -> Option<Done> {
        let namespace = world.targets[run.target].namespace;
        let process = &mut world.processes[run.process];
        match run.read {
            Read::Nothing => {
                if !self.lacks(Without::LiveGrants) {
                    process.granted = world.granted;
                }
                run.read = Read::Grants;
                return None;
            }
            Read::Grants => {
                run.records = match look {
                    Look::Grants | Look::Raised => process.quotas[namespace].clone(),
                    Look::Live => world.quotas[namespace].clone(),
                };
                // The watch may have shown meanwhile that another lock was in vain.
                let place = (run.process, namespace);
                if run.machine.raised().is_empty() && self.holds_back(world, place, Without::RestsAfterRead) {
                    run.read = Read::Nothing;
                    return Some(Done::Ended(Ending::Resting));
                }
                let is_above = run.records.iter().any(|quota| quota.used > quota.spec);
                if look == Look::Live && is_above {
                    run.read = Read::Quotas;
                    return None;
                }
            }
            Read::Quotas => {}
        }
        run.read = Read::Nothing;
        Some(self.seen(world, run, look))
    }

    fn seen(&self, world: &World, run: &mut Run, look: Look) -> Done {
        let target = world.targets[run.target];
        // A quota that has changed since is not raised by what was seen.
        let all = 0..world.quotas[target.namespace].len();
        let unasked = self.lacks(Without::AccountAtAll);
        run.explained =
            all.map(|quota| unasked || self.is_explained(world, (target.namespace, quota))).collect();
        let quotas = natives(&run.records);
        Done::Seen(self.snapshot(world, run, quotas, look))
    }

    /// What the watches have shown of the raises.
    pub fn raised(&self, world: &World, run: &Run) -> Snapshot {
        let target = &world.targets[run.target];
        let quotas = natives(&world.processes[run.process].quotas[target.namespace]);
        let mut snapshot = self.snapshot(world, run, quotas, Look::Raised);
        if self.lacks(Without::PoolAfterRaise) {
            let (source, additional) = (Arc::from("model"), additional(self.additional));
            snapshot.budget = Budget { grants: vec![Grant::Amounts { source, additional, percent: None }] };
        }
        snapshot
    }

    fn snapshot(&self, world: &World, run: &Run, quotas: Vec<NativeQuota>, look: Look) -> Snapshot {
        let target = &world.targets[run.target];
        let draw = if self.lacks(Without::UniqueMark) { 0 } else { i64::from(run.id) };
        Snapshot {
            quotas,
            budget: self.budget(world, run.process, target.namespace),
            account: self.account(world, (run.process, target.namespace), look == Look::Live),
            now_ms: world.now_ms(),
            mark: world.now_ms() + LOCK_MS + 1 + 2 * draw,
        }
    }
}
