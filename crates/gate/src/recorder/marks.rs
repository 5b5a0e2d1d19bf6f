//! Quotas whose status may have to be written, and which of them is next.

use std::collections::BTreeSet;
use std::ops::Bound;

use sluice_engine::QuotaId;

/// Writes in flight at a time.
pub(super) const AT_A_TIME: usize = 256;
/// With so many writes in flight only those begin that record a charge. After a change of all quotas the gate writes each
/// status anew, and a release must not wait for that.
pub(super) const RESTATED: usize = 64;
/// After so many writes that record a charge, one that records none has its turn.
const CHARGES_IN_TURN: u32 = 8;
/// Writes in flight of quotas whose last write failed or timed out. Whatever slows these down, the rest is left to others.
pub(super) const REPEATED: usize = 4;

/// Why the status of a quota may have to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It may say something else.
    Restate,
    /// It has to record the charge of a pod that is to go.
    Charge,
    /// The last write failed.
    Again,
}

/// How many writes are in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightNow {
    pub all: usize,
    /// Those of quotas whose last write failed.
    pub repeated: usize,
}

/// Quotas that are looked at in turn.
#[derive(Debug, Default)]
struct Turns {
    ids: BTreeSet<QuotaId>,
    /// The one that had the last turn.
    last: Option<QuotaId>,
}

impl Turns {
    fn pop(&mut self) -> Option<QuotaId> {
        let after = (self.last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let id = self.ids.range(after).next().or_else(|| self.ids.first()).copied()?;
        self.last = Some(id);
        self.ids.remove(&id);
        Some(id)
    }
}

/// Invariant: a quota has one mark for each reason at most, and none to restate it beside one to record a charge.
#[derive(Debug, Default)]
pub(super) struct Marks {
    restate: Turns,
    charge: Turns,
    again: Turns,
    /// How many that record a charge have had their turn since one that records none.
    charges_in_turn: u32,
}

impl Marks {
    pub(super) fn mark(&mut self, id: QuotaId, mark: Mark) {
        match mark {
            Mark::Restate if self.charge.ids.contains(&id) => {}
            Mark::Restate => {
                self.restate.ids.insert(id);
            }
            Mark::Charge => {
                self.restate.ids.remove(&id);
                self.charge.ids.insert(id);
            }
            Mark::Again => {
                self.again.ids.insert(id);
            }
        }
    }

    /// Removes the marks of a quota.
    pub(super) fn unmark(&mut self, id: QuotaId) {
        for turns in [&mut self.restate, &mut self.charge, &mut self.again] {
            turns.ids.remove(&id);
        }
    }

    /// The next quota, beside these writes; its mark is removed.
    pub(super) fn next(&mut self, in_flight: InFlightNow) -> Option<QuotaId> {
        match self.next_mark(in_flight)? {
            Mark::Again => self.again.pop(),
            Mark::Charge => {
                self.charges_in_turn += 1;
                self.charge.pop()
            }
            Mark::Restate => {
                self.charges_in_turn = 0;
                self.restate.pop()
            }
        }
    }

    pub(super) fn has_next(&self, in_flight: InFlightNow) -> bool {
        self.next_mark(in_flight).is_some()
    }

    fn next_mark(&self, in_flight: InFlightNow) -> Option<Mark> {
        let (has_charge, has_restate) = (!self.charge.ids.is_empty(), !self.restate.ids.is_empty());
        if in_flight.all >= AT_A_TIME {
            None
        } else if in_flight.repeated < REPEATED && !self.again.ids.is_empty() {
            Some(Mark::Again)
        } else if has_charge && (self.charges_in_turn < CHARGES_IN_TURN || !has_restate) {
            Some(Mark::Charge)
        } else if has_restate && (has_charge || in_flight.all < RESTATED) {
            Some(Mark::Restate)
        } else {
            None
        }
    }
}
