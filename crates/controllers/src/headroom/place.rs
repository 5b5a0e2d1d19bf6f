//! What is remembered of one namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::Uid;
use sluice_engine::headroom::{Amounts, Budget, NativeQuota, Need};
use sluice_kube_ext::retry::Backoff;

use super::action::Cause;
use super::attempt::{Attempt, expected};
use super::config::ReactiveConfig;
use super::facts::{BlockedFacts, NamespaceFacts, WindowFacts};
use super::summary::Summary;

/// The key whose appearance in `status.used` wakes KubeVirt's controller. No quota limits it, quota admission looks
/// only at keys of `status.hard`, and kube-controller-manager drops it at its next sync.
pub const NUDGE_KEY: &str = "count/migrationwindows.quota.sluice.dev";

/// A namespace in which something is raised, open or blocked.
#[derive(Debug)]
pub(super) struct Place {
    /// What is under way.
    pub(super) doing: Option<Doing>,
    /// Since when a quota is raised without a window.
    pub(super) raised_since: Option<u64>,
    /// The window, and since when it is seen.
    pub(super) window: Option<(Arc<str>, u64)>,
    /// The window whose end was looked into while its lock still held.
    pub(super) looked_into: Option<Arc<str>>,
    pub(super) sweep: Retry,
    pub(super) blocked: BTreeMap<Uid, Entry>,
    /// No window before: the last one was open in vain.
    pub(super) rest_until: u64,
    pub(super) forbidden: Option<Forbidden>,
    forbidden_retry: Retry,
    room: Option<Room>,
    limit_ranges: Option<u64>,
    /// KubeVirt's controller is to try again, whatever is known.
    pub(super) nudge: bool,
    /// For how many nodes migrations run.
    pub(super) running: Vec<Option<Arc<str>>>,
    /// How many targets were seen to come.
    entered: usize,
    /// How many had come when the last window was opened.
    entered_before: usize,
    /// When to look again.
    pub(super) timer: Option<u64>,
    /// It waits for one of the windows that may be open at once.
    pub(super) queued: bool,
    pub(super) summary: Summary,
}

/// What is under way in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Sweep(Cause, Option<(Arc<str>, Uid)>),
    Look(Uid),
    Open(Uid, Option<(Arc<str>, Uid)>),
    Nudge((Arc<str>, Uid)),
}

impl Doing {
    /// The quota that is written.
    pub(super) fn quota(&self) -> Option<(Arc<str>, Uid)> {
        match self {
            Self::Sweep(_, quota) | Self::Open(_, quota) => quota.clone(),
            Self::Nudge(quota) => Some(quota.clone()),
            Self::Look(_) => None,
        }
    }
}

/// When something may be tried again.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    backoff: Backoff,
    pub(super) not_before: u64,
}

impl Retry {
    pub(super) fn new((first, longest): (std::time::Duration, std::time::Duration), seed: u64) -> Self {
        Self { backoff: Backoff::new(first, longest, seed), not_before: 0 }
    }

    pub(super) fn failed(&mut self, now_ms: u64) {
        let wait = u64::try_from(self.backoff.failed().as_millis()).unwrap_or(u64::MAX);
        self.not_before = now_ms.saturating_add(wait);
    }

    pub(super) fn reset(&mut self) {
        self.backoff.reset();
        self.not_before = 0;
    }
}

/// Writing to a quota was refused by somebody who will refuse it again.
#[derive(Clone, Debug)]
pub(super) struct Forbidden {
    pub(super) until: u64,
    pub(super) said: Arc<str>,
}

/// What the room for targets depends on, apart from what windows do to it.
#[derive(Clone, Debug, PartialEq)]
struct Room {
    quotas: Vec<(Uid, Amounts, Amounts)>,
    budget: Budget,
}

impl Room {
    fn of(facts: &NamespaceFacts) -> Self {
        let used = |quota: &NativeQuota| {
            let mut used = quota.used.clone();
            used.remove(NUDGE_KEY);
            used
        };
        let quotas =
            facts.quotas.iter().map(|quota| (quota.uid.clone(), quota.spec_hard.clone(), used(quota)));
        Self { quotas: quotas.collect(), budget: facts.budget.clone() }
    }
}

/// A migration that a quota rejected.
#[derive(Debug)]
pub(super) struct Entry {
    version: Arc<str>,
    attempt: Option<Attempt>,
    /// An attempt made under other LimitRanges.
    outdated: Option<Attempt>,
    /// What the source takes, once it was looked for.
    pub(super) source: Option<Option<Need>>,
    pub(super) look: Retry,
    pub(super) retry: Retry,
    pub(super) fits_since: Option<u64>,
    pub(super) told: Option<(Arc<str>, u64)>,
}

impl Entry {
    fn new(facts: &BlockedFacts, config: &ReactiveConfig, seed: u64) -> Self {
        Self {
            version: Arc::clone(&facts.version),
            attempt: facts.attempt.clone(),
            outdated: None,
            source: None,
            look: Retry::new(config.retry, seed),
            retry: Retry::new(config.retry, seed),
            fits_since: None,
            told: None,
        }
    }

