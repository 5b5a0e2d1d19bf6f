//! How many pods that run in each namespace have no answer.

use std::collections::{BTreeSet, HashMap};

use sluice_index::NamespaceId;

use crate::tables::shrink;

/// What a pod without gates that is asked about is counted as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lack {
    /// It has no answer by this configuration, is not known to fail, and has not kept its namespace paused for too long.
    pub is_pending: bool,
    /// It has no answer by this configuration.
    pub is_unanswered: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    pending: u32,
    unanswered: u32,
}

/// Invariant: these are the sums of what pods lack, and no namespace is kept for nothing.
#[derive(Debug, Default)]
pub struct Unready {
    by_namespace: HashMap<NamespaceId, Count>,
    unanswered: u32,
}

impl Unready {
    /// A pod of the namespace lacks something else than before. Returns whether it was the last pending one there.
    pub fn replace(&mut self, namespace: NamespaceId, before: Lack, after: Lack) -> bool {
        if before == after {
            return false;
        }
        let changed = |count: u32, before: bool, after: bool| {
            (count + u32::from(after)).saturating_sub(u32::from(before))
        };
        let count = self.by_namespace.entry(namespace).or_default();
        count.pending = changed(count.pending, before.is_pending, after.is_pending);
        count.unanswered = changed(count.unanswered, before.is_unanswered, after.is_unanswered);
        self.unanswered = changed(self.unanswered, before.is_unanswered, after.is_unanswered);
        let was_last = before.is_pending && count.pending == 0;
        if *count == Count::default() {
            self.by_namespace.remove(&namespace);
            shrink(&mut self.by_namespace);
        }
        was_last
    }

    /// The namespaces in which a pod is pending.
    pub fn pending(&self) -> BTreeSet<NamespaceId> {
        self.by_namespace.iter().filter(|(_, count)| count.pending > 0).map(|(id, _)| *id).collect()
    }

    /// Whether a pod of the namespace is pending.
    pub fn has_pending(&self, namespace: NamespaceId) -> bool {
        self.by_namespace.get(&namespace).is_some_and(|count| count.pending > 0)
    }

    /// Whether a pod of the namespace has no answer.
    pub fn has_unanswered(&self, namespace: NamespaceId) -> bool {
        self.by_namespace.get(&namespace).is_some_and(|count| count.unanswered > 0)
    }

    /// How many pods have no answer.
    pub const fn unanswered(&self) -> usize {
        self.unanswered as usize
    }
}
