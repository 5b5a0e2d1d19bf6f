//! Gates that are to be removed, the requests for it that are in flight, and retries.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use sluice_engine::PodId;
use sluice_index::Version;

use crate::gate::backoff::{FIRST_RETRY_MS, backoff_ms, delay_ms};
use crate::gate::config::Moment;

/// Requests in flight at a time: enough for every connection, and few enough that a mass release costs no more memory than
/// a small one.
const AT_A_TIME: usize = 256;

/// A release that failed; kept only for pods of which one did.
#[derive(Debug, Default)]
struct ReleaseRetry {
    /// Failures in a row.
    failures: u32,
    /// Not to be decided on before this moment (milliseconds).
    until_ms: u64,
    /// The last request that was not answered.
    unanswered: Option<Unanswered>,
    /// The API server's last refusal.
    refusal: Option<Box<str>>,
}

/// A request without an answer: in doubt until a later one is answered, however late that is.
#[derive(Debug)]
struct Unanswered {
    /// The version that it was sent for, or a later one: it cannot be done on one after that.
    version: Version,
    /// An API server may work on it until this moment (milliseconds): a refusal before it proves nothing.
    until_ms: u64,
}

/// Releases that are queued, in flight and to be repeated.
///
/// Invariant: a pod has at most one request in flight, from [`Self::begin`] to [`Self::answered`], and at most 256 pods
/// have one. A queued pod may have changed since: the caller checks each one that [`Self::next`] returns.
#[derive(Debug, Default)]
pub struct Releases {
    queue: VecDeque<PodId>,
    in_flight: HashSet<PodId>,
    retries: HashMap<PodId, ReleaseRetry>,
    /// Pods to look at again at a moment (milliseconds).
    later: BTreeSet<(u64, PodId)>,
}

impl Releases {
    pub fn enqueue(&mut self, id: PodId) {
        self.queue.push_back(id);
    }

    /// Replaces the queue.
    pub fn requeue(&mut self, ids: impl IntoIterator<Item = PodId>) {
        self.queue = ids.into_iter().collect();
    }

    /// The next queued pod; `None` while as many requests as allowed are in flight.
    pub fn next(&mut self) -> Option<PodId> {
        if self.in_flight.len() < AT_A_TIME { self.queue.pop_front() } else { None }
    }

    /// Whether [`Self::next`] has one.
    pub fn has_next(&self) -> bool {
        !self.queue.is_empty() && self.in_flight.len() < AT_A_TIME
    }

    /// A request for the pod is sent.
    pub fn begin(&mut self, id: PodId) {
        self.in_flight.insert(id);
    }

    /// The request was answered, or its answer will not matter any more.
    pub fn answered(&mut self, id: PodId) {
        self.in_flight.remove(&id);
    }

    pub fn is_in_flight(&self, id: PodId) -> bool {
        self.in_flight.contains(&id)
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether a request for the pod is in flight, or one without an answer may be done or have been.
    pub fn may_be_done(&self, id: PodId) -> bool {
        self.is_in_flight(id) || self.unanswered(id).is_some()
    }

    /// As [`Self::may_be_done`] of a pod that has our gate in this version.
    pub fn may_be_done_on(&self, id: PodId, version: Version) -> bool {
        self.is_in_flight(id)
            || self.unanswered(id).is_some_and(|unanswered| !unanswered.version.is_older_than(version))
    }

    /// Whether an API server may still work on a request that was not answered.
    pub fn is_worked_on(&self, id: PodId, now: Moment) -> bool {
        self.unanswered(id).is_some_and(|unanswered| now.mono_ms < unanswered.until_ms)
    }

    fn unanswered(&self, id: PodId) -> Option<&Unanswered> {
        self.retries.get(&id)?.unanswered.as_ref()
    }

    /// Whether the pod is not to be decided on yet.
    pub fn is_backing_off(&self, id: PodId, now: Moment) -> bool {
        self.retries.get(&id).is_some_and(|retry| retry.until_ms > now.mono_ms)
    }

    /// Why the API server refused the release last.
    pub fn refusal(&self, id: PodId) -> Option<&str> {
        self.retries.get(&id)?.refusal.as_deref()
    }

    /// The API server refused the release.
    pub fn refused(&mut self, id: PodId, why: String) {
        self.retries.entry(id).or_default().refusal = Some(why.into());
    }

    /// The request was not answered. An API server may work on it until `until_ms`; the pod has this version by now.
    pub fn outcome_unknown(&mut self, id: PodId, version: Version, until_ms: u64) {
        self.retries.entry(id).or_default().unanswered = Some(Unanswered { version, until_ms });
    }

    /// The same request is to be repeated later: its preconditions make that safe, whether it was done or not.
    pub fn repeat_later(&mut self, id: PodId, retry_after: Option<Duration>, now: Moment) {
        let retry = self.retries.entry(id).or_default();
        retry.failures += 1;
        let wait = delay_ms(retry_after, retry.failures);
        self.later.insert((now.mono_ms + wait, id));
    }

    /// The pod has changed, and with it no request that was sent can be done: it is repeated for the version that there is now, the
    /// first time at once, then later each time.
    pub fn repeat_changed(&mut self, id: PodId, now: Moment) {
        let retry = self.retries.entry(id).or_default();
        retry.unanswered = None;
        retry.failures += 1;
        match retry.failures.saturating_sub(1) {
            0 => self.queue.push_back(id),
            steps => drop(self.later.insert((now.mono_ms + backoff_ms(FIRST_RETRY_MS, steps), id))),
        }
    }

    /// The release was certainly not done: the pod is decided on again, later each time. With `from` 0 the first retry comes
    /// at once.
    pub fn back_off(&mut self, id: PodId, from: u32, now: Moment) {
        let retry = self.retries.entry(id).or_default();
        retry.unanswered = None;
        retry.failures += 1;
        let steps = (retry.failures + from).saturating_sub(1);
        if steps > 0 {
            retry.until_ms = now.mono_ms + backoff_ms(FIRST_RETRY_MS, steps);
            self.later.insert((retry.until_ms, id));
        }
    }

    /// The pod counts: earlier failures do not matter any more.
    pub fn end_retries(&mut self, id: PodId) {
        self.retries.remove(&id);
    }

    /// The pod is released, or gone.
    pub fn forget(&mut self, id: PodId) {
        self.in_flight.remove(&id);
        self.retries.remove(&id);
    }

    /// The next pod whose time has come.
    pub fn pop_due(&mut self, now: Moment) -> Option<PodId> {
        let due = self.later.first().copied().filter(|(at, _)| *at <= now.mono_ms)?;
        self.later.remove(&due);
        Some(due.1)
    }

    /// Of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.later.first().map(|(at, _)| *at)
    }
}
