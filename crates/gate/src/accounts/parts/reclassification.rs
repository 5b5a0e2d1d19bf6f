//! Namespaces whose pods find their stage anew, some at a time, because their quotas or the namespace have changed.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use sluice_engine::{PodId, QuotaId};
use sluice_index::NamespaceId;
use smallvec::SmallVec;

use crate::tables::shrink;

/// What was deferred until the pods of a namespace had their stages, and can be done now.
#[derive(Debug, Default)]
pub struct Ended {
    /// Pods whose gate is to be removed.
    pub releases: Vec<PodId>,
    /// Quotas that no paused namespace has pods of any more.
    pub resumed: Vec<QuotaId>,
    /// Of these, the ones that are no more. Their entries were kept until no pod had a claim on them.
    pub closed: Vec<QuotaId>,
    /// Of these, the ones in which room is to be kept for foreign charges: only complete sums show how much.
    pub foreign_charges: Vec<QuotaId>,
}

#[derive(Debug, Default)]
struct PausedNamespace {
    /// Pods that are still to have their turn.
    pods: Vec<PodId>,
    releases: Vec<PodId>,
    /// The quotas that are paused on its account, in the order of their ids. After a start each namespace of the cluster is
    /// here, and most have few.
    quotas: SmallVec<[QuotaId; 4]>,
}

#[derive(Debug, Default)]
struct PausedQuota {
    /// How many namespaces it is paused on account of.
    namespaces: u32,
    is_closed: bool,
    keeps_foreign_charges: bool,
}

/// Paused namespaces, and the quotas that are paused on their account: while pods of one have not had their turn, the sums
/// are not complete.
///
/// Invariant: a namespace is paused from the first pod that has to find its stage anew until the last one has, and if
/// something else keeps it paused then until that has ended; a quota as long as any of these namespaces is. What was
/// deferred meanwhile is returned exactly once, by [`Self::end`].
#[derive(Debug, Default)]
pub struct Reclassification {
    namespaces: BTreeMap<NamespaceId, PausedNamespace>,
    /// Those all of whose pods have had their turn, and that stay paused until they are [woken](Self::wake).
    asleep: BTreeMap<NamespaceId, PausedNamespace>,
    quotas: HashMap<QuotaId, PausedQuota>,
    /// The namespace whose pods had the last turn.
    last: Option<NamespaceId>,
}

impl Reclassification {
    pub fn is_idle(&self) -> bool {
        self.namespaces.is_empty()
    }

    pub fn is_paused(&self, namespace: NamespaceId) -> bool {
        self.namespaces.contains_key(&namespace) || self.asleep.contains_key(&namespace)
    }

    /// Whether the sums of the quota are not complete.
    pub fn is_quota_paused(&self, id: QuotaId) -> bool {
        self.quotas.contains_key(&id)
    }

    /// Whether the pod is still to have its turn.
    pub fn awaits(&self, namespace: NamespaceId, id: PodId) -> bool {
        self.namespaces.get(&namespace).is_some_and(|paused| paused.pods.contains(&id))
    }

    /// Pauses the namespace and these quotas until these pods, of `known` that it has, have had their turn.
    pub fn pause(
        &mut self,
        namespace: NamespaceId,
        pods: impl IntoIterator<Item = PodId>,
        known: usize,
        quotas: &[QuotaId],
    ) {
        self.wake(namespace);
        let paused = self.namespaces.entry(namespace).or_default();
        paused.pods.extend(pods);
        if paused.pods.len() > known {
            // Some have to for several reasons.
            paused.pods.sort_unstable();
            paused.pods.dedup();
        }
        for quota in quotas {
            self.pause_quota(namespace, *quota);
        }
    }

