//! One namespace with migrations that a quota rejected: from what is seen to whom to wake and what to tell.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Uid;
use sluice_engine::headroom::{Budget, MARK, NUDGE_KEY, NativeQuota, Need, Plan, Refusal, plan, sentence};
use sluice_runtime::backoff::{Backoff, Retry};
use sluice_runtime::events::Report;
use sluice_window::MigrationRef;
use sluice_window::protocol::QuotaRef;

use super::Summary;
use crate::headroom::events;

/// How long KubeVirt's controller gets to notice by itself that there is room.
const NUDGE_AFTER_MS: u64 = 1_000;
/// The least time between two nudges.
const NUDGE_SPACING_MS: u64 = 500;
/// The least time between two events that tell of one migration.
const TELL_SPACING_MS: u64 = 5_000;
/// Waits after a nudge in vain or a failed request: the first, and the longest.
pub(super) const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Waits after writes that are refused. The first are short: an API server that has just started refuses what it allows a
/// moment later.
const FORBIDDEN_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(900));
/// So many writes in a row have to be refused before it is taken as lasting.
const LASTING: u32 = 3;
/// A target that is refused again and again although a pod like its source would fit is not like its source.
const MOST_WAKES: u32 = 3;
const LARGER: &str = "its target is refused although a pod like its source would fit: a LimitRange or another version of \
    KubeVirt makes it larger, see the FailedCreate events of the machine";

/// A namespace as it is seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// Its native quotas.
    pub(super) quotas: Vec<NativeQuota>,
    /// What it may take above them.
    pub(super) budget: Budget,
    /// Migrations that a quota rejected and that have no target, by priority, then age, then name; and what the source of each
    /// takes, as far as that is known.
    pub(super) blocked: Vec<(MigrationRef, Option<Need>)>,
    /// Stands for its LimitRanges.
    pub(super) limit_ranges: u64,
}

/// What comes of looking at it.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// What people are told. Each is told once.
    pub(super) tell: Vec<Report>,
    /// Wake KubeVirt's controller: write this quota without changing what it says.
    pub(super) nudge: Option<QuotaRef>,
    /// When to look again even if nothing changes.
    pub(super) due: Option<u64>,
    pub(super) summary: Summary,
    /// How many migrations are rejected that were not before, and how many were told that they lack something.
    pub(super) counts: [u64; 2],
}

impl Look {
    fn at(&mut self, due: u64) {
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }
}

/// What is remembered while migrations wait. Times are in milliseconds of a clock that is not set back.
#[derive(Debug)]
pub(super) struct Namespace {
    /// The blocked migrations; what was told of each, and when.
    known: BTreeMap<Uid, Option<(Box<str>, u64)>>,
    /// Since when one of them would be let in.
    passes_since: Option<u64>,
    retry: Retry,
    /// How often they were woken since the room changed.
    wakes: u32,
    /// KubeVirt's controller is to be woken.
    nudge: bool,
    /// No nudge before.
    nudge_from: u64,
    limit_ranges: Option<u64>,
    /// Stands for limits, usage and budget.
    room: u64,
    /// Writing is refused, and not only for a moment: what was said.
    forbidden: Option<Arc<str>>,
    forbidden_retry: Retry,
}

