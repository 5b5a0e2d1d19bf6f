//! The quotas that a pod is charged to.

use std::ops::Deref;

use super::wait_order::QuotaId;

/// Whose part of a quota a charge belongs to, by a handle of the caller's: the pod's namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShareId(pub u32);

/// The quotas that a pod is charged to, in the order of ids, and the share of them that the charge belongs to.
///
/// Pods of different shares are told apart even where they take the same from the same quotas: they are of different owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuotaSet {
    share: ShareId,
    ids: Box<[QuotaId]>,
}

impl QuotaSet {
    /// These quotas, in any order. The share of no quota is the same for all.
    #[must_use]
    pub fn new(share: ShareId, ids: impl IntoIterator<Item = QuotaId>) -> Self {
        let mut ids: Vec<QuotaId> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        let share = if ids.is_empty() { ShareId::default() } else { share };
        Self { share, ids: ids.into() }
    }

    /// The share that the charge belongs to.
    #[must_use]
    pub const fn share(&self) -> ShareId {
        self.share
    }
}

impl Deref for QuotaSet {
    type Target = [QuotaId];

    fn deref(&self) -> &[QuotaId] {
        &self.ids
    }
}
