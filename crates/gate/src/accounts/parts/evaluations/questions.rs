//! Questions: who has a turn, what is in flight, and what is tried again.

use std::collections::BTreeSet;

use sluice_engine::PodId;
use sluice_index::NamespaceId;

use super::lanes::{Class, Flight};
use super::open::PAUSED_MS;
use super::unready::Lack;
use super::{Answer, Answered, Evaluation, Evaluations, Known, Open, Read};
use crate::backoff::{backoff_ms, delay_ms};
use crate::config::Moment;
use crate::evaluators::{Again, Failed, Said};
use crate::tables::shrink;

/// Of a pod that is not asked about again before something has changed.
pub(super) const NEVER: u64 = u64::MAX;
/// After the first failure a pod is asked about again after so long (milliseconds).
pub(super) const RETRY_MS: u64 = 1_000;

impl Evaluations {
    /// The content of the pod has to have an answer of the `selected` evaluators.
    pub fn ask(
        &mut self,
        id: PodId,
        (namespace, selected): (NamespaceId, u16),
        is_waiting: bool,
        now: Moment,
    ) {
        let is_again = self.open.get(&id).is_some_and(|open| open.is_again && open.selected == selected);
        if !is_again && matches!(self.of(id, selected), Evaluation::Current(_)) {
            if let Some(known) = self.slot(id) {
                known.wanted = selected;
            }
            self.close(id, namespace);
            return;
        }
        let is_answered =
            self.get(id).is_some_and(|known| known.answer >= Answer::Outdated && known.asked == selected);
        let (is_known, is_in_rounds) = (self.is_read(id), self.is_in_rounds(selected));
        let may_stand = !is_waiting && !is_in_rounds && !self.open.contains_key(&id);
        if may_stand && self.fits_in_line(id, (namespace, selected), now) {
            self.stand_in_line(id, (namespace, selected), is_answered, now);
            return;
        }
        self.leave_line(id, namespace);
        if let Some(known) = self.slot(id) {
            known.wanted = selected;
        }
        let fresh = Open::new(namespace, selected, is_waiting, now.mono_ms);
        let open = self.open.entry(id).or_insert(fresh);
        if open.is_told && open.is_waiting != is_waiting {
            self.moved.push(id);
        }
        open.is_waiting = is_waiting;
        let mut keeps_turn = false;
        if open.selected != selected {
            // A question that is in flight is about other evaluators.
            (open.selected, open.serial, open.failure, open.retry_ms) = (selected, None, None, 0);
            (open.since_ms, open.has_expired, open.is_again) = (now.mono_ms, false, false);
            // Its turn was one among others. One that it has outside of a round is none any more.
            let had_turn = std::mem::take(&mut open.has_turn);
            keeps_turn = had_turn && is_in_rounds && self.rounds.has_left(namespace, id);
            if had_turn && !keeps_turn {
                self.rounds.leave(namespace, id);
            }
        }
        if !is_waiting && !is_answered {
            let fails = open.failure.is_some() || open.failures > 0 && self.broken.is_any_of(selected);
            let is_pending = open.lack.is_pending || !fails && !open.has_expired;
            let before = std::mem::replace(&mut open.lack, Lack { is_pending, is_unanswered: true });
            self.unready.replace(open.namespace, before, open.lack);
        }
        if keeps_turn {
            self.give_turn(id);
        } else if is_known && open.serial.is_none() && !open.has_turn && open.retry_ms <= now.mono_ms {
            if is_in_rounds {
                open.awaits_round = true;
                self.rounds.want(namespace, is_waiting);
            } else {
                self.give_turn(id);
            }
        }
        self.arm(id);
        self.count(id);
    }

    /// The pod is to be asked about as soon as others that came before have been.
    pub(super) fn give_turn(&mut self, id: PodId) {
        let Some(open) = self.open.get_mut(&id) else { return };
        (open.has_turn, open.awaits_round) = (true, false);
        let class = match (open.failures, open.is_waiting) {
            (0, true) => Class::Waiting,
            (0, false) => Class::Running,
            _ => Class::Failing,
        };
        self.lanes.push(open.selected, class, open.namespace, id);
    }

