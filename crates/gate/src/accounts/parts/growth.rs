//! What pods or VMs are to have more by updates that were admitted, until the watch shows what became of these.

use std::collections::HashMap;
use std::hash::Hash;

use sluice_engine::Timers;
use sluice_index::Version;

use crate::admission::Ticket;
use crate::config::Moment;

/// Objects that are read at a time, to learn what became of updates that were admitted and never seen.
const READS_AT_A_TIME: usize = 32;

/// An object that was not read is read this much later (milliseconds).
const READ_AGAIN_MS: u64 = 1_000;

/// What one object is to have.
#[derive(Debug)]
struct Grown<W> {
    /// The latest version that a request was about.
    version: Version,
    /// When no request can be in flight any more (milliseconds).
    until_ms: u64,
    /// What the object is charged, whether recorded or not: the largest that was asked for.
    wanted: W,
    /// What it is charged if nothing of it is recorded that is not recorded yet.
    granted: W,
    /// Decisions, by serial, and how many quotas have not recorded each.
    awaited: Vec<(u64, usize)>,
    tickets: Vec<Ticket>,
}

/// An update that was admitted, see [`Growth::want`].
pub struct Want<W> {
    /// The version that the request is about.
    pub version: Version,
    /// When the request cannot be in flight any more (milliseconds).
    pub until_ms: u64,
    /// What the object is charged from now on.
    pub wanted: W,
    /// What it was charged before the first such request.
    pub known: W,
}

/// What all objects of a kind are to have, by their key.
///
/// Invariant: a question has one answer: at once, when its charge is recorded, or when that is taken back. The methods that
/// return tickets leave the answer to their caller.
#[derive(Debug)]
pub struct Growth<K, W> {
    by_key: HashMap<K, Grown<W>>,
    /// Who is charged by a decision that is not recorded yet.
    by_serial: HashMap<u64, K>,
    /// Objects about which no request can be in flight any more.
    to_read: Vec<K>,
    /// Objects to look at again at a moment (milliseconds).
    later: Timers<K>,
}

impl<K, W> Default for Growth<K, W> {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            by_serial: HashMap::new(),
            to_read: Vec::new(),
            later: Timers::default(),
        }
    }
}

impl<K: Clone + Hash + Ord, W: Clone> Growth<K, W> {
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// What the object is charged at least.
    pub fn wanted(&self, key: &K) -> Option<&W> {
        self.by_key.get(key).map(|grown| &grown.wanted)
    }

    /// What of that was allowed so far.
    pub fn granted(&self, key: &K) -> Option<&W> {
        self.by_key.get(key).map(|grown| &grown.granted)
    }

    /// The latest version that a request was about.
    pub fn version(&self, key: &K) -> Option<Version> {
        self.by_key.get(key).map(|grown| grown.version)
    }

    /// From now on the object is charged this at least. `more` quotas have to record it by the decision `serial`. False if
    /// nothing is to be recorded: then it is granted already.
    pub fn want(&mut self, key: &K, want: Want<W>, serial: u64, more: usize) -> bool {
        let Want { version, until_ms, wanted, known } = want;
        let grown = self.by_key.entry(key.clone()).or_insert_with(|| {
            self.later.set_earlier(key.clone(), until_ms);
            Grown {
                version,
                until_ms,
                wanted: wanted.clone(),
                granted: known,
                awaited: Vec::new(),
                tickets: Vec::new(),
            }
        });
        if !version.is_older_than(grown.version) {
            grown.version = version;
        }
        grown.until_ms = until_ms;
        grown.wanted = wanted;
        if more > 0 {
            grown.awaited.push((serial, more));
            self.by_serial.insert(serial, key.clone());
        }
        if grown.awaited.is_empty() {
            grown.granted = grown.wanted.clone();
            return false;
        }
        grown.tickets.push(serial);
        true
    }

