//! What VMs are to have more by updates that were admitted, until the watch shows what became of these.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_engine::{Charge, Timers};
use sluice_index::Version;

use super::owners::Owner;
use crate::gate::admission::Ticket;
use crate::gate::config::Moment;

/// VMs that are read at a time, to learn what became of updates that were admitted and never seen.
const READS_AT_A_TIME: usize = 32;

/// A VM that was not read is read this much later (milliseconds).
const READ_AGAIN_MS: u64 = 1_000;

/// What one VM is to have.
#[derive(Debug)]
struct Growth {
    /// The latest version that a request was about.
    version: Version,
    /// When no request can be in flight any more (milliseconds).
    until_ms: u64,
    /// What the VM is charged, whether recorded or not: the largest that was asked for.
    wanted: Arc<Charge>,
    /// What it is charged if nothing of it is recorded that is not recorded yet.
    granted: Arc<Charge>,
    /// Decisions, by serial, and how many quotas have not recorded each.
    awaited: Vec<(u64, usize)>,
    tickets: Vec<Ticket>,
}

/// An update that was admitted, see [`MachineGrowth::want`].
pub struct Want {
    /// The version that the request is about.
    pub version: Version,
    /// When the request cannot be in flight any more (milliseconds).
    pub until_ms: u64,
    /// What the VM is charged from now on.
    pub wanted: Arc<Charge>,
    /// What it was charged before the first such request.
    pub known: Arc<Charge>,
}

/// All of them.
///
/// Invariant: a question has one answer: at once, when its charge is recorded, or when that is taken back. The methods that
/// return tickets leave the answer to their caller.
#[derive(Debug, Default)]
pub struct MachineGrowth {
    by_owner: HashMap<Owner, Growth>,
    /// Who is charged by a decision that is not recorded yet.
    by_serial: HashMap<u64, Owner>,
    /// VMs about which no request can be in flight any more.
    to_read: Vec<Owner>,
    /// VMs to look at again at a moment (milliseconds).
    later: Timers<Owner>,
}

impl MachineGrowth {
    pub fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// What the VM is charged at least.
    pub fn wanted(&self, owner: &Owner) -> Option<&Arc<Charge>> {
        self.by_owner.get(owner).map(|growth| &growth.wanted)
    }

    /// From now on the VM is charged this at least. `more` quotas have to record it by the decision `serial`. False if nothing
    /// is to be recorded: then it is granted already.
    pub fn want(&mut self, owner: &Owner, want: Want, serial: u64, more: usize) -> bool {
        let Want { version, until_ms, wanted, known } = want;
        let growth = self.by_owner.entry(owner.clone()).or_insert_with(|| {
            self.later.set_earlier(owner.clone(), until_ms);
            Growth {
                version,
                until_ms,
                wanted: Arc::clone(&wanted),
                granted: known,
                awaited: Vec::new(),
                tickets: Vec::new(),
            }
        });
        if !version.is_older_than(growth.version) {
            growth.version = version;
        }
        growth.until_ms = until_ms;
        growth.wanted = wanted;
        if more > 0 {
            growth.awaited.push((serial, more));
            self.by_serial.insert(serial, owner.clone());
        }
        if growth.awaited.is_empty() {
            growth.granted = Arc::clone(&growth.wanted);
            return false;
        }
        growth.tickets.push(serial);
        true
    }

    /// One more quota has recorded the charge of this decision. Returns the questions that are answered by it.
    pub fn recorded(&mut self, serial: u64) -> Vec<Ticket> {
        let Some(owner) = self.by_serial.get(&serial) else { return Vec::new() };
        let Some(growth) = self.by_owner.get_mut(owner) else { return Vec::new() };
        for (decision, left) in &mut growth.awaited {
            if *decision == serial {
                *left = left.saturating_sub(1);
            }
        }
        growth.awaited.retain(|(_, left)| *left > 0);
        if growth.awaited.iter().all(|(decision, _)| *decision != serial) {
            self.by_serial.remove(&serial);
        }
        if !growth.awaited.is_empty() {
            return Vec::new();
        }
        growth.granted = Arc::clone(&growth.wanted);
        std::mem::take(&mut growth.tickets)
    }

