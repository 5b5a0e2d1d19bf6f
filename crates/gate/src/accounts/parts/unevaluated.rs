//! Pods that run and have had no answer of evaluators for a while, by the quotas that count them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sluice_engine::{PodId, QuotaId, QuotaSet};

/// Invariant: `by_quota` has each pod under each of its quotas, and nothing else.
#[derive(Debug, Default)]
pub struct Unevaluated {
    /// The quotas that count each.
    pods: HashMap<PodId, Arc<QuotaSet>>,
    by_quota: HashMap<QuotaId, BTreeSet<PodId>>,
}

impl Unevaluated {
    /// The pod is counted by these without an answer; `None`: it has one, or does not count. Returns the quotas of which
    /// something else is to be told.
    pub fn set(&mut self, id: PodId, counted: Option<Arc<QuotaSet>>) -> BTreeSet<QuotaId> {
        let mut changed = BTreeSet::new();
        if self.pods.get(&id) == counted.as_ref() {
            return changed;
        }
        let before = match &counted {
            Some(quotas) => self.pods.insert(id, Arc::clone(quotas)),
            None => self.pods.remove(&id),
        };
        for quota in before.iter().flat_map(|quotas| quotas.iter()) {
            let left = self.by_quota.get_mut(quota).is_some_and(|pods| {
                pods.remove(&id);
                !pods.is_empty()
            });
            if !left {
                self.by_quota.remove(quota);
            }
            changed.insert(*quota);
        }
        for quota in counted.iter().flat_map(|quotas| quotas.iter()) {
            self.by_quota.entry(*quota).or_default().insert(id);
            changed.insert(*quota);
        }
        changed
    }

    /// Those of a quota, if there are any.
    pub fn of(&self, quota: QuotaId) -> Option<&BTreeSet<PodId>> {
        self.by_quota.get(&quota)
    }
}
