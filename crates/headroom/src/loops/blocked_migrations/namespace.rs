//! One namespace with migrations that a quota rejected: from what is seen to whom to wake and what to tell.
//!
//! What a target takes only the webhook knows, for it sees the target: it tells what is missing. Here KubeVirt's controller
//! is woken when something has changed on which the outcome depends.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::headroom::{Budget, Grant, MARK, NUDGE_KEY, NativeQuota};
use sluice_engine::quantity::Format;
use sluice_engine::{Quantity, Uid};
use sluice_runtime::backoff::{Backoff, Retry};
use sluice_runtime::events::Report;

use super::Summary;
use crate::events;
use crate::protocol::QuotaRef;
use crate::target::MigrationRef;

/// How long KubeVirt's controller gets to notice a change by itself. It does not see what is granted.
const NUDGE_AFTER_MS: u64 = 1_000;
/// The least time between two nudges.
const NUDGE_SPACING_MS: u64 = 500;
/// Waits after a nudge in vain: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(RETRY_MS / 1000), Duration::from_secs(60));
const RETRY_MS: u64 = 5_000;
/// Waits after writes that are refused. The first are short: an API server that has just started refuses what it allows a
/// moment later.
const FORBIDDEN_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(900));
/// So many writes in a row have to be refused before it is taken as lasting.
const LASTING: u32 = 3;
/// So often KubeVirt's controller is woken while nothing changes. It tries again by itself, ever more slowly.
const MOST_WAKES: u32 = 3;

/// A namespace as it is seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    pub(super) quotas: Vec<NativeQuota>,
    /// What it may take above them.
    pub(super) budget: Budget,
    /// Migrations that a quota rejected and that wait for a pod, by priority, then age, then name.
    pub(super) blocked: Vec<Blocked>,
    /// Stands for its LimitRanges.
    pub(super) limit_ranges: u64,
    /// Why nothing is raised anywhere.
    pub(super) unproven: Option<Arc<str>>,
    /// For how long nothing is raised in it: a raise did not help.
    pub(super) rests_for: Duration,
}

/// A migration that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) migration: MigrationRef,
    /// The state of the machine's TPM or firmware is kept on a volume, and the target needs one of its own.
    pub(super) keeps_state: bool,
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
    /// How many migrations are rejected that were not before.
    pub(super) added: u64,
}

impl Look {
    fn at(&mut self, due: u64) {
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }
}

/// What is remembered while migrations wait. Times are in milliseconds of a clock that is not set back.
#[derive(Debug)]
pub(super) struct Namespace {
    /// The blocked migrations, and which of them were told something.
    known: BTreeSet<Uid>,
    told: BTreeSet<Uid>,
    /// When KubeVirt's controller is to be woken next; `None` while it has been often enough.
    wake_at: Option<u64>,
    /// After wakes in vain.
    retry: Retry,
    /// How often it was woken since something changed.
    wakes: u32,
    /// No nudge before.
    nudge_from: u64,
    /// Stands for what administrators have set.
    terms: u64,
    limit_ranges: Option<u64>,
    /// Stands for limits and usage.
    room: u64,
    /// Writing is refused, and not only for a moment: what was said.
    forbidden: Option<Arc<str>>,
    forbidden_retry: Retry,
}

