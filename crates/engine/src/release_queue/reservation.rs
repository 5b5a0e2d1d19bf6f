//! Keeping room for a pod that has waited long.
//!
//! In a quota room is kept for the pod that has waited longest, once it has waited longer than is reasonable, and only
//! if each other quota has room for it, does not rest and does not keep that room for a pod that has waited longer: room that
//! is kept while the pod cannot go anyway would help none. Quotas may be about the pods of many tenants, so it would hold up
//! those that have nothing to do with what is in that pod's way.
//!
//! In a shared quota a pod's wait counts from when its share was served this way last, if that is later
//! ([`Turn`](super::lanes::Turn)). So a share with a long queue gets in one such pod in that time, each other share has its turn
//! before the second, and for the rest the order of shares holds.
//!
//! A class that another quota is in the way of is passed over, once. When that quota gets room for it, it is looked at, and
//! held by this one alone: then it is open again. So a search costs nothing for those that cannot go, however many and of
//! however many shares.

use std::sync::Arc;

use super::ReleaseQueue;
use super::equivalence_class::{ClassId, EquivalenceClass};
use super::lanes::Turn;
use super::quota_entry::QuotaEntry;
use super::quota_set::ShareId;
use super::wait_order::{Patience, QuotaId};

/// Classes that one search looks at. If it finds none among them, it goes on in the next step of a decision.
const SEARCHED: usize = 32;

impl ReleaseQueue {
    /// Finds the class that room of the quota is kept for.
    pub(super) fn reserve(&mut self, quota: QuotaId, patience: Patience) -> Option<ClassId> {
        let found = self.first_only_blocked_by(quota, patience);
        if !found.is_some_and(|id| self.is_reserving(quota, id)) {
            let still_waits = |id| self.classes.contains_key(&id);
            if self.reserving(quota).is_some_and(still_waits) {
                // Room was kept from others for the sake of a class that it is not kept for any more.
                self.wake(quota);
            }
            self.end_reservation(quota);
            if let Some(id) = found {
                self.begin_reservation(quota, id);
            }
        }
        found
    }

    fn first_only_blocked_by(&mut self, quota: QuotaId, patience: Patience) -> Option<ClassId> {
        let since_ms = patience.ended_ms();
        self.searched.remove(&quota);
        if let Some(few) = self.entries.get(&quota)?.few_impatient(since_ms, &self.classes) {
            return few.into_iter().find(|id| self.is_only_blocked_by(quota, *id));
        }
        for _ in 0..SEARCHED {
            let id = self.entries.get(&quota)?.first_impatient(since_ms)?;
            if self.is_only_blocked_by(quota, id) {
                return Some(id);
            }
            let (share, eldest) =
                self.classes.get(&id).and_then(|it| Some((it.quotas.share(), it.eldest()?)))?;
            self.entries.get_mut(&quota)?.update_lane(share, |lane| lane.pass_over(id, eldest));
        }
        self.searched.insert(quota);
        self.reserving(quota).filter(|id| self.is_only_blocked_by(quota, *id))
    }

    /// Goes on with a search that was not at its end. Returns for which quota.
    pub(super) fn go_on_searching(&mut self, patience: Patience) -> Option<QuotaId> {
        let quota = self.searched.pop_first()?;
        self.reserve(quota, patience);
        Some(quota)
    }

    fn reserving(&self, quota: QuotaId) -> Option<ClassId> {
        self.entries.get(&quota)?.reserving.as_ref().map(|(id, _)| *id)
    }

    /// A pod of this class, for which room of the quota was kept, has gone: the turn is another share's.
    pub(super) fn serve(&mut self, quota: QuotaId, id: ClassId, share: ShareId, patience: Patience) {
        if let Some(entry) = self.entries.get_mut(&quota) {
            entry.update_lane(share, |lane| lane.serve(patience.now_ms));
        }
        // Another pod of the class has waited less, and may have to give way to one that gave way to this.
        if self.classes.contains_key(&id) && self.is_reserving(quota, id) {
            self.end_reservation(quota);
            self.wake(quota);
        }
    }

    pub(super) fn is_reserving(&self, quota: QuotaId, id: ClassId) -> bool {
        self.reserving(quota) == Some(id)
    }

    fn begin_reservation(&mut self, quota: QuotaId, id: ClassId) {
        let Some(quotas) = self.classes.get(&id).map(|class| Arc::clone(&class.quotas)) else { return };
        for other in quotas.iter().filter(|other| **other != quota) {
            if let Some(entry) = self.entries.get_mut(other) {
                entry.reserving_elsewhere.insert((quota, id));
            }
        }
        if let Some(entry) = self.entries.get_mut(&quota) {
            entry.reserving = Some((id, quotas));
        }
        self.room_shrank(quota);
    }