    /// One more quota has recorded the charge of this decision. Returns the questions that are answered by it.
    pub fn recorded(&mut self, serial: u64) -> Vec<Ticket> {
        let Some(key) = self.by_serial.get(&serial) else { return Vec::new() };
        let Some(grown) = self.by_key.get_mut(key) else { return Vec::new() };
        for (decision, left) in &mut grown.awaited {
            if *decision == serial {
                *left = left.saturating_sub(1);
            }
        }
        grown.awaited.retain(|(_, left)| *left > 0);
        if grown.awaited.iter().all(|(decision, _)| *decision != serial) {
            self.by_serial.remove(&serial);
        }
        if !grown.awaited.is_empty() {
            return Vec::new();
        }
        grown.granted = grown.wanted.clone();
        std::mem::take(&mut grown.tickets)
    }

    /// Who is charged by this decision, if it is not recorded.
    pub fn charged_by(&self, serial: u64) -> Option<&K> {
        self.by_serial.get(&serial)
    }

    /// The decision will not be recorded: only what was allowed is still wanted. Returns whose it was, and the questions
    /// without an answer.
    pub fn revert(&mut self, serial: u64) -> Option<(K, Vec<Ticket>)> {
        let key = self.by_serial.get(&serial)?.clone();
        let tickets = self.revert_of(&key);
        Some((key, tickets))
    }

    /// As [`Self::revert`], all decisions about these objects. Returns those that there are any of.
    pub fn revert_all(&mut self, is_meant: impl Fn(&K) -> bool) -> (Vec<K>, Vec<Ticket>) {
        let keys: Vec<K> = self.by_key.keys().filter(|key| is_meant(key)).cloned().collect();
        let tickets = keys.iter().flat_map(|key| self.revert_of(key)).collect();
        (keys, tickets)
    }

    fn revert_of(&mut self, key: &K) -> Vec<Ticket> {
        let Some(grown) = self.by_key.get_mut(key) else { return Vec::new() };
        for (serial, _) in grown.awaited.drain(..) {
            self.by_serial.remove(&serial);
        }
        grown.wanted = grown.granted.clone();
        std::mem::take(&mut grown.tickets)
    }

    /// Nothing is wanted any more. Returns the questions that are open; `None` if nothing was.
    pub fn end(&mut self, key: &K) -> Option<Vec<Ticket>> {
        let tickets = self.revert_of(key);
        self.by_key.remove(key).map(|_| tickets)
    }

    /// As [`Self::end`], of all objects.
    pub fn end_all(&mut self) -> Vec<Ticket> {
        self.by_serial.clear();
        self.by_key.drain().flat_map(|(_, grown)| grown.tickets).collect()
    }

    /// The webhook does not wait for the answer to this question any more.
    pub fn abandon(&mut self, ticket: Ticket) {
        for grown in self.by_key.values_mut() {
            grown.tickets.retain(|asked| *asked != ticket);
        }
    }

    /// Has the objects read about which no request can be in flight any more.
    pub fn pass_time(&mut self, now: Moment) {
        while let Some(key) = self.later.pop_due(now.mono_ms) {
            if self.has_expired(&key, now) {
                self.to_read.push(key);
            }
        }
    }

    /// Whether no request about the object can be in flight any more. If one can, its end is noted.
    pub fn has_expired(&mut self, key: &K, now: Moment) -> bool {
        let Some(until_ms) = self.by_key.get(key).map(|grown| grown.until_ms) else { return false };
        if until_ms > now.mono_ms {
            self.later.set_earlier(key.clone(), until_ms);
        }
        until_ms <= now.mono_ms
    }

    /// Objects to read now.
    pub fn take_reads(&mut self, now: Moment) -> Vec<K> {
        let mut keys = std::mem::take(&mut self.to_read);
        for key in keys.split_off(keys.len().min(READS_AT_A_TIME)) {
            self.read_later(key, now);
        }
        keys
    }

    /// The object could not be read.
    pub fn read_later(&mut self, key: K, now: Moment) {
        self.later.set_earlier(key, now.mono_ms + READ_AGAIN_MS);
    }

    /// Of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.later.next()
    }
}