    pub(super) fn arm(&mut self, id: PodId) {
        let Some(open) = self.open.get(&id) else { return };
        // One whose content is not known is asked about when it is.
        let is_retried = self.is_read(id)
            && open.serial.is_none()
            && !open.has_turn
            && !open.awaits_round
            && open.failures > 0
            && open.retry_ms != NEVER;
        let told = open.told_ms();
        let expires = (!open.has_expired).then_some(open.since_ms + PAUSED_MS);
        let due = is_retried.then_some(open.retry_ms).into_iter().chain(told).chain(expires).min();
        match due {
            Some(due) => self.later.set(id, due),
            None => self.later.cancel(&id),
        }
    }

    /// The pod is not asked about any more.
    pub fn leave(&mut self, id: PodId, namespace: NamespaceId) {
        if let Some(known) = self.known.get_mut(id.0 as usize) {
            known.wanted = 0;
        }
        self.close(id, namespace);
    }

    /// The pod is not asked about, for now or any more.
    pub fn close(&mut self, id: PodId, namespace: NamespaceId) {
        self.drop_from_line(id, namespace);
        self.note_moved(id, namespace);
        let closed = self.open.remove(&id);
        self.count(id);
        let Some(open) = closed else { return };
        self.rounds.leave(open.namespace, id);
        self.later.cancel(&id);
        self.note_lack(open.namespace, open.lack, Lack::default());
        // Where pods are asked about in rounds each pod of the cluster is open after a start.
        shrink(&mut self.open);
    }