    pub(super) fn end_reservation(&mut self, quota: QuotaId) {
        let Some((id, quotas)) = self.entries.get_mut(&quota).and_then(|entry| entry.reserving.take()) else {
            return;
        };
        for other in quotas.iter() {
            if let Some(entry) = self.entries.get_mut(other) {
                entry.reserving_elsewhere.remove(&(quota, id));
            }
        }
    }

    /// Less is free in this quota for some, or it rests. Where room is kept for a pod that this quota is in the way of now, it is no longer
    /// kept.
    pub(super) fn room_shrank(&mut self, quota: QuotaId) {
        let Some(entry) = self.entries.get(&quota) else { return };
        let blocked = entry.reserving_elsewhere.iter().filter(|(elsewhere, id)| {
            let class = self.classes.get(id).zip(self.turn_in(*elsewhere, *id));
            class.is_none_or(|(class, turn)| !self.lets_in(entry, *id, class, &turn))
        });
        let ended: Vec<QuotaId> = blocked.map(|(elsewhere, _)| *elsewhere).collect();
        for elsewhere in ended {
            self.end_reservation(elsewhere);
            self.wake(elsewhere);
        }
    }

    /// The class was looked at and is held: where room could be kept for it that was not known, and where it is kept for a
    /// class that has not waited as long, that is to be asked again. Returns these quotas.
    pub(super) fn contest(&mut self, id: ClassId, patience: Patience) -> Vec<QuotaId> {
        let own = self.classes.get(&id).filter(|class| class.fits_when_empty);
        let Some((class, eldest)) = own.and_then(|class| Some((class, class.eldest()?))) else {
            return Vec::new();
        };
        let waits_long = |quota: &&QuotaId| {
            self.turn_in(**quota, id).is_some_and(|turn| Some(turn.0) <= patience.ended_ms())
        };
        let candidates = class.quotas.iter().filter(waits_long).copied();
        let candidates: Vec<QuotaId> =
            candidates.filter(|quota| self.is_only_blocked_by(*quota, id)).collect();
        let share = class.quotas.share();
        let mut news = Vec::new();
        for quota in candidates {
            let entry = self.entries.get_mut(&quota);
            let is_open_again = entry.is_some_and(|entry| entry.reopen(id, share, eldest.clone()));
            let is_younger =
                |other| self.turn_in(quota, other).is_none_or(|other| self.turn_in(quota, id) < Some(other));
            if self.reserving(quota).is_some_and(is_younger) {
                self.end_reservation(quota);
                self.wake(quota);
                news.push(quota);
            } else if is_open_again {
                news.push(quota);
            }
        }
        news
    }

    fn turn_in(&self, quota: QuotaId, id: ClassId) -> Option<Turn> {
        let class = self.classes.get(&id)?;
        Some(self.entries.get(&quota)?.turn_of(class.quotas.share(), class.eldest()?))
    }

    /// Whether the class could go now if there were room in this quota.
    fn is_only_blocked_by(&self, quota: QuotaId, id: ClassId) -> bool {
        let class = self.classes.get(&id).zip(self.turn_in(quota, id));
        let Some((class, turn)) = class else { return false };
        let others = class.quotas.iter().filter(|other| **other != quota);
        let mut entries = others.filter_map(|other| self.entries.get(other));
        entries.all(|entry| self.lets_in(entry, id, class, &turn))
    }

    /// Whether the quota has room for the class, whose turn in another quota is this, beside one that it keeps room for. One whose turn
    /// comes later does not matter: when the class could go, it [contests](Self::contest) that. So of two quotas that keep room for
    /// each other's pods, the one whose turn is first goes on. Turns of all quotas are one order: with another one beside it, such as
    /// that of ages, three quotas could put each other off for ever.
    fn lets_in(&self, entry: &QuotaEntry, id: ClassId, class: &EquivalenceClass, turn: &Turn) -> bool {
        let ahead = entry.reserving.as_ref().filter(|(ahead, _)| *ahead != id);
        let ahead = ahead.and_then(|(ahead, _)| self.classes.get(ahead));
        let is_first = |ahead: &&EquivalenceClass| {
            ahead.eldest().is_some_and(|eldest| entry.turn_of(ahead.quotas.share(), eldest) < *turn)
        };
        let is_beside =
            |ahead: &EquivalenceClass| entry.ledger().excess(&class.charge, Some(&ahead.charge)).is_empty();
        entry.lets_in(&class.charge) && ahead.filter(is_first).is_none_or(is_beside)
    }
}
