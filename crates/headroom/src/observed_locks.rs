//! The locks of namespaces as the watch of quotas shows them, and which namespaces rest for them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_engine::Uid;
use sluice_engine::headroom::{NativeQuota, consumed};
use sluice_index::{Affected, Cluster, Observed};
use sluice_runtime::watch::WatchHealth;

use crate::protocol::Rests;

/// The cluster as a process observes it, and what is remembered of the locks in it; clones share both.
#[derive(Clone, Debug)]
pub struct ObservedLocks {
    observed: Arc<Observed>,
    memory: Arc<Memory>,
}

#[derive(Debug)]
struct Memory {
    rests: Mutex<Rests>,
    epoch: Instant,
}

impl ObservedLocks {
    /// Nothing is known yet. The parameters are those of [`Observed::new`].
    #[must_use]
    pub fn new(watches: Vec<WatchHealth>, remember_dirty: bool) -> Self {
        let memory = Arc::new(Memory { rests: Mutex::default(), epoch: Instant::now() });
        let noting = Arc::clone(&memory);
        // Who sees that a lock is over is to see the rest that follows from it.
        let note = move |index: &Cluster, affected: &[Affected]| noting.note_locks(index, affected);
        Self { observed: Observed::shown_first_to(note, watches, remember_dirty), memory }
    }

    /// What is known of the cluster.
    #[must_use]
    pub const fn observed(&self) -> &Arc<Observed> {
        &self.observed
    }

    /// Whether nothing is to be raised in the namespace now, because raising did not help or it was locked too much.
    #[must_use]
    pub fn is_resting(&self, namespace: &str) -> bool {
        !self.rests_for(namespace).is_zero()
    }

    /// For how long nothing is to be raised in the namespace.
    #[must_use]
    pub fn rests_for(&self, namespace: &str) -> Duration {
        // The index is never waited for under this lock: events take them in the other order.
        if self.memory.rests.lock().is_empty() {
            return Duration::ZERO;
        }
        let situation = self.situation(namespace);
        let now_ms = self.memory.now_ms();
        Duration::from_millis(self.memory.rests.lock().left(namespace, situation, now_ms))
    }

    /// Nothing could be raised in the namespace: writing is refused.
    pub(crate) fn refused(&self, namespace: &Arc<str>) {
        self.memory.rests.lock().refused(namespace, self.memory.now_ms());
    }

    /// A pod that room was not made for has taken it.
    pub(crate) fn taken(&self, namespace: &Arc<str>) {
        let situation = self.situation(namespace);
        self.memory.rests.lock().taken(namespace, situation, self.memory.now_ms());
    }

    fn situation(&self, namespace: &str) -> u64 {
        self.observed.read(|index| situation(index, namespace))
    }
}

impl Memory {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes note of locks that begin and end.
    fn note_locks(&self, index: &Cluster, affected: &[Affected]) {
        for each in affected {
            let Affected::Namespace(namespace) = each else { continue };
            let raised = index
                .resource_quotas
                .raised_in(namespace)
                .filter_map(|key| index.quota(namespace, &key.name));
            let marked: Vec<_> = raised.filter(|quota| quota.mark().is_some()).collect();
            let usage = (!marked.is_empty()).then(|| marked.iter().map(usage).collect());
            let mut rests = self.rests.lock();
            if usage.is_some() || rests.knows(namespace) {
                rests.see(namespace, usage, situation(index, namespace), self.now_ms());
            }
        }
    }
}

/// How much of the keys that a target takes is used: of those that are raised,
/// or of a quota without any of those that pods consume.
fn usage(quota: &NativeQuota) -> (Uid, i128) {
    let is_raised = quota.is_raised();
    let is_raised_key = |key: &str| quota.status_hard.get(key) > quota.spec_hard.get(key);
    let used = quota.used.iter().filter(|(key, _)| consumed(key) && (!is_raised || is_raised_key(key)));
    (quota.uid.clone(), used.fold(0, |sum, (_, amount)| sum.saturating_add(amount.nanos())))
}

/// Stands for what decides, in the hands of administrators, whether raising helps in a namespace.
fn situation(index: &Cluster, namespace: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for quota in index.resource_quotas.records_in(namespace) {
        quota.raw().spec_hard.hash(&mut hasher);
    }
    for grant in index.stated_budget(namespace).grants {
        (grant.source(), grant.terms()).hash(&mut hasher);
    }
    hasher.finish()
}
