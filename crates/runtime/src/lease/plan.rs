//! The decision of leader election, free of I/O and clocks.
//!
//! The rule is client-go's: a candidate never compares its clock with the times in the lease. It remembers, on its own
//! monotonic clock, when it last saw the lease change, and may take the lease over a full lease duration later. The
//! holder counts from the moment before it sent its last successful renewal and stops earlier than that
//! (`renew_deadline < duration`), so the two periods cannot overlap.

use std::time::Duration;

/// The three times of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// How long others leave a lease alone that does not change.
    pub duration: Duration,
    /// How long after its last successful renewal the holder still acts.
    pub renew_deadline: Duration,
    /// Pause between two attempts.
    pub retry: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Timings {
    /// `retry < renew_deadline < duration`, and `duration` at least a second (the API stores whole seconds).
    pub fn are_sound(&self) -> bool {
        self.retry < self.renew_deadline
            && self.renew_deadline < self.duration
            && self.duration >= Duration::from_secs(1)
    }
}

/// What the lease object says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// `metadata.resourceVersion`: every write changes it.
    pub version: String,
    /// `spec.holderIdentity`; empty when released.
    pub holder: String,
    /// `spec.leaseDurationSeconds` as the holder promised it.
    pub duration: Duration,
    /// `spec.leaseTransitions`: the term.
    pub transitions: i32,
}

/// The lease as last seen, and since when it is so. Times are those of a local monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// `None`: the object does not exist.
    pub record: Option<Record>,
    /// When this state was first seen.
    pub changed_at: Duration,
    /// How long the candidate had been looking by then.
    pub looked_for: Duration,
    /// A lease that vanished while it was held is respected until here: its holder may not know yet.
    pub respect_until: Duration,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Create the object with ourselves as holder.
    Create,
    /// Replace the object at `version`, ourselves as holder, in a new term.
    Take {
        /// `resourceVersion` that the write must carry.
        version: String,
        /// The new term.
        transitions: i32,
    },
    /// Replace the object at `version` with a new renew time.
    Renew {
        /// `resourceVersion` that the write must carry.
        version: String,
        /// The term, unchanged.
        transitions: i32,
    },
    /// Another candidate holds it; it cannot be free before `until`.
    Wait {
        /// On the local monotonic clock.
        until: Duration,
    },
}

/// Decides the next step of candidate `me` at `now`.
pub fn plan(observed: &Observation, now: Duration, me: &str, timings: &Timings) -> Step {
    let Some(record) = &observed.record else {
        return if now < observed.respect_until {
            Step::Wait { until: observed.respect_until }
        } else {
            Step::Create
        };
    };
    if record.holder == me {
        return Step::Renew { version: record.version.clone(), transitions: record.transitions };
    }
    let left_alone = match record.holder.is_empty() {
        true => courtesy(observed.looked_for),
        false => respected(record, timings),
    };
    let free_at = observed.changed_at.saturating_add(left_alone);
    if now >= free_at {
        Step::Take { version: record.version.clone(), transitions: record.transitions.saturating_add(1) }
    } else {
        Step::Wait { until: free_at }
    }
}

/// How long an unchanged lease is left alone: what the holder promised, but not less than our own duration and not more
/// than ten times it, so that a forged record cannot keep everybody out for ever.
fn respected(record: &Record, timings: &Timings) -> Duration {
    record.duration.clamp(timings.duration, timings.duration.saturating_mul(10))
}

/// How long a lease that was given back is left to candidates that are younger: longer by [`STEP`] with each doubling of the
/// age. In a rollout the younger ones are of the new version, and an older one that took the lease would have to give it
/// back a moment later. The youngest of them is seconds old in one cluster and minutes in another, so ages are compared by
/// their ratio.
fn courtesy(looked_for: Duration) -> Duration {
    let doublings = looked_for.as_secs_f64().ln_1p() / std::f64::consts::LN_2;
    STEP.mul_f64(doublings).min(10 * STEP)
}

/// So much longer a candidate of twice the age waits: time enough for the younger one's write on a busy API server.
const STEP: Duration = Duration::from_millis(60);

/// One candidate's memory. The runner and the simulation in the tests drive the same type.
#[derive(Debug, Clone)]
pub struct Candidate {
    me: String,
    timings: Timings,
    observed: Option<Observation>,
    /// When it looked for the first time.
    began: Duration,
    held_until: Option<Duration>,
}

impl Candidate {
    /// A candidate that has seen nothing.
    pub fn new(me: String, timings: Timings) -> Self {
        Self { me, timings, observed: None, began: Duration::ZERO, held_until: None }
    }

    pub fn me(&self) -> &str {
        &self.me
    }

    /// Notes what a read showed at `now`.
    pub fn saw(&mut self, record: Option<Record>, now: Duration) {
        let Some(before) = &self.observed else {
            let (looked_for, respect_until) = (Duration::ZERO, Duration::ZERO);
            self.began = now;
            self.observed = Some(Observation { record, changed_at: now, looked_for, respect_until });
            return;
        };
        if before.record == record {
            return;
        }
        let respect_until = match (&before.record, &record) {
            (Some(gone), None) if !gone.holder.is_empty() && gone.holder != self.me => {
                before.changed_at.saturating_add(respected(gone, &self.timings))
            }
            _ => Duration::ZERO,
        };
        let looked_for = now.saturating_sub(self.began);
        self.observed = Some(Observation { record, changed_at: now, looked_for, respect_until });
    }

    /// Notes a successful write that was sent at `sent` and answered at `now`.
    pub fn wrote(&mut self, record: Record, sent: Duration, now: Duration) {
        self.saw(Some(record), now);
        self.held_until = Some(sent.saturating_add(self.timings.renew_deadline));
    }

    /// The next step; `None` before the first read.
    pub fn next(&self, now: Duration) -> Option<Step> {
        self.observed.as_ref().map(|observed| plan(observed, now, &self.me, &self.timings))
    }

    /// Until when the lease is held; `None` if it never was.
    pub fn held_until(&self) -> Option<Duration> {
        self.held_until
    }

    /// The holder that was last seen, if any.
    pub fn holder(&self) -> Option<&str> {
        let record = self.observed.as_ref()?.record.as_ref()?;
        Some(record.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    /// The term that was last seen.
    pub fn term(&self) -> i32 {
        let record = self.observed.as_ref().and_then(|observed| observed.record.as_ref());
        record.map_or(0, |record| record.transitions)
    }
}

#[cfg(test)]
mod tests;