    /// What is charged by this decision and not recorded, and to whom.
    pub fn ungranted(&self, serial: u64) -> Option<(&Owner, Charge)> {
        let owner = self.by_serial.get(&serial)?;
        let growth = self.by_owner.get(owner)?;
        Some((owner, growth.wanted.above(&growth.granted)))
    }

    /// The decision will not be recorded: only what was allowed is still wanted. Returns whose it was, and the questions
    /// without an answer.
    pub fn revert(&mut self, serial: u64) -> Option<(Owner, Vec<Ticket>)> {
        let owner = self.by_serial.get(&serial)?.clone();
        let tickets = self.revert_of(&owner);
        Some((owner, tickets))
    }

    /// As [`Self::revert`], all decisions about VMs of the namespace.
    pub fn revert_all(&mut self, namespace: &str) -> (Vec<Owner>, Vec<Ticket>) {
        let owners = self.by_owner.keys().filter(|owner| *owner.namespace == *namespace);
        let owners: Vec<Owner> = owners.cloned().collect();
        let tickets = owners.iter().flat_map(|owner| self.revert_of(owner)).collect();
        (owners, tickets)
    }

    fn revert_of(&mut self, owner: &Owner) -> Vec<Ticket> {
        let Some(growth) = self.by_owner.get_mut(owner) else { return Vec::new() };
        for (serial, _) in growth.awaited.drain(..) {
            self.by_serial.remove(&serial);
        }
        growth.wanted = Arc::clone(&growth.granted);
        std::mem::take(&mut growth.tickets)
    }

    /// The VM was seen in this version. What was asked for about one before it has been committed, and is what the VM is now
    /// to have, or never will be. Returns the questions that are open; `None` if it is not that far.
    pub fn end_before(&mut self, owner: &Owner, version: Version) -> Option<Vec<Ticket>> {
        self.by_owner.get(owner).filter(|growth| growth.version.is_older_than(version))?;
        self.end(owner)
    }

    /// Nothing is wanted any more. Returns the questions that are open; `None` if nothing was.
    pub fn end(&mut self, owner: &Owner) -> Option<Vec<Ticket>> {
        let tickets = self.revert_of(owner);
        self.by_owner.remove(owner).map(|_| tickets)
    }

    /// As [`Self::end`], of all VMs.
    pub fn end_all(&mut self) -> Vec<Ticket> {
        self.by_serial.clear();
        self.by_owner.drain().flat_map(|(_, growth)| growth.tickets).collect()
    }

    /// The webhook does not wait for the answer to this question any more.
    pub fn abandon(&mut self, ticket: Ticket) {
        for growth in self.by_owner.values_mut() {
            growth.tickets.retain(|asked| *asked != ticket);
        }
    }

    /// Has the VMs read about which no request can be in flight any more.
    pub fn pass_time(&mut self, now: Moment) {
        while let Some(owner) = self.later.pop_due(now.mono_ms) {
            if self.has_expired(&owner, now) {
                self.to_read.push(owner);
            }
        }
    }

    /// Whether no request about the VM can be in flight any more. If one can, its end is noted.
    pub fn has_expired(&mut self, owner: &Owner, now: Moment) -> bool {
        let Some(until_ms) = self.by_owner.get(owner).map(|growth| growth.until_ms) else { return false };
        if until_ms > now.mono_ms {
            self.later.set_earlier(owner.clone(), until_ms);
        }
        until_ms <= now.mono_ms
    }

    /// VMs to read now.
    pub fn take_reads(&mut self, now: Moment) -> Vec<Owner> {
        let mut owners = std::mem::take(&mut self.to_read);
        for owner in owners.split_off(owners.len().min(READS_AT_A_TIME)) {
            self.read_later(owner, now);
        }
        owners
    }

    /// The VM could not be read.
    pub fn read_later(&mut self, owner: Owner, now: Moment) {
        self.later.set_earlier(owner, now.mono_ms + READ_AGAIN_MS);
    }

    /// Of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.later.next()
    }
}
