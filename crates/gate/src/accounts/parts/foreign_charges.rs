//! Quotas in which room is kept for charges of other leaders (`docs/protocols.md`, *Take-over*).
//!
//! A process that leads may find charges in a quota's status that it did not make: a predecessor's, whose
//! releases are not all seen yet, or those of a leader that has not noticed that it is none any more. Their room is
//! kept until the requests of both are dead
//! ([`GateConfig::in_flight_grace_ms`](crate::GateConfig::in_flight_grace_ms)), and then until the watch of
//! pods has come to what there is after that: what was done is seen by then, however late the watch is.
//! What such a leader does without a charge may be in any quota, and is waited for in the same way.

use std::collections::BTreeSet;

use sluice_engine::{QuotaId, Timers};

use crate::config::Moment;

/// Where other leaders may have done something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In a quota, which has their charges.
    Quota(QuotaId),
    /// In any, without a charge.
    Anywhere,
}

/// Invariant: a place is in at most one of three states: kept until a moment, expired (to be caught up with), catching up.
#[derive(Debug, Default)]
pub struct ForeignCharges {
    /// Requests of other leaders may be in flight until this moment (milliseconds).
    kept: Timers<Place>,
    /// No such request can be in flight any more, but what they have done may be unseen.
    expired: BTreeSet<Place>,
    /// For these the watch of pods is catching up.
    catching_up: Option<BTreeSet<Place>>,
}

impl ForeignCharges {
    /// Keeps the room there until this moment (milliseconds) and the catching up after it.
    pub fn keep_until(&mut self, place: Place, until_ms: u64) {
        self.forget(place);
        self.kept.set(place, until_ms);
    }

    pub fn is_kept(&self, place: Place) -> bool {
        self.kept.moment(&place).is_some() || self.is_expired(place)
    }

    fn is_expired(&self, place: Place) -> bool {
        self.expired.contains(&place)
            || self.catching_up.as_ref().is_some_and(|places| places.contains(&place))
    }

    pub fn forget(&mut self, place: Place) {
        self.kept.cancel(&place);
        self.expired.remove(&place);
        if let Some(catching_up) = &mut self.catching_up {
            catching_up.remove(&place);
        }
    }

    /// The quota has another handle.
    pub fn rename(&mut self, old: Place, new: Place) {
        let (until_ms, is_expired) = (self.kept.moment(&old), self.is_expired(old));
        self.forget(old);
        if let Some(until_ms) = until_ms {
            self.keep_until(new, until_ms);
        } else if is_expired {
            self.expired.insert(new);
        }
    }

    /// Whether nothing is kept anywhere.
    pub fn is_empty(&self) -> bool {
        let catches_up = self.catching_up.as_ref().is_some_and(|places| !places.is_empty());
        self.kept.next().is_none() && self.expired.is_empty() && !catches_up
    }

    /// Expires what has been kept long enough.
    pub fn pass_time(&mut self, now: Moment) {
        while let Some(place) = self.kept.pop_due(now.mono_ms) {
            self.expired.insert(place);
        }
    }

    /// Of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.kept.next()
    }

    /// Whether the watch of pods has to catch up now, on account of what has expired.
    pub fn begin_catching_up(&mut self) -> bool {
        if self.expired.is_empty() || self.catching_up.is_some() {
            return false;
        }
        self.catching_up = Some(std::mem::take(&mut self.expired));
        true
    }

    /// The watch of pods has caught up. Returns where all that others have done has been seen.
    pub fn caught_up(&mut self) -> BTreeSet<Place> {
        self.catching_up.take().unwrap_or_default()
    }
}