    fn pause_quota(&mut self, namespace: NamespaceId, id: QuotaId) -> &mut PausedQuota {
        self.wake(namespace);
        let quotas = &mut self.namespaces.entry(namespace).or_default().quotas;
        let place = quotas.binary_search(&id);
        let paused = self.quotas.entry(id).or_default();
        if let Err(place) = place {
            quotas.insert(place, id);
            paused.namespaces += 1;
        }
        paused
    }

    /// Forgets which pods were to have a turn: all will.
    pub fn restart(&mut self, namespace: NamespaceId) {
        if let Some(paused) = self.namespaces.get_mut(&namespace) {
            paused.pods.clear();
        }
    }

    /// The namespace whose turn it is, and its next pods, `most` at most.
    pub fn next(&mut self, most: usize) -> Option<(NamespaceId, Vec<PodId>)> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.namespaces.range((after, Bound::Unbounded)).next();
        let namespace = *next.or_else(|| self.namespaces.first_key_value())?.0;
        self.last = Some(namespace);
        let pods = &mut self.namespaces.get_mut(&namespace)?.pods;
        Some((namespace, pods.split_off(pods.len().saturating_sub(most))))
    }

    /// The namespace is looked at again: what kept it paused may have ended.
    pub fn wake(&mut self, namespace: NamespaceId) {
        if let Some(paused) = self.asleep.remove(&namespace) {
            self.namespaces.insert(namespace, paused);
        }
    }

    /// Ends the pause if all pods have had their turn. If something else `keeps` the namespace paused, it sleeps instead.
    pub fn end(&mut self, namespace: NamespaceId, keeps: bool) -> Option<Ended> {
        if !self.namespaces.get(&namespace)?.pods.is_empty() {
            return None;
        }
        let mut paused = self.namespaces.remove(&namespace)?;
        if keeps {
            // All have had their turn, so the list is empty. After a start each namespace of the cluster is asleep.
            paused.pods = Vec::new();
            self.asleep.insert(namespace, paused);
            return None;
        }
        let mut ended = Ended { releases: paused.releases, ..Ended::default() };
        for id in paused.quotas {
            let Some(quota) = self.quotas.get_mut(&id) else { continue };
            quota.namespaces = quota.namespaces.saturating_sub(1);
            if quota.namespaces > 0 {
                continue;
            }
            let Some(quota) = self.quotas.remove(&id) else { continue };
            ended.resumed.push(id);
            ended.closed.extend(quota.is_closed.then_some(id));
            ended.foreign_charges.extend(quota.keeps_foreign_charges.then_some(id));
        }
        shrink(&mut self.quotas);
        Some(ended)
    }

    /// Defers the release of a pod; false if its namespace is not paused.
    pub fn defer_release(&mut self, namespace: NamespaceId, id: PodId) -> bool {
        let paused = self.namespaces.get_mut(&namespace).or_else(|| self.asleep.get_mut(&namespace));
        paused.map(|paused| paused.releases.push(id)).is_some()
    }

    /// Defers keeping room for foreign charges; false if the quota is not paused.
    pub fn defer_foreign_charges(&mut self, id: QuotaId) -> bool {
        let paused = self.quotas.get_mut(&id);
        paused.map(|paused| paused.keeps_foreign_charges = true).is_some()
    }

    /// The quota is no more. All pods of these namespaces have to find their stage anew; until then its entry is kept, and
    /// until those have that are paused already: it may have been about their pods a moment ago.
    pub fn close(&mut self, id: QuotaId, namespaces: &[NamespaceId]) {
        let paused: Vec<NamespaceId> = self.namespaces.keys().chain(self.asleep.keys()).copied().collect();
        for namespace in namespaces.iter().copied().chain(paused) {
            self.pause_quota(namespace, id).is_closed = true;
        }
    }

    /// Whether keeping room for foreign charges was deferred; it is not any more.
    pub fn take_foreign_charges(&mut self, id: QuotaId) -> bool {
        self.quotas.get_mut(&id).is_some_and(|paused| std::mem::take(&mut paused.keeps_foreign_charges))
    }
}
