//! Requests that remove gates: whose turn it is, how many are in flight, and when one is repeated.
//!
//! Which pod may go, and what an answer means for its claim, the [accounts](super::accounts) say.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use sluice_engine::PodId;
use sluice_index::{NamespaceId, Namespaces};

use super::action::Release;
use super::backoff::{FIRST_RETRY_MS, backoff_ms, delay_ms};
use super::config::Moment;
use super::turns::Turns;

/// With more namespaces that have requests or are slow than these, those that have gone are dropped.
const MANY: usize = 1_024;

/// The requests of one namespace.
#[derive(Debug, Default)]
struct Places {
    in_flight: usize,
    /// A request was not answered in time, and none was done since.
    is_slow: bool,
}

/// A release that failed; kept only for pods of which one did.
#[derive(Debug, Default)]
struct ReleaseRetry {
    /// Failures in a row.
    failures: u32,
    /// The API server's last refusal.
    refusal: Option<Box<str>>,
}

/// How many requests may be in flight.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// All together.
    all: usize,
    /// Of one namespace: whatever its own admission webhooks make of its updates, others have places.
    of_one: usize,
    /// Of a namespace in which the last request was not answered in time.
    of_a_slow_one: usize,
}

/// Releases that are queued, in flight and to be repeated.
///
/// Invariant: as many requests as the limits allow are in flight, each from [`Self::plan`] to [`Self::answered`]. That of a
/// pod that is deleted meanwhile keeps its place until the answer, as it still occupies the API server. A queued pod may
/// have changed since, so the accounts are asked when it has its turn.
#[derive(Debug)]
pub struct Releaser {
    limits: Limits,
    queue: Turns<PodId>,
    in_flight: usize,
    /// Of namespaces that have requests in flight, or are slow.
    places: HashMap<NamespaceId, Places>,
    retries: HashMap<PodId, ReleaseRetry>,
    /// Pods to look at again at a moment (milliseconds).
    later: BTreeSet<(u64, PodId)>,
}

impl Releaser {
    /// Nothing is queued. `all`: how many requests may be in flight.
    pub fn new(all: usize) -> Self {
        let limits = Limits { all, of_one: (all * 2 / 3).max(1), of_a_slow_one: (all / 12).max(1) };
        Self {
            limits,
            queue: Turns::default(),
            in_flight: 0,
            places: HashMap::new(),
            retries: HashMap::new(),
            later: BTreeSet::new(),
        }
    }

    pub fn enqueue(&mut self, namespace: NamespaceId, id: PodId) {
        self.queue.push(namespace, id);
    }

    /// Nothing is queued any more.
    pub fn clear_queue(&mut self) {
        self.queue = Turns::default();
    }

    /// The requests to send now, namespaces in turn, until as many are in flight as allowed. `send` says of a queued pod
    /// whether it goes, and in which namespace.
    pub fn plan(&mut self, mut send: impl FnMut(PodId) -> Option<(NamespaceId, Release)>) -> Vec<Release> {
        let mut releases = Vec::new();
        while let Some((namespace, release)) = self.next_queued(&mut send) {
            self.in_flight += 1;
            self.places.entry(namespace).or_default().in_flight += 1;
            releases.push(release);
        }
        releases
    }

    fn next_queued<T>(&mut self, send: impl FnMut(PodId) -> Option<T>) -> Option<T> {
        let mut send = send;
        loop {
            if self.in_flight >= self.limits.all {
                return None;
            }
            let (limits, places) = (self.limits, &self.places);
            let (_, id) = self.queue.pop(|namespace| limits.leave_a_place(places.get(&namespace)))?;
            if let Some(sent) = send(id) {
                return Some(sent);
            }
        }
    }

    /// Whether [`Self::plan`] has a pod to ask about.
    pub fn has_next(&self) -> bool {
        let has_place = |namespace| self.limits.leave_a_place(self.places.get(&namespace));
        self.in_flight < self.limits.all && self.queue.has_one(has_place)
    }

    /// A request was answered, or its time is over. `is_slow`: from now on its namespace is slow, or is not; `None`: as
    /// before.
    pub fn answered(&mut self, namespace: NamespaceId, is_slow: Option<bool>, namespaces: &Namespaces) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(places) = self.places.get_mut(&namespace) else { return };
        places.is_slow = is_slow.unwrap_or(places.is_slow);
        places.in_flight = places.in_flight.saturating_sub(1);
        if places.in_flight == 0 && !places.is_slow {
            self.places.remove(&namespace);
        }
        if self.places.len() > MANY {
            self.places.retain(|namespace, it| it.in_flight > 0 || namespaces.get(*namespace).is_some());
        }
    }

    /// Why the API server refused the release last.
    pub fn refusal(&self, id: PodId) -> Option<&str> {
        self.retries.get(&id)?.refusal.as_deref()
    }

    /// The API server refused the release.
    pub fn refused(&mut self, id: PodId, why: String) {
        self.retries.entry(id).or_default().refusal = Some(why.into());
    }

    /// The same request is to be repeated later: its preconditions make that safe, whether it was done or not.
    pub fn repeat_later(&mut self, id: PodId, retry_after: Option<Duration>, now: Moment) {
        let retry = self.retries.entry(id).or_default();
        retry.failures += 1;
        let wait = delay_ms(retry_after, retry.failures);
        self.later.insert((now.mono_ms + wait, id));
    }

    /// The pod has changed, and with it no request that was sent can be done: it is repeated for the version that there is
    /// now, the first time at once, then later each time.
    pub fn repeat_changed(&mut self, namespace: NamespaceId, id: PodId, now: Moment) {
        let retry = self.retries.entry(id).or_default();
        retry.failures += 1;
        match retry.failures.saturating_sub(1) {
            0 => self.queue.push(namespace, id),
            steps => drop(self.later.insert((now.mono_ms + backoff_ms(FIRST_RETRY_MS, steps), id))),
        }
    }

    /// The release was certainly not done: the pod is decided on again, later each time. With `from` 0 the first retry comes
    /// at once. Returns the moment from which on (milliseconds).
    pub fn back_off(&mut self, id: PodId, from: u32, now: Moment) -> Option<u64> {
        let retry = self.retries.entry(id).or_default();
        retry.failures += 1;
        let steps = (retry.failures + from).saturating_sub(1);
        let from_ms = (steps > 0).then(|| now.mono_ms + backoff_ms(FIRST_RETRY_MS, steps))?;
        self.later.insert((from_ms, id));
        Some(from_ms)
    }

    /// The pod counts, or is gone: earlier failures do not matter any more.
    pub fn end_retries(&mut self, id: PodId) {
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

impl Limits {
    /// Whether a namespace with these requests may have one more.
    const fn leave_a_place(self, places: Option<&Places>) -> bool {
        match places {
            None => true,
            Some(Places { in_flight, is_slow: true }) => *in_flight < self.of_a_slow_one,
            Some(Places { in_flight, is_slow: false }) => *in_flight < self.of_one,
        }
    }
}
