//! Rounds: where evaluators are sent the other pods of a namespace, its pods are asked about together, by one state of it.
//!
//! What an evaluator says of a pod may then change with any other pod. So each change of a pod wants a round of its
//! namespace. A round begins when no release of the namespace is in flight, so that it shows what the round before has let
//! go, and until it has ended none is sent. Pods that wait are asked about in each round, and stay charged in the queue what
//! was answered last; those that run only for a part of the time.

use std::collections::{HashMap, HashSet, VecDeque};

use sluice_engine::{PodId, Timers};
use sluice_index::NamespaceId;

use crate::evaluators::RoundOf;

/// Rounds at a time: each has the pods of its namespace in memory.
pub const AT_A_TIME: usize = 8;

/// The least and the longest time between the begins of two rounds of a namespace (milliseconds). In between, a round may
/// begin after five times what the one before took.
const SPACING_MS: (u64, u64) = (50, 1_000);

/// The pods that run are asked about for a tenth of the time.
const RUNNING_SHARE: u64 = 10;

/// What is known of the rounds of a namespace.
#[derive(Debug, Default)]
struct Round {
    /// The last one.
    of: RoundOf,
    began_ms: u64,
    took_ms: u64,
    /// Pods that are asked about in it and have no answer yet.
    left: HashSet<PodId>,
    /// Pods that run are among them.
    has_running: bool,
    /// Pods that wait, or run, are to be asked about again.
    wants: bool,
    wants_running: bool,
    /// Pods that run are not asked about before (milliseconds).
    running_from_ms: u64,
    /// Nothing is released before the next one.
    is_held: bool,
    is_queued: bool,
    /// Pods that go when it has ended.
    deferred: Vec<PodId>,
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
    queue: VecDeque<NamespaceId>,
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
        self.namespaces.get(&namespace).filter(|_| self.is_on).map(|round| round.of)
    }

    /// A pod of the namespace is not what it was, or has no answer.
    pub fn want(&mut self, namespace: NamespaceId) {
        if !self.is_on {
            return;
        }
        let round = self.namespaces.entry(namespace).or_default();
        (round.wants, round.wants_running) = (true, true);
        self.schedule(namespace);
    }

    /// A pod of the namespace is not what it was: asked about are those that were asked about before.
    pub fn note_change(&mut self, namespace: NamespaceId) {
        if self.namespaces.contains_key(&namespace) {
            self.want(namespace);
        }
    }

    /// What was answered in the namespace says nothing about what others have released: nothing goes before the next round.
    pub fn expire(&mut self, namespace: NamespaceId) {
        if let Some(round) = self.namespaces.get_mut(&namespace) {
            (round.wants, round.is_held) = (true, true);
            self.schedule(namespace);
        }
    }

    fn schedule(&mut self, namespace: NamespaceId) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        if !round.left.is_empty() || round.is_queued {
            return;
        }
        let (least, longest) = SPACING_MS;
        let from_ms = match round.of.number {
            0 => 0,
            _ => round.began_ms + round.took_ms.saturating_mul(5).clamp(least, longest),
        };
        let due_ms = match (round.is_held, round.wants, round.wants_running) {
            (true, ..) => 0,
            (_, true, _) => from_ms,
            (_, _, true) => from_ms.max(round.running_from_ms),
            (false, false, false) => return,
        };
        self.later.set_earlier(namespace, due_ms);
    }

    /// Whether [`Self::next`] has one.
    pub fn has_next(&self) -> bool {
        let has_queued = self.under_way < AT_A_TIME && !self.queue.is_empty();
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
        let namespace = self.queue.pop_front()?;
        self.namespaces.get_mut(&namespace)?.is_queued = false;
        Some(namespace)
    }

    fn enqueue(&mut self, namespace: NamespaceId) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        if !round.is_queued && round.left.is_empty() {
            round.is_queued = true;
            self.queue.push_back(namespace);
        }
    }

    /// Releases of the namespace are in flight: its round begins when they are answered, and meanwhile none is sent.
    pub fn hold(&mut self, namespace: NamespaceId) {
        if let Some(round) = self.namespaces.get_mut(&namespace) {
            round.is_held = true;
        }
    }

    /// A release of the namespace was answered.
    pub fn on_answered_release(&mut self, namespace: NamespaceId) {
        if self.namespaces.get(&namespace).is_some_and(|round| round.is_held) {
            self.enqueue(namespace);
        }
    }

    /// Whether the pods that run are to be asked about as well, now.
    pub fn asks_running(&self, namespace: NamespaceId, now_ms: u64) -> bool {
        let round = self.namespaces.get(&namespace);
        round.is_some_and(|round| round.wants_running && round.running_from_ms <= now_ms)
    }

    /// A round begins with these pods; `version`: it is to show no earlier state.
    pub fn begin(
        &mut self,
        namespace: NamespaceId,
        left: HashSet<PodId>,
        version: u64,
        has_running: bool,
        now_ms: u64,
    ) {
        let Some(round) = self.namespaces.get_mut(&namespace) else { return };
        (round.wants, round.is_held) = (false, false);
        round.wants_running &= !has_running;
        if left.is_empty() {
            self.resumed.append(&mut round.deferred);
            self.schedule(namespace);
            return;
        }
        self.last += 1;
        self.under_way += 1;
        round.of = RoundOf { number: self.last, version };
        (round.began_ms, round.left, round.has_running) = (now_ms, left, has_running);
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
        round.took_ms = now_ms.saturating_sub(round.began_ms);
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
            let is_under_way = !round.left.is_empty() || self.ended.contains(&namespace);
            self.under_way = self.under_way.saturating_sub(usize::from(is_under_way));
            self.ended.retain(|ended| *ended != namespace);
            self.resumed.extend(round.deferred);
        }
        self.later.cancel(&namespace);
    }

    /// Defers the release of a pod until the round has ended; false if there is none.
    pub fn defer_release(&mut self, namespace: NamespaceId, pod: PodId) -> bool {
        let round = self.namespaces.get_mut(&namespace).filter(|it| it.is_held || !it.left.is_empty());
        round.map(|round| round.deferred.push(pod)).is_some()
    }

    /// Releases that are not deferred any more.
    pub fn take_resumed(&mut self) -> Vec<PodId> {
        std::mem::take(&mut self.resumed)
    }
}
