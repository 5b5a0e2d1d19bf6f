//! Namespaces whose pods find their stage anew, some at a time, because their quotas or the namespace have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use sluice_engine::{PodId, QuotaId};
use sluice_index::NamespaceId;

/// What is to be done when the pods of a namespace have their stages.
#[derive(Debug, Default)]
pub struct Deferred {
    /// Pods whose gate is to be removed.
    pub releases: Vec<PodId>,
    /// Quotas that are no more. Their entries are kept until no pod has a claim on them.
    pub closed: Vec<QuotaId>,
    /// Quotas in which room is to be kept for foreign charges: only complete sums show how much.
    pub foreign_charges: BTreeSet<QuotaId>,
}

#[derive(Debug, Default)]
struct Paused {
    /// Pods that are still to have their turn.
    pods: Vec<PodId>,
    deferred: Deferred,
}

/// Paused namespaces.
///
/// Invariant: a namespace is paused from the first pod that has to find its stage anew until the last one has, and no
/// longer; what was deferred meanwhile is returned exactly once, by [`Self::end`].
#[derive(Debug, Default)]
pub struct Reclassification {
    paused: BTreeMap<NamespaceId, Paused>,
    /// The one whose pods had the last turn.
    last: Option<NamespaceId>,
}

impl Reclassification {
    pub fn is_idle(&self) -> bool {
        self.paused.is_empty()
    }

    pub fn is_paused(&self, namespace: NamespaceId) -> bool {
        self.paused.contains_key(&namespace)
    }

    /// Whether the pod is still to have its turn.
    pub fn awaits(&self, namespace: NamespaceId, id: PodId) -> bool {
        self.paused.get(&namespace).is_some_and(|paused| paused.pods.contains(&id))
    }

    /// Pauses the namespace until these pods, of `known` that it has, have had their turn.
    pub fn pause(&mut self, namespace: NamespaceId, pods: impl IntoIterator<Item = PodId>, known: usize) {
        let paused = self.paused.entry(namespace).or_default();
        paused.pods.extend(pods);
        if paused.pods.len() > known {
            // Some have to for several reasons.
            paused.pods.sort_unstable();
            paused.pods.dedup();
        }
    }

    /// Forgets which pods were to have a turn: all will.
    pub fn restart(&mut self, namespace: NamespaceId) {
        if let Some(paused) = self.paused.get_mut(&namespace) {
            paused.pods.clear();
        }
    }

    /// The namespace whose turn it is, and its next pods, `most` at most.
    pub fn next(&mut self, most: usize) -> Option<(NamespaceId, Vec<PodId>)> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.paused.range((after, Bound::Unbounded)).next();
        let namespace = *next.or_else(|| self.paused.first_key_value())?.0;
        self.last = Some(namespace);
        let pods = &mut self.paused.get_mut(&namespace)?.pods;
        Some((namespace, pods.split_off(pods.len().saturating_sub(most))))
    }

    /// Ends the pause if all pods have had their turn.
    pub fn end(&mut self, namespace: NamespaceId) -> Option<Deferred> {
        if !self.paused.get(&namespace)?.pods.is_empty() {
            return None;
        }
        self.paused.remove(&namespace).map(|paused| paused.deferred)
    }

    /// Defers the release of a pod; false if its namespace is not paused.
    pub fn defer_release(&mut self, namespace: NamespaceId, id: PodId) -> bool {
        let paused = self.paused.get_mut(&namespace);
        paused.map(|paused| paused.deferred.releases.push(id)).is_some()
    }

    /// Defers keeping room for foreign charges; false if the namespace is not paused.
    pub fn defer_foreign_charges(&mut self, namespace: NamespaceId, id: QuotaId) -> bool {
        let paused = self.paused.get_mut(&namespace);
        paused.map(|paused| paused.deferred.foreign_charges.insert(id)).is_some()
    }

    /// A quota of the namespace is no more; all pods of it have to find their stage anew.
    pub fn close(&mut self, namespace: NamespaceId, id: QuotaId) {
        self.paused.entry(namespace).or_default().deferred.closed.push(id);
    }

    /// The quota has another handle; all pods of the namespace have to find their stage anew. `is_kept`: room is kept in it
    /// for foreign charges.
    pub fn rename(&mut self, namespace: NamespaceId, old: QuotaId, new: QuotaId, is_kept: bool) {
        let foreign_charges = &mut self.paused.entry(namespace).or_default().deferred.foreign_charges;
        if foreign_charges.remove(&old) || is_kept {
            foreign_charges.insert(new);
        }
    }
}