    pub(super) fn end_pending(&mut self, id: PodId) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let (namespace, before) = (open.namespace, open.lack);
        open.lack.is_pending = false;
        let after = open.lack;
        self.note_lack(namespace, before, after);
    }

    pub(super) fn note_lack(&mut self, namespace: NamespaceId, before: Lack, after: Lack) {
        if self.unready.replace(namespace, before, after) {
            self.ended.push(namespace);
        }
    }

    pub fn forget(&mut self, id: PodId, namespace: NamespaceId) {
        self.leave(id, namespace);
        self.forget_for_next(id);
        if let Some(known) = self.known.get_mut(id.0 as usize) {
            *known = Known::default();
        }
    }

    /// The question about the pod to these evaluators is sent: its hash and the serial; `None` if there is nothing to ask.
    pub fn begin(&mut self, id: PodId, namespace: NamespaceId, selected: u16) -> Option<(u64, u64)> {
        self.leave_line(id, namespace);
        let is_read = |known: &&Known| known.read == Read::Latest;
        let open = self.open.get_mut(&id).filter(|open| open.serial.is_none())?;
        if open.selected != selected {
            // Others select its namespace by now. What they said would count as said by those of before.
            self.rounds.leave(open.namespace, id);
            self.looks.push(id);
            return None;
        }
        let Some(known) = self.known.get(id.0 as usize).filter(is_read) else {
            self.rounds.leave(open.namespace, id);
            return None;
        };
        self.last_serial += 1;
        (open.serial, open.has_turn) = (Some(self.last_serial), false);
        let flight = Flight { pod: id, selected, has_failed: open.failures > 0 };
        self.lanes.begin(self.last_serial, flight);
        let (hash, serial) = (known.hash, self.last_serial);
        self.arm(id);
        Some((hash, serial))
    }

    pub fn answered(
        &mut self,
        serial: u64,
        hash: u64,
        answer: Result<Said, Failed>,
        now: Moment,
    ) -> Answered {
        let Some(Flight { pod: id, .. }) = self.lanes.end(serial) else { return Answered::Dropped };
        let Some(open) = self.open.get_mut(&id) else { return Answered::Dropped };
        if open.serial == Some(serial) || open.serial.is_none() && !open.has_turn {
            self.rounds.leave(open.namespace, id);
        }
        if open.serial != Some(serial) {
            return Answered::Dropped;
        }
        (open.serial, open.is_again) = (None, false);
        let (namespace, selected, is_waiting) = (open.namespace, open.selected, open.is_waiting);
        if !self.has_content(id, hash) {
            self.ask(id, (namespace, selected), is_waiting, now);
            return Answered::Dropped;
        }
        match answer {
            Ok(Said { price, matched, retains }) => {
                let price = self.share(price);
                if let Some(known) = self.slot(id) {
                    known.say(price, retains, (selected, matched));
                }
                // It stays open as long as its content is not known.
                self.ask(id, (namespace, selected), is_waiting, now);
                if let Some(open) = self.open.get_mut(&id) {
                    let before = std::mem::take(&mut open.lack);
                    self.note_lack(namespace, before, Lack::default());
                }
                Answered::Priced
            }
            Err(Failed { text, by, again }) => {
                if let Some(known) = self.slot(id) {
                    // Of a pod that was asked about again: what was said before is of another state of its namespace.
                    known.outdate();
                }
                if let Some(open) = self.open.get_mut(&id) {
                    open.failures = open.failures.saturating_add(1);
                    (open.failure, open.failed_by) = (Some(text), by);
                    open.retry_ms = match again {
                        Again::In(after) => now.mono_ms + delay_ms(Some(after), open.failures),
                        Again::Later => now.mono_ms + backoff_ms(RETRY_MS, open.failures),
                        Again::WhenChanged => NEVER,
                    };
                }
                self.end_pending(id);
                self.arm(id);
                self.count(id);
                Answered::Failed
            }
        }
    }

    /// Looks at what is due. Returns the pods of which is to be told, and whether pods are counted natively or evaluated
    /// from now on in place of the other.
    pub fn pass_time(&mut self, now: Moment) -> (Vec<PodId>, bool) {
        let mut told = Vec::new();
        while let Some(id) = self.later.pop_due(now.mono_ms) {
            let Some(open) = self.open.get_mut(&id) else { continue };
            if open.told_ms().is_some_and(|due| due <= now.mono_ms) {
                open.is_told = true;
                told.push(id);
                self.moved.push(id);
            }
            let (of, is_waiting) = ((open.namespace, open.selected), open.is_waiting);
            if !open.has_expired && open.since_ms + PAUSED_MS <= now.mono_ms {
                open.has_expired = true;
                self.end_pending(id);
            }
            self.ask(id, of, is_waiting, now);
        }
        let native = self.config().map_or(0, |config| self.broken.native(config, now.mono_ms));
        (told, std::mem::replace(&mut self.native, native) != native)
    }

    /// Of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        let native = self.config().and_then(|config| self.broken.next_due_ms(config, self.native));
        let later = [self.later.next(), self.line.next_due_ms(), self.rounds.next_due_ms(), native];
        later.into_iter().flatten().min()
    }

    /// These evaluators do not work, a bit for each. What failed is asked about at once when all that are asked work again.
    /// Returns the namespaces whose sums are not complete before that is answered: a failure has ended their pause, as at
    /// a start before the evaluator's.
    pub fn set_broken(&mut self, broken: u16, now: Moment) -> BTreeSet<NamespaceId> {
        let repaired = self.broken.set(broken, now.mono_ms);
        if repaired == 0 {
            return BTreeSet::new();
        }
        let may_succeed = |open: &Open| {
            let is_repaired = open.selected & repaired != 0 && open.selected & broken == 0;
            is_repaired && open.failures > 0 && open.retry_ms != NEVER
        };
        let failed: Vec<PodId> =
            self.open.iter().filter(|(_, open)| may_succeed(open)).map(|(id, _)| *id).collect();
        for id in failed {
            let Some(open) = self.open.get_mut(&id) else { continue };
            (open.retry_ms, open.failures) = (now.mono_ms, 0);
            let (of, is_waiting) = ((open.namespace, open.selected), open.is_waiting);
            if !is_waiting {
                (open.failure, open.since_ms, open.has_expired) = (None, now.mono_ms, false);
            }
            self.ask(id, of, is_waiting, now);
        }
        self.unready.pending()
    }
}