impl Namespace {
    /// Nothing was seen yet. `seed` spreads the waits of several namespaces and processes.
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            known: BTreeSet::new(),
            told: BTreeSet::new(),
            wake_at: None,
            retry: retry(RETRY, seed),
            wakes: 0,
            nudge_from: 0,
            terms: 0,
            limit_ranges: None,
            room: 0,
            forbidden: None,
            forbidden_retry: retry(FORBIDDEN_RETRY, seed),
        }
    }

    /// Decides what is to be done now.
    pub(super) fn look(&mut self, facts: &Facts, now_ms: u64) -> Look {
        let mut look = Look { added: self.see(facts, now_ms), ..Look::default() };
        look.summary.blocked = facts.blocked.len();
        look.summary.forbidden.clone_from(&self.forbidden);
        if facts.blocked.is_empty() {
            return look;
        }
        let is_granted = !facts.budget.grants.is_empty();
        look.summary.granted = is_granted;
        look.summary.unproven = is_granted && facts.unproven.is_some();
        look.summary.opted_out = facts.quotas.iter().any(|quota| quota.opted_out && is_full(quota));
        if let Some(why) = facts.unproven.as_ref().filter(|_| is_granted) {
            self.tell(facts, &mut look, |blocked| Some(events::not_proven(&blocked.migration, why)));
            return look;
        }
        if is_granted && self.wakes > 0 && self.forbidden.is_none() {
            look.summary.not_enough = waiting(facts);
            self.tell(facts, &mut look, |blocked| claims(facts, blocked));
        }
        if self.wake_at.is_some_and(|due| due <= now_ms) {
            look.nudge = self.quota_to_nudge(facts, now_ms);
        }
        if let Some(due) = self.wake_at {
            look.at(due);
        }
        look
    }

    /// Takes note of what is seen. Returns how many migrations are rejected that were not before.
    fn see(&mut self, facts: &Facts, now_ms: u64) -> u64 {
        let blocked: BTreeSet<Uid> = facts.blocked.iter().map(|it| it.migration.uid.clone()).collect();
        let added = blocked.difference(&self.known).count();
        let is_fewer = self.known.difference(&blocked).next().is_some();
        self.told.retain(|uid| blocked.contains(uid));
        let (terms, room) = (terms(facts), room(facts));
        let is_first = self.known.is_empty();
        let is_granted_anew = std::mem::replace(&mut self.terms, terms) != terms && !is_first;
        let is_other_room = std::mem::replace(&mut self.room, room) != room;
        self.known = blocked;
        if is_granted_anew || is_fewer || is_first {
            self.retry.reset();
        }
        if is_granted_anew {
            self.told.clear();
        }
        let known = self.limit_ranges.replace(facts.limit_ranges);
        let is_other_range = known.is_some_and(|known| known != facts.limit_ranges);
        if facts.budget.grants.is_empty() && !is_other_range {
            // Nothing is to be had but what the quota has, and its changes KubeVirt's controller sees by itself.
            self.wake_at = None;
        } else if is_granted_anew || is_other_room || added > 0 {
            self.wakes = 0;
            let after = if is_granted_anew { 0 } else { NUDGE_AFTER_MS };
            let due = now_ms.saturating_add(after).max(self.retry.not_before_ms());
            self.wake_at = Some(self.wake_at.map_or(due, |earlier| earlier.min(due)));
        }
        u64::try_from(added).unwrap_or(u64::MAX)
    }

    /// Tells something of each migration of which nothing was told yet.
    fn tell(&mut self, facts: &Facts, look: &mut Look, what: impl Fn(&Blocked) -> Option<Vec<Report>>) {
        for blocked in &facts.blocked {
            let uid = &blocked.migration.uid;
            if !self.told.contains(uid)
                && let Some(reports) = what(blocked)
            {
                self.told.insert(uid.clone());
                look.tell.extend(reports);
            }
        }
    }

    /// The quota to write, if it is time. Any will do, because KubeVirt's controller tries all rejected migrations of a
    /// namespace again when one of its quotas changes; its queue has them by priority.
    fn quota_to_nudge(&mut self, facts: &Facts, now_ms: u64) -> Option<QuotaRef> {
        // A quota without usage is about to be written by kube-controller-manager, a marked one by who raised it.
        let is_still = |quota: &&NativeQuota| !quota.used.is_empty() && quota.mark().is_none();
        let quota = facts.quotas.iter().find(is_still);
        let due = self.nudge_from.max(self.forbidden_retry.not_before_ms()).max(rested(facts, now_ms));
        // Without such a quota the next change of one is waited for, but not for ever.
        let due = if quota.is_some() { due } else { due.max(now_ms + RETRY_MS) };
        if due > now_ms {
            self.wake_at = Some(due);
            return None;
        }
        let quota = quota?;
        self.nudge_from = now_ms + NUDGE_SPACING_MS;
        self.retry.failed(now_ms);
        self.wakes += 1;
        self.wake_at = (self.wakes < MOST_WAKES).then(|| self.retry.not_before_ms());
        Some(QuotaRef { name: Arc::clone(&quota.name), uid: quota.uid.clone() })
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
        self.wake_at = Some(self.forbidden_retry.not_before_ms());
        if self.forbidden_retry.failures() < LASTING {
            return None;
        }
        let known = self.forbidden.replace(Arc::clone(&said));
        (known.as_ref() != Some(&said)).then_some(said)
    }
}

