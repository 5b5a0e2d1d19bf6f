//! Keeping room for a pod that has waited long.
//!
//! Room is kept for one class in a quota, that of the pod whose turn it is: the one that has waited longest, once it has
//! waited longer than is reasonable. It is kept in all quotas of the pod together. Nobody knows whether it will ever be
//! enough: what runs may run for ever. So a turn is over when for some time nothing was freed of what the pod lacks: as long
//! as pods are patient, and more in a turn that has lasted for long, because the fewer pods are left, the rarer they end. A
//! quota keeps room in vain for a small part of the time only ([`Account`](super::account::Account)), however many such pods
//! there are. A turn begins when a quota has got room, so that the room of pods that end together is kept
//! for a pod that had its turn before in vain.
//!
//! A shared quota keeps room for pods only that their own quotas have room for, which keep it until then: otherwise a tenant
//! whose own quota is full would hold up those that have nothing to do with it. In a shared quota a pod's wait counts from
//! when its share had its turn last, if that is later ([`Turn`](super::lanes::Turn)). So a share with a long queue gets in
//! one such pod in that time, each other share has its turn before the second, and for the rest the order of shares holds.

use std::sync::Arc;

use super::ReleaseQueue;
use super::account::Kept;
use super::quota_entry::QuotaEntry;
use super::quota_set::QuotaSet;
use super::wait_order::{ClassId, Patience, QuotaId};
use crate::charge::Charge;
use crate::ledger::Ledger;

/// How often the time may double in which something has to be freed.
const DOUBLED: u32 = 6;

/// Room that is kept for a class.
#[derive(Debug)]
pub(super) struct Reservation {
    quotas: Arc<QuotaSet>,
    charge: Arc<Charge>,
    began_ms: u64,
    /// The least that it lacked so far.
    lack: i128,
}

/// In place of what a class lacks: its turn is over.
const GIVEN_UP: i128 = i128::MIN;

/// How much of a quota is kept for this charge, in thousandths: in a turn that becomes only more.
fn kept_of(ledger: &Ledger, charge: &Charge) -> i64 {
    let parts = ledger.lines().iter().filter_map(|line| {
        let free = line.hard.saturating_sub(line.used()).min(charge.get(&line.resource)?);
        free.nanos().saturating_mul(1_000).checked_div(line.hard.nanos())
    });
    parts.max().and_then(|part| i64::try_from(part).ok()).unwrap_or(0).clamp(0, 1_000)
}

