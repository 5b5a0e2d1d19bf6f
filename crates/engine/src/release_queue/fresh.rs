//! Looks at classes that have just come.

use std::collections::{BTreeMap, BTreeSet};

use super::dominant_share::DominantShare;
use super::lanes::{Head, Place};
use super::quota_set::ShareId;
use super::sweep::Deciding;
use super::wait_order::{ClassId, QuotaId};

/// So many are taken at a time, and among them the first in the order first.
const FRESH: usize = 64;

/// Those of one share.
#[derive(Default)]
struct Batch {
    /// Last first.
    heads: Vec<Head>,
    quotas: BTreeSet<QuotaId>,
}

impl Deciding<'_> {
    pub(super) fn look_at_fresh(&mut self, looks: &mut usize) {
        let rested = self.queue.rested.len();
        let rested = self.queue.rested.split_off(rested.saturating_sub(FRESH));
        self.queue.fresh.extend(rested);
        let mut batches = self.take_fresh(FRESH.min(*looks));
        let place = |shares: &Self, share: ShareId, batch: &Batch| {
            batch.heads.last()?;
            let entries = batch.quotas.iter().filter_map(|quota| shares.queue.entries.get(quota));
            let last = entries.map(|entry| (entry.dominant_share(share), entry.since(share))).max();
            let (dominant, since) = last.unwrap_or((DominantShare::NONE, 0));
            Some(Place { dominant, since, share })
        };
        let mut places: BTreeSet<Place> =
            batches.iter().filter_map(|(share, batch)| place(self, *share, batch)).collect();
        while let Some(Place { share, .. }) = places.pop_first() {
            let Some(batch) = batches.get_mut(&share) else { continue };
            if let Some((_, id)) = batch.heads.pop() {
                self.look_at_one(id, looks);
            }
            places.extend(place(self, share, batch));
        }
    }

    fn take_fresh(&mut self, most: usize) -> BTreeMap<ShareId, Batch> {
        let mut batches = BTreeMap::<ShareId, Batch>::new();
        let mut taken = 0;
        while taken < most
            && let Some(id) = self.queue.fresh.pop_first()
        {
            let Some(class) = self.queue.classes.get(&id) else { continue };
            let Some(head) = class.head() else { continue };
            let batch = batches.entry(class.quotas.share()).or_default();
            batch.heads.push((head, id));
            batch.quotas.extend(class.quotas.iter());
            taken += 1;
        }
        for batch in batches.values_mut() {
            batch.heads.sort_unstable_by(|one, other| other.cmp(one));
        }
        batches
    }

    fn look_at_one(&mut self, id: ClassId, looks: &mut usize) {
        if self.queue.class_rests(id) {
            *looks = looks.saturating_sub(1);
            return;
        }
        if let Some(quota) = self.queue.swept_before(id) {
            let entry = self.queue.entries.get_mut(&quota);
            if let Some(sweep) = entry.and_then(|entry| entry.sweep.as_mut()) {
                sweep.postponed.push(id);
            }
            return;
        }
        *looks = looks.saturating_sub(1);
        // The next pod of the class takes the same and may fit too.
        if self.look(id) {
            self.queue.fresh.insert(id);
        }
    }
}
