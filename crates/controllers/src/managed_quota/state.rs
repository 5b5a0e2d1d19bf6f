//! What is known and what is under way; changed by events only, without any I/O.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use sluice_engine::{ManagedStatus, Timers};
use sluice_index::Key;
use sluice_runtime::backoff::{Backoff, Retry};
use sluice_runtime::request::Answer;

use super::existing::Existing;
use super::kind::ManagedKind;
use super::plan::{Case, Plan, Write};
use super::wishes::{Quota, Wishes};

/// The wait after the first write to a managed quota, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(300));
/// Writes stop to count for the next wait when none was needed for so long after the last wait (milliseconds): a client that
/// undoes what is written does so sooner.
const FORGOTTEN_MS: u64 = 10_000;

#[derive(Debug)]
struct Writing {
    retry: Retry,
    in_flight: bool,
    /// What the API server said when it refused the last one.
    refusal: Option<String>,
}

/// All quotas with keys for a managed one, and what is done about them. What there is of managed ones is known elsewhere,
/// and is given to each function that decides.
///
/// Invariant: a quota is in `due` or `later`, or has a write in flight, or nothing has changed since it was decided on.
#[derive(Debug)]
pub(super) struct State {
    kind: ManagedKind,
    wishes: Wishes,
    /// Whether quotas of this kind have an effect: if not, they want nothing.
    are_allowed: bool,
    is_served: Option<bool>,
    writing: HashMap<Key, Writing>,
    due: BTreeSet<Key>,
    /// When to decide on a quota again (milliseconds).
    later: Timers<Key>,
    told: HashMap<Key, ManagedStatus>,
    seed: u64,
}

impl State {
    /// Nothing is known. `seed` spreads the waits of several objects apart. ResourceQuotas are served everywhere, and the
    /// quotas that they belong to are always in effect.
    pub fn new(kind: ManagedKind, seed: u64) -> Self {
        let is_core = kind == ManagedKind::ResourceQuota;
        Self {
            kind,
            wishes: Wishes::default(),
            are_allowed: is_core,
            is_served: is_core.then_some(true),
            writing: HashMap::new(),
            due: BTreeSet::new(),
            later: Timers::default(),
            told: HashMap::new(),
            seed,
        }
    }

    pub const fn begin_list(&mut self) {
        self.wishes.begin_list();
    }

    /// The list is complete. Returns the quotas that are gone.
    pub fn end_list(&mut self) -> Vec<Key> {
        let gone = self.wishes.end_list();
        gone.iter().for_each(|key| self.wants_else(key));
        gone
    }

    /// A quota was seen. Returns whether it wants something else than before.
    pub fn upsert(&mut self, key: &Key, quota: &impl Quota) -> bool {
        let changed = self.wishes.upsert(key, quota);
        if changed {
            self.wants_else(key);
        }
        changed
    }

    /// A quota is gone. Returns whether it was known.
    pub fn remove(&mut self, key: &Key) -> bool {
        let known = self.wishes.remove(key);
        if known {
            self.wants_else(key);
        }
        known
    }

    /// What held up the writes for the former wish does not hold up those for the new one.
    fn wants_else(&mut self, key: &Key) {
        if let Some(writing) = self.writing.get_mut(key) {
            writing.retry.reset();
            writing.refusal = None;
        }
        self.due.insert(key.clone());
    }

    /// From now on quotas of this kind have an effect, or none. Returns those of which something else is to be said.
    pub fn allow(&mut self, are_allowed: bool) -> Vec<Key> {
        if self.are_allowed == are_allowed {
            return Vec::new();
        }
        self.are_allowed = are_allowed;
        let keys = self.keys();
        keys.iter().for_each(|key| self.wants_else(key));
        keys
    }

    /// Whether the cluster serves the kind of managed quotas. What held up the writes while it did not is over when it does.
    pub fn set_served(&mut self, is_served: Option<bool>) {
        if self.is_served != is_served {
            self.is_served = is_served;
            self.keys().iter().for_each(|key| self.wants_else(key));
        }
    }

    /// The managed quota of this quota has changed.
    pub fn touch(&mut self, key: &Key) {
        self.due.insert(key.clone());
    }

    /// All quotas with keys for a managed one.
    pub fn keys(&self) -> Vec<Key> {
        self.wishes.keys().cloned().collect()
    }

    fn case<'c>(&'c self, key: &'c Key, existing: Option<&'c Existing>) -> Case<'c> {
        let wish = self.wishes.get(key).filter(|_| self.are_allowed);
        Case { kind: self.kind, key, wish, existing, is_served: self.is_served }
    }

    /// What is to be told of the keys of a quota, if that is something else than what was told last.
    pub fn news(&mut self, key: &Key, existing: Option<&Existing>) -> Option<Option<ManagedStatus>> {
        let refusal = self.writing.get(key).and_then(|writing| writing.refusal.as_deref());
        let now = self.case(key, existing).status(refusal);
        if self.told.get(key) == now.as_ref() {
            return None;
        }
        match &now {
            Some(status) => self.told.insert(key.clone(), status.clone()),
            None => self.told.remove(key),
        };
        Some(now)
    }

    /// The next quota to decide on.
    pub fn next(&mut self, now_ms: u64) -> Option<Key> {
        while let Some(key) = self.later.pop_due(now_ms) {
            self.due.insert(key);
        }
        self.due.pop_first()
    }

    /// When the next quota is due (milliseconds), if one waits for its time.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.later.next()
    }

    /// Decides on a quota. A write that is returned is in flight until [`Self::answered`].
    pub fn decide(&mut self, key: &Key, existing: Option<&Existing>, now_ms: u64) -> Option<Write> {
        let case = self.case(key, existing);
        let is_done_with = case.wish.is_none() && existing.is_none();
        let Plan::Write(write) = case.plan() else {
            if is_done_with && self.writing.get(key).is_some_and(|writing| !writing.in_flight) {
                self.writing.remove(key);
            }
            return None;
        };
        let seed = self.seed ^ BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        let writing = self.writing.entry(key.clone()).or_insert_with(|| Writing {
            retry: Retry::new(Backoff::new(WAITS.0, WAITS.1, seed)).forgetting_after(FORGOTTEN_MS),
            in_flight: false,
            refusal: None,
        });
        if writing.in_flight {
            // Its answer has the quota decided on again.
            return None;
        }
        if writing.retry.is_waiting(now_ms) {
            self.later.set(key.clone(), writing.retry.not_before_ms());
            return None;
        }
        writing.in_flight = true;
        Some(write)
    }

    /// A write was answered. What comes of it is on its way, so the quota is decided on again after a wait.
    pub fn answered(&mut self, key: &Key, answer: Answer<()>, now_ms: u64) {
        if let Some(writing) = self.writing.get_mut(key) {
            writing.in_flight = false;
            writing.retry.failed(now_ms);
            match answer {
                Answer::Done(()) => writing.refusal = None,
                Answer::Refused(why) => writing.refusal = Some(why),
                Answer::Stale(_) | Answer::Busy(_) | Answer::Unknown(_) => {}
            }
        }
        self.due.insert(key.clone());
    }
}