impl ReleaseQueue {
    /// When the next turn may be over: [`ReleaseQueue::decide`] is to be asked then.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        self.dues.next()
    }

    /// Begins a turn in this quota, if none is under way: of the first class that can have one. In a shared quota that is
    /// one that its own quotas let in, in another one it is not: that one is not in its way.
    pub(super) fn reserve(&mut self, quota: QuotaId, patience: Patience) {
        let Some(entry) = self.entries.get_mut(&quota).filter(|entry| entry.may_keep(patience.now_ms)) else {
            return;
        };
        let is_shared = entry.shares().is_some();
        let Some(sweep) = &mut entry.sweep else { return };
        let mut searched = sweep.searched.take();
        let classes = entry.impatient(patience.ended_ms(), &mut searched, &self.classes);
        for id in classes {
            if self.is_let_in_by_its_own(id) == is_shared && self.begin_turn(id, is_shared, patience) {
                return;
            }
        }
        if let Some(sweep) = self.entries.get_mut(&quota).and_then(|entry| entry.sweep.as_mut()) {
            sweep.searched = searched;
        }
    }

    /// Whether no quota that is the share's alone is in the way of the class.
    fn is_let_in_by_its_own(&self, id: ClassId) -> bool {
        let Some(class) = self.classes.get(&id) else { return false };
        let entries = class.quotas.iter().filter_map(|quota| self.entries.get(quota));
        entries.filter(|entry| entry.shares().is_none()).all(|entry| {
            let ahead = entry.kept.filter(|kept| kept.class != id);
            let ahead = ahead.and_then(|kept| self.classes.get(&kept.class));
            let beside = ahead.map(|ahead| &*ahead.charge);
            entry.rest.is_over() && entry.ledger().excess(&class.charge, beside).is_empty()
        })
    }

    /// Room is kept in all quotas of the class, or in those that are the share's alone; unless one of these keeps it for
    /// another class, or keeps none at the moment. Returns whether it is.
    fn begin_turn(&mut self, id: ClassId, with_shared: bool, patience: Patience) -> bool {
        let Some(class) = self.classes.get(&id) else { return false };
        let quotas = Arc::clone(&class.quotas);
        let is_free = |entry: &QuotaEntry| entry.may_keep(patience.now_ms);
        let is_in_the_way = |quota: &QuotaId| {
            let entry = self.entries.get(quota).filter(|entry| entry.shares().is_some() == with_shared);
            entry.is_some_and(|entry| !is_free(entry) && !entry.keeps_for(id))
        };
        if quotas.iter().any(is_in_the_way) {
            return false;
        }
        for quota in quotas.iter() {
            let entry = self.entries.get_mut(quota).filter(|entry| is_free(entry));
            if let Some(entry) = entry.filter(|entry| with_shared || entry.shares().is_none()) {
                entry.kept = Some(Kept { class: id, since_ms: patience.now_ms });
            }
        }
        let began_ms = self.reservations.get(&id).map_or(patience.now_ms, |turn| turn.began_ms);
        self.go_on(id, quotas, began_ms, patience);
        true
    }

    /// From now on something has to be freed for the class: in twice the time that its turn has lasted.
    fn go_on(&mut self, id: ClassId, quotas: Arc<QuotaSet>, began_ms: u64, patience: Patience) {
        let Some(class) = self.classes.get(&id) else { return };
        let (charge, in_vain) = (Arc::clone(&class.charge), class.in_vain.min(DOUBLED));
        let [least_ms, most_ms] =
            [in_vain, DOUBLED].map(|times| patience.limit_ms.saturating_mul(1 << times));
        let lasts_ms = patience.now_ms.saturating_sub(began_ms).saturating_mul(2).clamp(least_ms, most_ms);
        self.reservations.insert(id, Reservation { quotas, charge, began_ms, lack: self.lack(id) });
        self.dues.set(id, patience.now_ms.saturating_add(lasts_ms).saturating_add(1));
    }

    /// How much more its quotas would have to have free, summed up over all of them and all resources: what matters is
    /// whether it becomes less.
    fn lack(&self, id: ClassId) -> i128 {
        let Some(class) = self.classes.get(&id) else { return 0 };
        let entries = class.quotas.iter().filter_map(|quota| self.entries.get(quota));
        let excess = entries.flat_map(|entry| entry.ledger().excess(&class.charge, None));
        let missing = excess.map(|it| it.used.saturating_add(it.requested).saturating_sub(it.hard).nanos());
        missing.fold(0, i128::saturating_add)
    }

    /// Ends the turns that nothing was freed for in time, and goes on with the others.
    pub(super) fn end_turns(&mut self, patience: Patience, looks: &mut usize) {
        while *looks > 0
            && let Some(id) = self.dues.pop_due(patience.now_ms)
        {
            *looks -= 1;
            let lack = self.lack(id);
            let is_given_up = self.reservations.get(&id).is_some_and(|turn| turn.lack == GIVEN_UP);
            let goes_on = |turn: &&Reservation| lack < turn.lack && self.classes.contains_key(&id);
            let turn = self.reservations.get(&id).filter(goes_on);
            if let Some((quotas, began_ms)) = turn.map(|turn| (Arc::clone(&turn.quotas), turn.began_ms)) {
                self.go_on(id, quotas, began_ms, patience);
                continue;
            }
            self.end_turn(id, patience, false);
            // Those that wait beside the one that left have not had theirs.
            if let Some(class) = self.classes.get_mut(&id).filter(|_| !is_given_up) {
                let old = class.front();
                class.had_turn(patience.now_ms);
                self.move_front(id, old.as_ref());
            }
        }
    }

    /// The class's turn is over. Unless a pod of it went, that was in vain.
    pub(super) fn end_turn(&mut self, id: ClassId, patience: Patience, went: bool) {
        let Some(turn) = self.reservations.remove(&id) else { return };
        self.dues.cancel(&id);
        for quota in turn.quotas.iter() {
            let Some(entry) = self.entries.get_mut(quota) else { continue };
            let Some(kept) = entry.kept.take_if(|kept| kept.class == id) else { continue };
            if !went {
                let part = kept_of(entry.ledger(), &turn.charge);
                entry.account.spend(kept.since_ms, part, patience);
            }
            entry.update_lane(turn.quotas.share(), |lane| lane.serve(patience.now_ms));
            self.wake(*quota);
        }
    }

    /// The pod whose turn it is waits no more, or could not fit any more: the next decision ends its turn.
    pub(super) fn give_turn_up(&mut self, id: ClassId) {
        let Some(turn) = self.reservations.get_mut(&id) else { return };
        turn.lack = GIVEN_UP;
        self.dues.set(id, 1);
        let quotas = Arc::clone(&turn.quotas);
        for quota in quotas.iter() {
            self.wake(*quota);
        }
    }
}
