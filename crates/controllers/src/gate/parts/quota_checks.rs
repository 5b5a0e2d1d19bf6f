//! Lists of a namespace's quotas, read before pods of it go without a charge.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use sluice_engine::{PodId, Uid};
use sluice_index::NamespaceId;

use crate::gate::backoff::delay_ms;
use crate::gate::config::Moment;

/// Which namespaces' quotas are to be listed, are being listed, or could not be.
///
/// Invariant: a namespace has at most one list in flight, with the pods that it clears: only pods that were known before
/// the request was sent. Where it failed, the next one waits until its backoff has passed.
#[derive(Debug, Default)]
pub struct QuotaChecks {
    wanted: BTreeSet<NamespaceId>,
    in_flight: HashMap<NamespaceId, Vec<(PodId, Uid)>>,
    /// How often in a row it failed, and until when (milliseconds) it is not tried again.
    failures: HashMap<NamespaceId, (u32, u64)>,
    later: BTreeSet<(u64, NamespaceId)>,
}

impl QuotaChecks {
    /// The namespace may have pods that need one.
    pub fn request(&mut self, id: NamespaceId) {
        self.wanted.insert(id);
    }

    /// See [`Self::request`].
    pub fn request_all(&mut self, ids: impl Iterator<Item = NamespaceId>) {
        self.wanted.extend(ids);
    }

    /// The namespaces to look at now. One whose list is in flight is requested again with the answer, one that backs off
    /// when its time has come.
    pub fn take_wanted(&mut self, now: Moment) -> Vec<NamespaceId> {
        let backs_off =
            |id: &NamespaceId| self.failures.get(id).is_some_and(|(_, until)| now.mono_ms < *until);
        let wanted = std::mem::take(&mut self.wanted);
        wanted.into_iter().filter(|id| !self.in_flight.contains_key(id) && !backs_off(id)).collect()
    }

    /// A list is requested that clears these pods.
    pub fn begin(&mut self, id: NamespaceId, pods: Vec<(PodId, Uid)>) {
        self.in_flight.insert(id, pods);
    }

    /// No pod of the namespace needs one.
    pub fn not_needed(&mut self, id: NamespaceId) {
        self.failures.remove(&id);
    }

    /// Ends the request; returns the pods that it was for.
    pub fn answered(&mut self, id: NamespaceId) -> Option<Vec<(PodId, Uid)>> {
        self.in_flight.remove(&id)
    }

    /// The list was read. Pods that came after the request need another one.
    pub fn succeeded(&mut self, id: NamespaceId) {
        self.failures.remove(&id);
        self.wanted.insert(id);
    }

    /// The list could not be read.
    pub fn failed(&mut self, id: NamespaceId, retry_after: Option<Duration>, now: Moment) {
        let (failures, until) = self.failures.entry(id).or_default();
        *failures += 1;
        *until = now.mono_ms + delay_ms(retry_after, *failures);
        self.later.insert((*until, id));
    }

    /// Requests again what has backed off long enough.
    pub fn pass_time(&mut self, now: Moment) {
        while let Some((at, id)) = self.later.first().copied().filter(|(at, _)| *at <= now.mono_ms) {
            self.later.remove(&(at, id));
            self.wanted.insert(id);
        }
    }

    /// Of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.later.first().map(|(at, _)| *at)
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }
}
