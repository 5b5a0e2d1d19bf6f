//! Quotas in which room is kept for charges of other leaders (`docs/protocols.md`, *Take-over*).
//!
//! A process that leads may find charges in a quota's status that it did not make: a predecessor's, whose
//! releases are not all seen yet, or those of a leader that has not noticed that it is none any more. Their room is
//! kept until the requests of both are dead
//! ([`GateConfig::in_flight_grace_ms`](crate::gate::GateConfig::in_flight_grace_ms)), and then until the watch of
//! pods has come to what there is after that: what was done is seen by then, however late the watch is.

use std::collections::{BTreeSet, HashMap};

use sluice_engine::QuotaId;

use crate::gate::config::Moment;

/// Invariant: a quota is in at most one of three states: kept until a moment, expired (to be caught up with), catching up.
#[derive(Debug, Default)]
pub struct ForeignCharges {
    /// Requests of other leaders may be in flight until this moment (milliseconds).
    until_ms: HashMap<QuotaId, u64>,
    later: BTreeSet<(u64, QuotaId)>,
    /// No such request can be in flight any more, but what they have done may be unseen.
    expired: BTreeSet<QuotaId>,
    /// For these the watch of pods is catching up.
    catching_up: Option<BTreeSet<QuotaId>>,
}

impl ForeignCharges {
    /// Keeps the room of the quota until this moment (milliseconds) and the catching up after it.
    pub fn keep_until(&mut self, id: QuotaId, until_ms: u64) {
        self.forget(id);
        self.until_ms.insert(id, until_ms);
        self.later.insert((until_ms, id));
    }

    pub fn is_kept(&self, id: QuotaId) -> bool {
        self.until_ms.contains_key(&id) || self.is_expired(id)
    }

    fn is_expired(&self, id: QuotaId) -> bool {
        self.expired.contains(&id) || self.catching_up.as_ref().is_some_and(|quotas| quotas.contains(&id))
    }

    pub fn forget(&mut self, id: QuotaId) {
        if let Some(until_ms) = self.until_ms.remove(&id) {
            self.later.remove(&(until_ms, id));
        }
        self.expired.remove(&id);
        if let Some(catching_up) = &mut self.catching_up {
            catching_up.remove(&id);
        }
    }

    /// The quota has another handle.
    pub fn rename(&mut self, old: QuotaId, new: QuotaId) {
        let (until_ms, is_expired) = (self.until_ms.get(&old).copied(), self.is_expired(old));
        self.forget(old);
        if let Some(until_ms) = until_ms {
            self.keep_until(new, until_ms);
        } else if is_expired {
            self.expired.insert(new);
        }
    }

    /// Expires what has been kept long enough.
    pub fn pass_time(&mut self, now: Moment) {
        while let Some((at, id)) = self.later.first().copied().filter(|(at, _)| *at <= now.mono_ms) {
            self.later.remove(&(at, id));
            self.until_ms.remove(&id);
            self.expired.insert(id);
        }
    }

    /// Of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Whether the watch of pods has to catch up now, on account of what has expired.
    pub fn begin_catching_up(&mut self) -> bool {
        if self.expired.is_empty() || self.catching_up.is_some() {
            return false;
        }
        self.catching_up = Some(std::mem::take(&mut self.expired));
        true
    }

    /// The watch of pods has caught up. Returns the quotas whose foreign charges have all been seen.
    pub fn caught_up(&mut self) -> BTreeSet<QuotaId> {
        self.catching_up.take().unwrap_or_default()
    }
}