    fn see(&mut self, facts: &BlockedFacts) {
        let requested = |attempt: &Option<Attempt>| attempt.as_ref().map(|attempt| attempt.requested.clone());
        let other = requested(&self.attempt) != requested(&facts.attempt);
        if self.version != facts.version {
            self.version = Arc::clone(&facts.version);
            self.source = None;
            self.look.reset();
        } else if !other {
            self.attempt.clone_from(&facts.attempt);
            return;
        }
        self.attempt.clone_from(&facts.attempt);
        self.start_again();
    }

    fn start_again(&mut self) {
        self.retry.reset();
        self.fits_since = None;
    }

    /// What the target is expected to take, and what the source takes.
    pub(super) fn need(&self) -> Option<(Need, &Need)> {
        let source = self.source.as_ref()?.as_ref()?;
        let attempt = self.attempt.as_ref().filter(|attempt| self.outdated.as_ref() != Some(*attempt));
        Some((expected(source, attempt), source))
    }

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

impl Place {
    pub(super) fn new(config: &ReactiveConfig, seed: u64) -> Self {
        Self {
            doing: None,
            raised_since: None,
            window: None,
            looked_into: None,
            sweep: Retry::new(config.retry, seed),
            blocked: BTreeMap::new(),
            rest_until: 0,
            forbidden: None,
            forbidden_retry: Retry::new(config.forbidden_retry, seed),
            room: None,
            limit_ranges: None,
            nudge: false,
            running: Vec::new(),
            entered: 0,
            entered_before: 0,
            timer: None,
            queued: false,
            summary: Summary::default(),
        }
    }

    /// Takes note of what is seen. Returns how many migrations are rejected that were not before.
    pub(super) fn see(
        &mut self,
        facts: &NamespaceFacts,
        config: &ReactiveConfig,
        seed: u64,
        now_ms: u64,
    ) -> u64 {
        self.see_window(facts.window.as_ref(), now_ms);
        self.entered += facts.running.len().saturating_sub(self.running.len());
        self.running.clone_from(&facts.running);
        let raised = facts.window.is_none() && facts.quotas.iter().any(NativeQuota::is_raised);
        self.raised_since = raised.then(|| self.raised_since.unwrap_or(now_ms));
        self.blocked.retain(|uid, _| facts.blocked.iter().any(|blocked| blocked.uid == *uid));
        let mut added = 0;
        for blocked in &facts.blocked {
            match self.blocked.get_mut(&blocked.uid) {
                Some(entry) => entry.see(blocked),
                None => {
                    added += 1;
                    self.blocked.insert(blocked.uid.clone(), Entry::new(blocked, config, seed ^ added));
                }
            }
        }
        self.see_room(facts);
        if self.is_calm(facts) {
            self.forbidden = None;
            self.forbidden_retry.reset();
            self.nudge = false;
        }
        added
    }

    fn see_window(&mut self, window: Option<&WindowFacts>, now_ms: u64) {
        self.window = window.map(|window| match self.window.take() {
            Some((nonce, since)) if nonce == window.nonce => (nonce, since),
            _ => (Arc::clone(&window.nonce), now_ms),
        });
    }

    fn see_room(&mut self, facts: &NamespaceFacts) {
        let room = Room::of(facts);
        let changed = self.room.as_ref().is_some_and(|known| *known != room);
        self.room = (!facts.blocked.is_empty()).then_some(room);
        let known = self.limit_ranges.replace(facts.limit_ranges);
        let limited = known.is_some_and(|known| known != facts.limit_ranges) && !self.blocked.is_empty();
        if !changed && !limited {
            return;
        }
        for entry in self.blocked.values_mut() {
            entry.start_again();
            if limited {
                entry.outdated.clone_from(&entry.attempt);
            }
        }
        // What a target takes under other LimitRanges is only known when it is tried.
        self.nudge |= limited;
    }

    /// A window opens.
    pub(super) fn open(&mut self, uid: &Uid, quota: Option<(Arc<str>, Uid)>) {
        self.doing = Some(Doing::Open(uid.clone(), quota));
        self.entered_before = self.entered;
    }

    /// Whether a target came since the last window was opened, be it another than it was opened for: whoever is woken
    /// first takes the room.
    pub(super) const fn has_let_in(&self) -> bool {
        self.entered > self.entered_before
    }

    fn is_calm(&self, facts: &NamespaceFacts) -> bool {
        self.raised_since.is_none() && facts.window.is_none() && self.blocked.is_empty()
    }

    /// Whether nothing of it needs to be remembered.
    pub(super) fn is_idle(&self) -> bool {
        let still = self.doing.is_none() && self.raised_since.is_none() && self.window.is_none();
        still
            && self.blocked.is_empty()
            && self.running.is_empty()
            && self.timer.is_none()
            && self.summary == Summary::default()
    }

    /// Somebody refuses our writes. Returns the text if it is a new one.
    pub(super) fn forbid(&mut self, said: &Arc<str>, now_ms: u64) -> Option<Arc<str>> {
        self.forbidden_retry.failed(now_ms);
        let known = self.forbidden.as_ref().is_some_and(|forbidden| forbidden.said == *said);
        self.forbidden = Some(Forbidden { until: self.forbidden_retry.not_before, said: Arc::clone(said) });
        (!known).then(|| Arc::clone(said))
    }

    /// A write went through.
    pub(super) fn allowed(&mut self) {
        self.forbidden = None;
        self.forbidden_retry.reset();
    }

    /// No write before.
    pub(super) fn writes_from(&self) -> u64 {
        self.forbidden.as_ref().map_or(0, |forbidden| forbidden.until)
    }
}
