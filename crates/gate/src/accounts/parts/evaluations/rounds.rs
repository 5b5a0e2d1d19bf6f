//! Rounds: where evaluators are sent the other pods of a namespace, its pods are asked about together, by one state of it.
//!
//! What an evaluator says of a pod may then change with any other pod. So each change of a pod wants a round of its
//! namespace. A round begins when no release of the namespace is in flight, so that it shows what the round before has let
//! go, and until it has ended none is sent. Pods that wait are asked about in each round, and stay charged in the queue what
//! was answered last; those that run only for a part of the time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use sluice_engine::{PodId, Timers};
use sluice_index::NamespaceId;

use crate::backoff::backoff_ms;
use crate::evaluators::RoundOf;

/// Rounds at a time: each has the pods of its namespace in memory.
pub const AT_A_TIME: usize = 8;

/// The least and the longest time from the end of a round of a namespace to the begin of the next (milliseconds). In
/// between, it is twice what the one before took.
const SPACING_MS: (u64, u64) = (50, 1_000);

/// So long after a round the next one waits for what is decided and has not gone (milliseconds).
const BATCH_MS: u64 = 1_000;

/// A namespace whose pods could not be read, or are too many, is read again after so long (milliseconds), then later.
const UNREAD_MS: u64 = 1_000;
const TOO_MANY_MS: u64 = 10_000;

/// The pods that run are asked about for a tenth of the time.
const RUNNING_SHARE: u64 = 10;

/// After so many namespaces in which pods wait, one in which none does has its turn.
const OTHERS_AFTER: u8 = 8;

/// What is known of the rounds of a namespace.
#[derive(Debug, Default)]
struct Round {
    /// The last one.
    of: RoundOf,
    began_ms: u64,
    ended_ms: u64,
    took_ms: u64,
    /// The namespace is being read for it.
    is_reading: bool,
    /// How often in a row it could not be read, and not to be read before (milliseconds).
    failures: u32,
    not_before_ms: u64,
    /// Pods that are asked about in it and have no answer yet.
    left: HashSet<PodId>,
    /// Pods that run are among them.
    has_running: bool,
    /// Pods that wait, or run, are to be asked about again.
    wants: bool,
    wants_running: bool,
    /// Pods that run are not asked about before (milliseconds).
    running_from_ms: u64,
    /// Pods wait for the next one.
    presses: bool,
    /// Nothing is released before the next one.
    is_held: bool,
    is_queued: bool,
    /// Pods that go when it has ended.
    deferred: Vec<PodId>,
}

impl Round {
    fn is_under_way(&self) -> bool {
        self.is_reading || !self.left.is_empty()
    }
}

/// A pod that may be asked about in a round.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub pod: PodId,
    /// The evaluators that are asked, a bit for each.
    pub selected: u16,
    pub is_waiting: bool,
}

/// Invariant: a namespace that wants a round has one under way, is held until its releases are answered, is queued, or has a
/// timer. A release that is deferred is taken exactly once.
#[derive(Debug, Default)]
pub struct Rounds {
    is_on: bool,
    namespaces: HashMap<NamespaceId, Round>,
    later: Timers<NamespaceId>,
    /// Those whose round is due and in which pods wait, and all others. Who stands in both has its turn by the first.
    pressing: VecDeque<NamespaceId>,
    queue: VecDeque<NamespaceId>,
    /// How many in which pods wait had their turn since another had.
    pressing_in_a_row: u8,
    under_way: usize,
    /// Those whose round has ended.
    ended: Vec<NamespaceId>,
    last: u64,
    /// Releases that are not deferred any more.
    resumed: Vec<PodId>,
}

impl Rounds {
    /// From now on pods are asked about in rounds, or one by one. What was deferred goes on.
    pub fn configure(&mut self, is_on: bool) {
        let deferred = self.namespaces.values_mut().flat_map(|round| std::mem::take(&mut round.deferred));
        let resumed = std::mem::take(&mut self.resumed).into_iter().chain(deferred).collect();
        *self = Self { is_on, last: self.last, resumed, ..Self::default() };
    }

    pub const fn are_on(&self) -> bool {
        self.is_on
    }

    /// The last round of the namespace.
    pub fn of(&self, namespace: NamespaceId) -> Option<RoundOf> {
        self.namespaces.get(&namespace).filter(|_| self.is_on).map(|round| round.of.clone())
    }

    /// A pod of the namespace is not what it was, or has no answer.
    pub fn want(&mut self, namespace: NamespaceId, presses: bool) {
        if !self.is_on {
            return;
        }
        let round = self.namespaces.entry(namespace).or_default();
        (round.wants, round.wants_running) = (true, true);
        if presses {
            self.press(namespace);
        }
        self.schedule(namespace);
    }