/// When the namespace has rested, also for webhooks that saw the end of the last raise a little later.
fn rested(facts: &Facts, now_ms: u64) -> u64 {
    if facts.rests_for.is_zero() {
        return 0;
    }
    let rests_for = u64::try_from(facts.rests_for.as_millis()).unwrap_or(u64::MAX);
    now_ms.saturating_add(rests_for).saturating_add(NUDGE_AFTER_MS)
}

const fn retry((first, longest): (Duration, Duration), seed: u64) -> Retry {
    Retry::new(Backoff::new(first, longest, seed))
}

fn is_full(quota: &NativeQuota) -> bool {
    quota.spec_hard.iter().any(|(key, hard)| quota.used.get(key).is_some_and(|used| used >= hard))
}

/// What is said of the migrations that wait although something is granted, and how many there are.
fn waiting(facts: &Facts) -> Option<(Arc<str>, usize)> {
    let migration = &facts.blocked.first()?.migration;
    let text = format!(
        "migration {} of vm {} waits although head-room is granted: its events say what is missing",
        migration.name, migration.machine
    );
    Some((text.into(), facts.blocked.len()))
}

/// What a claim for the state of a TPM or firmware takes of a key of a quota (`PVCSize` of that file); `None`: nothing.
fn of_a_claim(key: &str) -> Option<Quantity> {
    if key.ends_with("requests.storage") {
        return Some(Quantity::from_units(10 << 20, Format::BinarySi));
    }
    let counts = key == "persistentvolumeclaims"
        || key == "count/persistentvolumeclaims"
        || key.ends_with("storageclass.storage.k8s.io/persistentvolumeclaims");
    counts.then(|| Quantity::from_units(1, Format::DecimalSi))
}

/// KubeVirt creates a claim for the target before the target itself
/// (`pkg/storage/backend-storage/backend-storage.go`), and the webhook is not asked about claims.
fn claims(facts: &Facts, blocked: &Blocked) -> Option<Vec<Report>> {
    let limits = |quota: &NativeQuota| {
        let lacks = |(key, hard): (&Arc<str>, &Quantity)| {
            let used = quota.used.get(key).copied().unwrap_or(Quantity::ZERO);
            let fits = used.checked_add(of_a_claim(key)?).is_ok_and(|after| after <= *hard);
            let text = || format!("quota {} limits {key} ({used} of {hard} used)", quota.name);
            (!fits).then(text)
        };
        quota.spec_hard.iter().find_map(lacks)
    };
    let limit = facts.quotas.iter().find_map(limits).filter(|_| blocked.keeps_state)?;
    let text = format!(
        "the state of the virtual machine's TPM or firmware is kept on a volume, so KubeVirt creates a second \
         PersistentVolumeClaim for the migration unless the storage class offers ReadWriteMany, and {limit}: head-room \
         makes room for pods, raise this limit"
    );
    Some(events::refused(&blocked.migration, &text))
}

/// What the outcome depends on that administrators set: KubeVirt's controller does not see it change.
fn terms(facts: &Facts) -> u64 {
    let mut hasher = DefaultHasher::new();
    for grant in &facts.budget.grants {
        (grant.source(), grant.terms()).hash(&mut hasher);
    }
    let opted_out = facts.quotas.iter().map(|quota| quota.opted_out).collect::<Vec<_>>();
    (facts.limit_ranges, opted_out, facts.unproven.is_some()).hash(&mut hasher);
    hasher.finish()
}

/// What the outcome depends on, without what raises and nudges do to it.
fn room(facts: &Facts) -> u64 {
    let mut hasher = DefaultHasher::new();
    for quota in &facts.quotas {
        quota.name.hash(&mut hasher);
        let used = quota.used.iter().filter(|(key, _)| &***key != MARK && &***key != NUDGE_KEY);
        for (key, amount) in quota.spec_hard.iter().chain(used) {
            (key, amount.nanos()).hash(&mut hasher);
        }
    }
    for taken in facts.budget.grants.iter().filter_map(Grant::taken_elsewhere) {
        taken.iter().for_each(|(key, amount)| (key, amount.nanos()).hash(&mut hasher));
    }
    hasher.finish()
}
