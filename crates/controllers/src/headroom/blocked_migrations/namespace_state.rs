//! What is remembered of one namespace.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Uid;
use sluice_engine::headroom::{MARK, NUDGE_KEY, Need};
use sluice_runtime::backoff::{Backoff, Retry};

use super::messages::{NamespaceFacts, QuotaName, Summary};

/// So many writes in a row have to be refused before it is taken as lasting.
const LASTING: u32 = 3;

/// A namespace with blocked migrations.
#[derive(Debug)]
pub(super) struct NamespaceState {
    /// What is under way.
    pub(super) doing: Option<Doing>,
    pub(super) blocked: BTreeMap<Uid, Entry>,
    /// KubeVirt's controller is to be woken, whatever is known.
    pub(super) nudge: bool,
    /// No nudge before.
    pub(super) nudge_from: u64,
    limit_ranges: Option<u64>,
    /// Stands for limits, usage and budget.
    room: u64,
    /// Writing is refused, and not only for a moment: what was said.
    pub(super) forbidden: Option<Arc<str>>,
    pub(super) forbidden_retry: Retry,
    /// When to look again.
    pub(super) timer: Option<u64>,
    pub(super) summary: Summary,
}

/// What is under way in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Look(Uid),
    Nudge(QuotaName),
}

/// A migration that a quota rejected.
#[derive(Debug)]
pub(super) struct Entry {
    version: Arc<str>,
    /// What the source takes, once it was looked for.
    pub(super) source: Option<Option<Need>>,
    pub(super) look: Retry,
    pub(super) retry: Retry,
    /// Since when it would be let in.
    pub(super) passes_since: Option<u64>,
    /// How often it was woken since the room changed.
    pub(super) wakes: u32,
    told: Option<(Arc<str>, u64)>,
}

impl Entry {
    /// Whether to tell this now; `Err` is when.
    pub(super) fn tells(&mut self, text: &str, now_ms: u64, spacing: u64) -> Result<Option<Arc<str>>, u64> {
        match &self.told {
            Some((told, _)) if **told == *text => return Ok(None),
            Some((_, at)) if at + spacing > now_ms => return Err(at + spacing),
            _ => {}
        }
        let text: Arc<str> = text.into();
        self.told = Some((Arc::clone(&text), now_ms));
        Ok(Some(text))
    }
}

const fn retry((first, longest): (Duration, Duration), seed: u64) -> Retry {
    Retry::new(Backoff::new(first, longest, seed))
}

/// What the outcome of an attempt depends on, without what raises and nudges do to it.
fn room(facts: &NamespaceFacts) -> u64 {
    let mut hasher = DefaultHasher::new();
    for quota in &facts.quotas {
        let used = quota.used.iter().filter(|(key, _)| &***key != MARK && &***key != NUDGE_KEY);
        for (key, amount) in quota.spec_hard.iter().chain(used) {
            (key, amount.nanos()).hash(&mut hasher);
        }
    }
    format!("{:?}", facts.budget).hash(&mut hasher);
    facts.limit_ranges.hash(&mut hasher);
    hasher.finish()
}

impl NamespaceState {
    pub(super) fn new(config: &super::BlockedConfig, seed: u64) -> Self {
        Self {
            doing: None,
            blocked: BTreeMap::new(),
            nudge: false,
            nudge_from: 0,
            limit_ranges: None,
            room: 0,
            forbidden: None,
            forbidden_retry: retry(config.forbidden_retry, seed),
            timer: None,
            summary: Summary::default(),
        }
    }

    /// Takes note of what is seen. Returns how many migrations are rejected that were not before.
    pub(super) fn see(&mut self, facts: &NamespaceFacts, config: &super::BlockedConfig, seed: u64) -> u64 {
        self.blocked.retain(|uid, _| facts.blocked.iter().any(|blocked| blocked.migration.uid == *uid));
        let mut added = 0;
        for blocked in &facts.blocked {
            if let Some(entry) = self.blocked.get_mut(&blocked.migration.uid) {
                if entry.version != blocked.version {
                    entry.version = Arc::clone(&blocked.version);
                    entry.source = None;
                    entry.look.reset();
                }
                continue;
            }
            added += 1;
            let entry = Entry {
                version: Arc::clone(&blocked.version),
                source: None,
                look: retry(config.retry, seed ^ added),
                retry: retry(config.retry, seed ^ added),
                passes_since: None,
                wakes: 0,
                told: None,
            };
            self.blocked.insert(blocked.migration.uid.clone(), entry);
        }
        let room = room(facts);
        if std::mem::replace(&mut self.room, room) != room {
            self.blocked.values_mut().for_each(|entry| entry.wakes = 0);
        }
        let known = self.limit_ranges.replace(facts.limit_ranges);
        // What a target takes under other LimitRanges is only known when it is tried.
        self.nudge |= known.is_some_and(|known| known != facts.limit_ranges) && !self.blocked.is_empty();
        if self.blocked.is_empty() {
            self.nudge = false;
            self.allowed();
        }
        added
    }

    /// Whether nothing of it needs to be remembered.
    pub(super) fn is_idle(&self) -> bool {
        self.doing.is_none()
            && self.blocked.is_empty()
            && self.timer.is_none()
            && self.summary == Summary::default()
    }

    /// A write was refused. Returns whether that lasts and is news.
    pub(super) fn forbid(&mut self, said: &Arc<str>, now_ms: u64) -> bool {
        self.forbidden_retry.failed(now_ms);
        // KubeVirt's controller saw no change of the quota, so it did not try again.
        self.blocked.values_mut().for_each(|entry| entry.wakes = 0);
        if self.forbidden_retry.failures() < LASTING {
            return false;
        }
        self.forbidden.replace(Arc::clone(said)).as_ref() != Some(said)
    }

    /// A write went through.
    pub(super) fn allowed(&mut self) {
        self.forbidden = None;
        self.forbidden_retry.reset();
    }
}