    /// Pods of the namespace wait for its round: it goes before those of others.
    fn press(&mut self, namespace: NamespaceId) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        if !std::mem::replace(&mut round.presses, true) && round.is_queued {
            self.pressing.push_back(namespace);
        }
    }

    /// A pod of the namespace is not what it was: asked about are those that were asked about before.
    pub fn note_change(&mut self, namespace: NamespaceId) {
        if self.namespaces.contains_key(&namespace) {
            self.want(namespace, false);
        }
    }

    /// What was answered in the namespace says nothing about what others have released: nothing goes before the next round.
    pub fn expire(&mut self, namespace: NamespaceId) {
        if let Some(round) = self.namespaces.get_mut(&namespace) {
            (round.wants, round.is_held) = (true, true);
            self.press(namespace);
            self.schedule(namespace);
        }
    }

    fn schedule(&mut self, namespace: NamespaceId) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        if round.is_under_way() || round.is_queued {
            return;
        }
        let (least, longest) = SPACING_MS;
        let from_ms = match round.of.number {
            0 => 0,
            _ => round.ended_ms + round.took_ms.saturating_mul(2).clamp(least, longest),
        };
        let due_ms = match (round.is_held, round.wants, round.wants_running) {
            (true, ..) => 0,
            (_, true, _) => from_ms,
            (_, _, true) => from_ms.max(round.running_from_ms),
            (false, false, false) => return,
        };
        self.later.set_earlier(namespace, due_ms.max(round.not_before_ms));
    }

    pub fn has_next(&self) -> bool {
        let has_queued = self.under_way < AT_A_TIME && !(self.pressing.is_empty() && self.queue.is_empty());
        has_queued || !self.ended.is_empty() || !self.resumed.is_empty()
    }

    pub fn next_due_ms(&self) -> Option<u64> {
        self.later.next()
    }

    /// The next namespace whose round is to begin, if no release of it is in flight.
    pub fn next(&mut self, now_ms: u64) -> Option<NamespaceId> {
        while let Some(namespace) = self.ended.pop() {
            self.end(namespace, now_ms);
        }
        while let Some(namespace) = self.later.pop_due(now_ms) {
            self.enqueue(namespace);
        }
        if self.under_way >= AT_A_TIME {
            return None;
        }
        loop {
            let is_turn_of_others = self.pressing_in_a_row >= OTHERS_AFTER && !self.queue.is_empty();
            let pressing = if is_turn_of_others { None } else { self.pressing.pop_front() };
            let is_pressing = pressing.is_some();
            let namespace = pressing.or_else(|| self.queue.pop_front())?;
            // It may stand in the other queue by now, have had its turn by that, or be gone. That is no turn.
            let round = self.namespaces.get_mut(&namespace).filter(|round| round.presses == is_pressing);
            if round.is_some_and(|round| std::mem::take(&mut round.is_queued)) {
                self.pressing_in_a_row =
                    if is_pressing { self.pressing_in_a_row.saturating_add(1) } else { 0 };
                return Some(namespace);
            }
        }
    }

    fn enqueue(&mut self, namespace: NamespaceId) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        if !round.is_queued && !round.is_under_way() {
            round.is_queued = true;
            if round.presses { &mut self.pressing } else { &mut self.queue }.push_back(namespace);
        }
    }

    /// Releases of the namespace are in flight: its round begins when they are answered, and meanwhile none is sent.
    pub fn hold(&mut self, namespace: NamespaceId) {
        if let Some(round) = self.namespaces.get_mut(&namespace) {
            round.is_held = true;
        }
    }

    /// A release of the namespace was answered, or cannot be done any more.
    pub fn on_settled_release(&mut self, namespace: NamespaceId) {
        if self.namespaces.get(&namespace).is_some_and(|round| round.is_held) {
            self.press(namespace);
            self.schedule(namespace);
        }
    }

    /// Pods of the namespace are decided and have not gone yet. Returns whether its round waits for them: for a while after
    /// the last one, so that what that has decided goes together.
    pub fn put_off(&mut self, namespace: NamespaceId, now_ms: u64) -> bool {
        let Some(round) = self.namespaces.get(&namespace).filter(|round| !round.is_held) else {
            return false;
        };
        let until_ms = round.ended_ms + BATCH_MS;
        let waits = round.of.number > 0 && now_ms < until_ms;
        if waits {
            self.later.set(namespace, until_ms.min(now_ms + SPACING_MS.0));
        }
        waits
    }

    /// A round begins: the namespace is read, by a state that is no earlier than `version`.
    pub fn begin_reading(&mut self, namespace: NamespaceId, version: u64, now_ms: u64) -> Option<RoundOf> {
        let round = self.namespaces.get_mut(&namespace)?;
        self.last += 1;
        self.under_way += 1;
        round.of = RoundOf { number: self.last, version, ..RoundOf::default() };
        (round.began_ms, round.is_reading, round.presses) = (now_ms, true, false);
        (round.wants, round.is_held) = (false, false);
        Some(round.of.clone())
    }

    pub fn is_under_way(&self, namespace: NamespaceId, number: u64) -> bool {
        self.namespaces.get(&namespace).is_some_and(|round| round.of.number == number && round.is_under_way())
    }

    /// The namespace could not be read: nothing of it goes before it is. Pods that are too many go on being held, and others
    /// go.
    pub fn not_read(&mut self, namespace: NamespaceId, are_too_many: bool, now_ms: u64) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        round.failures = round.failures.saturating_add(1);
        let first_ms = if are_too_many { TOO_MANY_MS } else { UNREAD_MS };
        round.not_before_ms = now_ms + backoff_ms(first_ms, round.failures);
        (round.is_reading, round.wants, round.is_held) = (false, true, !are_too_many);
        self.end(namespace, now_ms);
    }

    /// No pod is to be asked about now: those that run will be, if that is not for them to want.
    pub fn skip(&mut self, namespace: NamespaceId, now_ms: u64) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        (round.wants, round.is_held, round.presses) = (false, false, false);
        round.wants_running &= round.running_from_ms > now_ms;
        self.resumed.append(&mut round.deferred);
        self.schedule(namespace);
    }

    /// Whether the pod is still to be answered in the round.
    pub fn has_left(&self, namespace: NamespaceId, pod: PodId) -> bool {
        self.namespaces.get(&namespace).is_some_and(|round| round.left.contains(&pod))
    }

    /// Whether the pods that run are to be asked about as well, now.
    pub fn asks_running(&self, namespace: NamespaceId, now_ms: u64) -> bool {
        let round = self.namespaces.get(&namespace);
        round.is_some_and(|round| round.wants_running && round.running_from_ms <= now_ms)
    }

    /// The namespace is read, and these pods are asked about.
    pub fn begin(&mut self, namespace: NamespaceId, left: HashSet<PodId>, has_running: bool, now_ms: u64) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        (round.is_reading, round.failures) = (false, 0);
        round.wants_running &= !has_running;
        (round.left, round.has_running) = (left, has_running);
        if round.left.is_empty() {
            self.end(namespace, now_ms);
        }
    }

    /// The pod is not asked about any more in this round.
    pub fn leave(&mut self, namespace: NamespaceId, pod: PodId) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        if round.left.remove(&pod) && round.left.is_empty() {
            self.ended.push(namespace);
        }
    }

    fn end(&mut self, namespace: NamespaceId, now_ms: u64) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        self.under_way = self.under_way.saturating_sub(1);
        (round.took_ms, round.ended_ms) = (now_ms.saturating_sub(round.began_ms), now_ms);
        // What was read goes with the last question.
        round.of.pods = Arc::default();
        if round.has_running {
            round.running_from_ms = now_ms + round.took_ms * (RUNNING_SHARE - 1);
        }
        if !round.is_held {
            self.resumed.append(&mut round.deferred);
        }
        self.schedule(namespace);
    }

    /// The namespace has no pod that is asked about.
    pub fn forget(&mut self, namespace: NamespaceId) {
        if let Some(round) = self.namespaces.remove(&namespace) {
            let is_under_way = round.is_under_way() || self.ended.contains(&namespace);
            self.under_way = self.under_way.saturating_sub(usize::from(is_under_way));
            self.ended.retain(|ended| *ended != namespace);
            self.resumed.extend(round.deferred);
        }
        self.later.cancel(&namespace);
    }

    /// Defers the release of a pod until the round has ended; false if there is none.
    pub fn defer_release(&mut self, namespace: NamespaceId, pod: PodId) -> bool {
        let round = self.namespaces.get_mut(&namespace).filter(|it| it.is_held || it.is_under_way());
        round.map(|round| round.deferred.push(pod)).is_some()
    }

    /// Releases that are not deferred any more.
    pub fn take_resumed(&mut self) -> Vec<PodId> {
        std::mem::take(&mut self.resumed)
    }
}

#[cfg(test)]
mod tests;