impl Namespace {
    /// Nothing was seen yet. `seed` spreads the waits of several namespaces and processes.
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            known: BTreeMap::new(),
            passes_since: None,
            retry: retry(RETRY, seed),
            wakes: 0,
            nudge: false,
            nudge_from: 0,
            limit_ranges: None,
            room: 0,
            forbidden: None,
            forbidden_retry: retry(FORBIDDEN_RETRY, seed),
        }
    }

    /// Decides what is to be done now.
    pub(super) fn look(&mut self, facts: &Facts, now_ms: u64) -> Look {
        let mut look = Look::default();
        look.counts[0] = self.see(facts);
        look.summary.blocked = facts.blocked.len();
        look.summary.forbidden.clone_from(&self.forbidden);
        let blocked = facts.blocked.iter().filter_map(|(migration, need)| Some((migration, need.as_ref()?)));
        let passes =
            blocked.filter_map(|(migration, need)| self.judge(migration, need, facts, now_ms, &mut look));
        let soonest = passes.min();
        self.wake(soonest, now_ms, &mut look);
        if self.nudge {
            look.nudge = self.quota_to_nudge(facts, now_ms, &mut look);
        }
        look
    }

    /// Takes note of what is seen. Returns how many migrations are rejected that were not before.
    fn see(&mut self, facts: &Facts) -> u64 {
        self.known.retain(|uid, _| facts.blocked.iter().any(|(migration, _)| migration.uid == *uid));
        let mut added = 0;
        for (migration, _) in &facts.blocked {
            self.known.entry(migration.uid.clone()).or_insert_with(|| {
                added += 1;
                None
            });
        }
        let room = room(facts);
        if std::mem::replace(&mut self.room, room) != room || added > 0 {
            self.wakes = 0;
        }
        if added > 0 {
            self.passes_since = None;
        }
        let known = self.limit_ranges.replace(facts.limit_ranges);
        // What a target takes under other LimitRanges is only known when it is tried.
        self.nudge |= known.is_some_and(|known| known != facts.limit_ranges);
        added
    }

    /// If a pod like the source of this migration would be let in: how long KubeVirt's controller gets to notice by itself.
    fn judge(
        &mut self,
        migration: &MigrationRef,
        need: &Need,
        facts: &Facts,
        now_ms: u64,
        look: &mut Look,
    ) -> Option<u64> {
        match plan(need, &facts.quotas, &facts.budget) {
            Plan::Fits { .. } if self.wakes >= MOST_WAKES => {
                if self.is_news(migration, LARGER, now_ms, look) {
                    look.tell.extend(events::refused(migration, LARGER));
                }
            }
            Plan::Fits { .. } => return Some(NUDGE_AFTER_MS),
            // No quota changes when something is granted.
            Plan::Raise(_) => return Some(0),
            Plan::NotEnough(shortages) => {
                let text = sentence(&migration.name, &migration.machine, &shortages);
                if self.is_news(migration, &text, now_ms, look) {
                    look.tell.extend(events::not_enough(migration, &text));
                    look.counts[1] += 1;
                }
                look.summary.not_enough.get_or_insert_with(|| (text.into(), 0)).1 += 1;
            }
            Plan::Refused(refusals) => {
                look.summary.opted_out |= refusals.iter().any(|why| matches!(why, Refusal::OptedOut { .. }));
                let lasting: Vec<String> =
                    refusals.iter().filter(|why| lasts(why)).map(Refusal::to_string).collect();
                let text = lasting.join("; ");
                if !text.is_empty() && self.is_news(migration, &text, now_ms, look) {
                    look.tell.extend(events::refused(migration, &text));
                }
            }
        }
        None
    }

    /// Whether to tell this now: it was not told yet, and the last was not just told. It is taken to be told then.
    fn is_news(&mut self, migration: &MigrationRef, text: &str, now_ms: u64, look: &mut Look) -> bool {
        let told = self.known.entry(migration.uid.clone()).or_default();
        match told {
            Some((told, _)) if **told == *text => return false,
            Some((_, at)) if *at + TELL_SPACING_MS > now_ms => {
                look.at(*at + TELL_SPACING_MS);
                return false;
            }
            _ => *told = Some((text.into(), now_ms)),
        }
        true
    }

    /// `soonest`: one of the migrations would be let in, were it tried, and KubeVirt's controller gets so long to do so.
    fn wake(&mut self, soonest: Option<u64>, now_ms: u64, look: &mut Look) {
        let Some(after_ms) = soonest else {
            self.passes_since = None;
            return;
        };
        if self.passes_since.is_none() {
            self.retry.reset();
        }
        let due = *self.passes_since.get_or_insert(now_ms) + after_ms;
        let due = due.max(self.retry.not_before_ms());
        if due > now_ms {
            look.at(due);
        } else if !self.nudge {
            self.retry.failed(now_ms);
            self.wakes += 1;
            self.nudge = true;
            look.at(self.retry.not_before_ms());
        }
    }

    /// The quota to write, if it is time. Any will do, because KubeVirt's controller tries all rejected migrations of a
    /// namespace again when one of its quotas changes; its queue has them by priority.
    fn quota_to_nudge(&mut self, facts: &Facts, now_ms: u64, look: &mut Look) -> Option<QuotaRef> {
        // A quota without usage is about to be written by kube-controller-manager, a marked one by who raised it.
        let is_still = |quota: &&NativeQuota| !quota.used.is_empty() && quota.mark().is_none();
        let quota = facts.quotas.iter().find(is_still);
        let due = self.nudge_from.max(self.forbidden_retry.not_before_ms());
        if quota.is_some() && due > now_ms {
            look.at(due);
            return None;
        }
        self.nudge = false;
        self.nudge_from = now_ms + NUDGE_SPACING_MS;
        quota.map(|quota| QuotaRef { name: Arc::clone(&quota.name), uid: quota.uid.clone() })
    }

    /// The quota was written, or that was refused. Returns what was said if that lasts and is news.
    pub(super) fn nudged(&mut self, written: Result<(), Arc<str>>, now_ms: u64) -> Option<Arc<str>> {
        let Err(said) = written else {
            self.forbidden = None;
            self.forbidden_retry.reset();
            return None;
        };
        self.forbidden_retry.failed(now_ms);
        // KubeVirt's controller saw no change of the quota, so it did not try again.
        self.wakes = 0;
        if self.forbidden_retry.failures() < LASTING {
            return None;
        }
        let known = self.forbidden.replace(Arc::clone(&said));
        (known.as_ref() != Some(&said)).then_some(said)
    }
}

pub(super) const fn retry((first, longest): (Duration, Duration), seed: u64) -> Retry {
    Retry::new(Backoff::new(first, longest, seed))
}

/// What the outcome of an attempt depends on, without what raises and nudges do to it.
fn room(facts: &Facts) -> u64 {
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

/// Whether a refusal stays until an administrator changes something. The others end with the next sync of the quota.
const fn lasts(refusal: &Refusal) -> bool {
    !matches!(refusal, Refusal::StatusUnknown { .. } | Refusal::NotSynced { .. })
}
