//! Keeping room for a pod that has waited long.
//!
//! In a quota room is kept for the pod that has waited longest, once it has waited longer than is reasonable, and only
//! if each other quota has room for it, does not rest and does not keep that room for a pod that has waited longer: room that
//! is kept while the pod cannot go anyway would help none. Quotas may be about the pods of many tenants, so it would hold up
//! those that have nothing to do with what is in that pod's way.

use std::sync::Arc;

use super::ReleaseQueue;
use super::equivalence_class::{ClassId, EquivalenceClass};
use super::quota_entry::QuotaEntry;
use super::wait_order::QuotaId;

/// Among so many of those that have waited longest. One tenant's pods that other quotas keep from going could make
/// it a long search.
const SEARCHED: usize = 32;

impl ReleaseQueue {
    /// Finds the class that room of the quota is kept for.
    pub(super) fn reserve(&mut self, quota: QuotaId, impatient_since_ms: Option<u64>) -> Option<ClassId> {
        let found = self.entries.get(&quota).and_then(|entry| {
            let impatient = entry.impatient(impatient_since_ms, SEARCHED, &self.classes);
            impatient.into_iter().find(|id| self.is_only_blocked_by(quota, *id))
        });
        if !found.is_some_and(|id| self.is_reserving(quota, id)) {
            let still_waits = |id| self.classes.contains_key(id);
            let entry = self.entries.get(&quota);
            if entry.and_then(|entry| entry.reserving.as_ref()).is_some_and(|(id, _)| still_waits(id)) {
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

    pub(super) fn is_reserving(&self, quota: QuotaId, id: ClassId) -> bool {
        let entry = self.entries.get(&quota);
        entry.and_then(|entry| entry.reserving.as_ref()).is_some_and(|(reserving, _)| *reserving == id)
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
        let blocked = entry.reserving_elsewhere.iter().filter(|(_, id)| {
            let class = self.classes.get(id);
            class.is_none_or(|class| !self.lets_in(entry, *id, class))
        });
        let ended: Vec<QuotaId> = blocked.map(|(elsewhere, _)| *elsewhere).collect();
        for elsewhere in ended {
            self.end_reservation(elsewhere);
            self.wake(elsewhere);
        }
    }

    /// The class was looked at and is held: where room is kept for a class that has not waited as long, it is this
    /// one's turn. Returns these quotas.
    pub(super) fn contest(&mut self, id: ClassId, impatient_since_ms: Option<u64>) -> Vec<QuotaId> {
        let eldest = |id| self.classes.get(&id).and_then(|class| class.eldest());
        let (Some(class), Some(own)) = (self.classes.get(&id), eldest(id)) else { return Vec::new() };
        if !class.fits_when_empty || Some(own.0) > impatient_since_ms {
            return Vec::new();
        }
        let is_younger = |quota: &&QuotaId| {
            let reserving = self.entries.get(quota).and_then(|entry| entry.reserving.as_ref());
            reserving.is_some_and(|(other, _)| eldest(*other).is_none_or(|other| own < other))
        };
        let contested =
            class.quotas.iter().filter(is_younger).filter(|quota| self.is_only_blocked_by(**quota, id));
        let won: Vec<QuotaId> = contested.copied().collect();
        for quota in &won {
            self.end_reservation(*quota);
            self.wake(*quota);
        }
        won
    }

    /// Whether the class could go now if there were room in this quota.
    fn is_only_blocked_by(&self, quota: QuotaId, id: ClassId) -> bool {
        let Some(class) = self.classes.get(&id) else { return false };
        let others = class.quotas.iter().filter(|other| **other != quota);
        let mut entries = others.filter_map(|other| self.entries.get(other));
        entries.all(|entry| self.lets_in(entry, id, class))
    }

    /// Whether the quota has room for the class beside one that it keeps room for. One that has not waited as long does not
    /// matter: when the class could go, it [contests](Self::contest) that. So of two quotas that keep room for each other's
    /// pods, that of the elder one goes on.
    fn lets_in(&self, entry: &QuotaEntry, id: ClassId, class: &EquivalenceClass) -> bool {
        let ahead = entry.reserving.as_ref().filter(|(ahead, _)| *ahead != id);
        let ahead = ahead.and_then(|(ahead, _)| self.classes.get(ahead));
        let elder = ahead.filter(|ahead| ahead.eldest() < class.eldest());
        let is_beside =
            |ahead: &EquivalenceClass| entry.ledger().excess(&class.charge, Some(&ahead.charge)).is_empty();
        entry.lets_in(&class.charge) && elder.is_none_or(is_beside)
    }
}
