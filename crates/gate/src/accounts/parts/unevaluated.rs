//! Pods that run and have had no answer of evaluators for a while, by the quotas that count them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sluice_engine::{PodId, QuotaId, QuotaSet};

/// The quotas that count a pod, and how people name it: with its namespace.
pub type Counted = (Arc<QuotaSet>, Arc<str>);

/// Invariant: `by_quota` has each pod under each of its quotas, and nothing else.
#[derive(Debug, Default)]
pub struct Unevaluated {
    pods: HashMap<PodId, Counted>,
    by_quota: HashMap<QuotaId, BTreeSet<(Arc<str>, PodId)>>,
}

impl Unevaluated {
    /// The pod is counted so without an answer; `None`: it has one, or does not count. Returns the quotas of which something
    /// else is to be told.
    pub fn set(&mut self, id: PodId, counted: Option<Counted>) -> BTreeSet<QuotaId> {
        let mut changed = BTreeSet::new();
        if self.pods.get(&id) == counted.as_ref() {
            return changed;
        }
        if let Some((quotas, name)) = self.pods.remove(&id) {
            let key = (name, id);
            for quota in quotas.iter() {
                let left = self.by_quota.get_mut(quota).is_some_and(|pods| {
                    pods.remove(&key);
                    !pods.is_empty()
                });
                if !left {
                    self.by_quota.remove(quota);
                }
                changed.insert(*quota);
            }
        }
        if let Some((quotas, name)) = counted {
            for quota in quotas.iter() {
                self.by_quota.entry(*quota).or_default().insert((Arc::clone(&name), id));
                changed.insert(*quota);
            }
            self.pods.insert(id, (quotas, name));
        }
        changed
    }

    /// How many there are of a quota, and the first of them by name.
    pub fn of(&self, quota: QuotaId) -> Option<(usize, &str)> {
        let pods = self.by_quota.get(&quota)?;
        let (name, _) = pods.first()?;
        Some((pods.len(), name))
    }
}
