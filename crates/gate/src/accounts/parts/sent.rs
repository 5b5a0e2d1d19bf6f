//! Requests that remove gates, as far as claims depend on them: what may have been done cannot be taken back.

use std::collections::HashMap;

use sluice_engine::{PodId, Uid};
use sluice_index::{NamespaceId, Version};

use crate::config::Moment;

/// A request that failed.
#[derive(Debug, Default)]
struct Failed {
    /// The last request that was not answered.
    unanswered: Option<Unanswered>,
    /// Not to be decided on before this moment (milliseconds).
    until_ms: u64,
}

/// A request without an answer: in doubt until a later one is answered, however late that is.
#[derive(Debug)]
struct Unanswered {
    /// The version that it was sent for: it cannot be done on a later one.
    version: Version,
    /// An API server may work on it until this moment (milliseconds): a refusal before it proves nothing.
    until_ms: u64,
}

/// Invariant: a request is in flight from [`Self::begin`] to [`Self::answered`]. It is known by the uid of the pod, whose
/// handle is another pod's once it is deleted; what is known of failures goes with the handle.
#[derive(Debug, Default)]
pub struct Sent {
    in_flight: HashMap<Uid, (NamespaceId, Version)>,
    failed: HashMap<PodId, Failed>,
}

impl Sent {
    /// A request for this version of the pod is sent.
    pub fn begin(&mut self, namespace: NamespaceId, pod: Uid, version: Version) {
        self.in_flight.insert(pod, (namespace, version));
    }

    /// The namespace of a pod for which a request is in flight.
    pub fn namespace(&self, pod: &Uid) -> Option<NamespaceId> {
        self.in_flight.get(pod).map(|(namespace, _)| *namespace)
    }

    /// The request was answered, or its time is over. Returns the pod's namespace and the version that it was sent for.
    pub fn answered(&mut self, pod: &Uid) -> Option<(NamespaceId, Version)> {
        self.in_flight.remove(pod)
    }

    pub fn is_in_flight(&self, pod: &Uid) -> bool {
        self.in_flight.contains_key(pod)
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether a request for a pod of the namespace is in flight.
    pub fn is_any_in_flight(&self, namespace: NamespaceId) -> bool {
        self.in_flight.values().any(|(sent_in, _)| *sent_in == namespace)
    }

    /// The pods for which a request was not answered.
    pub fn in_doubt(&self) -> impl Iterator<Item = PodId> {
        self.failed.iter().filter(|(_, failed)| failed.unanswered.is_some()).map(|(id, _)| *id)
    }

    /// Whether the outcome of each request is known.
    pub fn are_all_answered(&self) -> bool {
        self.in_flight.is_empty() && self.failed.values().all(|failed| failed.unanswered.is_none())
    }

    /// Whether a request for the pod is in flight, or one without an answer may be done or have been.
    pub fn may_be_done(&self, id: PodId, pod: &Uid) -> bool {
        self.is_in_flight(pod) || self.unanswered(id).is_some()
    }

    /// As [`Self::may_be_done`] of a pod that has our gate in this version.
    pub fn may_be_done_on(&self, id: PodId, pod: &Uid, version: Version) -> bool {
        self.is_in_flight(pod)
            || self.unanswered(id).is_some_and(|unanswered| !unanswered.version.is_older_than(version))
    }

    /// Whether an API server may still work on a request that was not answered.
    pub fn is_worked_on(&self, id: PodId, now: Moment) -> bool {
        self.unanswered(id).is_some_and(|unanswered| now.mono_ms < unanswered.until_ms)
    }

    fn unanswered(&self, id: PodId) -> Option<&Unanswered> {
        self.failed.get(&id)?.unanswered.as_ref()
    }

    /// The request, which was sent for this version, was not answered. An API server may work on it until `until_ms`.
    pub fn outcome_unknown(&mut self, id: PodId, version: Version, until_ms: u64) {
        self.failed.entry(id).or_default().unanswered = Some(Unanswered { version, until_ms });
    }

    /// No request for the pod was done, nor can be.
    pub fn not_done(&mut self, id: PodId) {
        if let Some(failed) = self.failed.get_mut(&id) {
            failed.unanswered = None;
        }
    }

    /// The pod is not to be decided on before this moment (milliseconds).
    pub fn back_off(&mut self, id: PodId, until_ms: u64) {
        self.failed.entry(id).or_default().until_ms = until_ms;
    }

    /// Whether the pod is not to be decided on yet.
    pub fn is_backing_off(&self, id: PodId, now: Moment) -> bool {
        self.failed.get(&id).is_some_and(|failed| failed.until_ms > now.mono_ms)
    }

    /// The pod counts, or is gone.
    pub fn forget(&mut self, id: PodId) {
        self.failed.remove(&id);
    }
}
