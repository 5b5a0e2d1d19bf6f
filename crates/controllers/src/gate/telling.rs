//! What pods are told, and when. Kept is who has news, not the words: these are made when there is a turn, so a pod hears how
//! things are then, nothing is lost, and a flood of changes makes no flood of events.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use sluice_engine::{ClassId, PodId, Uid};

use super::action::{About, Release, Tell};
use super::config::Moment;
use super::message::{exceeded, reasons};
use super::stage::{Stage, Stuck, backoff_ms};
use super::state::State;

/// Events that are written at a time.
const AT_A_TIME: usize = 4;
/// Pods that are looked at in one round; the others in the next.
const LOOKS: usize = 256;
/// A pod that was told hears other words so much later, and each time twice that (milliseconds).
const OTHER_WORDS_MS: u64 = 10_000;
/// That takes no longer than so (milliseconds); client-go allows one event of an object in this time
/// (`k8s.io/client-go/tools/record/events_cache.go`).
const OTHER_WORDS_AT_MOST_MS: u64 = 300_000;
/// The same words are said again after this time (milliseconds), for API servers drop events after an hour (`--event-ttl`).
const SAME_WORDS_MS: u64 = 1_800_000;
/// An event that could not be written is tried again so much later, and each time twice that (milliseconds).
const FAILED_MS: u64 = 1_000;

/// Which pods of a class have news.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    /// The first of them: the reason has changed. The rest of a long queue hears it when it is its turn to hear anything.
    First,
    /// All: none of them was told anything yet.
    All,
}

/// Who was told what, and who is to be told something.
#[derive(Debug, Default)]
pub(super) struct Telling {
    pods: HashMap<PodId, Told>,
    due: BTreeSet<(u64, PodId)>,
    under_way: usize,
}

#[derive(Debug, Default)]
struct Told {
    /// When it is to be looked at again (milliseconds); otherwise when there is news.
    due_ms: Option<u64>,
    /// When it was told something (milliseconds).
    at_ms: u64,
    /// What; 0 before the first time.
    words: u64,
    /// How often it was told other words.
    times: u32,
    /// How often in a row that failed.
    failures: u32,
}

impl Told {
    /// When it may hear other words.
    fn other_words_ms(&self) -> u64 {
        match self.times {
            0 => 0,
            times => self.at_ms + (OTHER_WORDS_MS << (times - 1).min(8)).min(OTHER_WORDS_AT_MOST_MS),
        }
    }
}

impl Telling {
    /// There may be something new to tell the pod.
    pub fn news(&mut self, id: PodId, now: Moment) {
        let told = self.pods.entry(id).or_default();
        let due = told.other_words_ms().max(now.mono_ms);
        if told.due_ms.is_none_or(|at| at > due) {
            self.later(id, due);
        }
    }

    /// Nothing more is to be told to the pod.
    pub fn forget(&mut self, id: PodId) {
        if let Some(told) = self.pods.remove(&id) {
            told.due_ms.map(|at| self.due.remove(&(at, id)));
        }
    }

    /// When there is a turn for a pod (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at).filter(|_| self.under_way < AT_A_TIME)
    }

    fn later(&mut self, id: PodId, due_ms: u64) {
        if let Some(told) = self.pods.get_mut(&id) {
            told.due_ms.replace(due_ms).map(|at| self.due.remove(&(at, id)));
            self.due.insert((due_ms, id));
        }
    }

    fn take_due(&mut self, now: Moment) -> Option<PodId> {
        self.next_due_ms().filter(|at| *at <= now.mono_ms)?;
        self.due.pop_first().map(|(_, id)| id)
    }
}

impl State {
    /// Pods of the class may have something new to hear.
    pub(super) fn class_has_news(&mut self, class: ClassId, whom: News, now: Moment) {
        let Some(class) = self.book.class(class) else { return };
        let most = match whom {
            News::First => self.config.retold_pods,
            News::All => usize::MAX,
        };
        for pod in class.pods().take(most) {
            self.telling.news(pod, now);
        }
    }

    /// What is told now.
    pub(super) fn plan_tells(&mut self, now: Moment) -> Vec<Tell> {
        let mut tells = std::mem::take(&mut self.announced);
        for _ in 0..LOOKS {
            let Some(id) = self.telling.take_due(now) else { break };
            let words = self.words_for(id);
            let Some(told) = self.telling.pods.get_mut(&id) else { continue };
            told.due_ms = None;
            let Some((reason, message)) = words else { continue };
            let hash = hash_of(reason, &message);
            let again_ms = told.at_ms + SAME_WORDS_MS;
            if told.words == hash && now.mono_ms < again_ms {
                self.telling.later(id, again_ms);
                continue;
            }
            told.times = if told.words == hash { told.times } else { told.times.saturating_add(1) };
            (told.words, told.at_ms) = (hash, now.mono_ms);
            self.telling.later(id, now.mono_ms + SAME_WORDS_MS);
            let Some(pod) = self.address(id) else { continue };
            self.telling.under_way += 1;
            let about = About::Pod(id);
            let Release { namespace, name, uid, .. } = pod;
            tells.push(Tell { about, namespace, name: name.into(), uid, reason, message });
        }
        tells
    }

    /// An event was written, or could not be.
    pub(super) fn settle_tell(&mut self, about: About, uid: &Uid, is_written: bool, now: Moment) {
        let About::Pod(id) = about else { return };
        self.telling.under_way = self.telling.under_way.saturating_sub(1);
        if self.pods.get(id).is_none_or(|record| record.uid != *uid) {
            return;
        }
        let Some(told) = self.telling.pods.get_mut(&id) else { return };
        told.failures = if is_written { 0 } else { told.failures.saturating_add(1) };
        if !is_written {
            told.words = 0;
            let due_ms = now.mono_ms + backoff_ms(FAILED_MS, told.failures);
            self.telling.later(id, due_ms);
        }
    }

    /// The configuration has done something that a person should know.
    pub(super) fn tell_of_configuration(&mut self, name: &str, uid: Uid, message: String) {
        if self.leading {
            let (about, reason) = (About::Configuration, reasons::NO_LONGER_TARGETED);
            self.announced.push(Tell {
                about,
                namespace: Arc::from(""),
                name: name.into(),
                uid,
                reason,
                message,
            });
        }
    }

    /// What the pod is to be told as things are: the kind of reason and the sentence.
    fn words_for(&self, id: PodId) -> Option<(&'static str, String)> {
        let record = self.pods.get(id)?;
        let refused = || {
            let why = self.troubles.get(&id)?.refusal.as_deref()?;
            Some((reasons::REFUSED, format!("the API server refuses to release the pod: {why}")))
        };
        match self.stage(id) {
            Stage::Waiting(class) => self.words_for_class(*class),
            Stage::Stuck(Stuck::InvalidQuota(quota)) => {
                Some((reasons::INVALID_QUOTA, format!("held: {}", self.invalid_message(*quota))))
            }
            Stage::Stuck(Stuck::Unreadable(field)) => {
                Some((reasons::UNREADABLE, format!("held: {field}; correct the pod and create it again")))
            }
            Stage::Stuck(Stuck::BackingOff) | Stage::Assumed { .. } | Stage::Free { .. } => refused(),
            Stage::Counted { quotas, .. } if !quotas.is_empty() => {
                let field = record.unreadable.as_ref()?;
                Some((reasons::UNREADABLE, format!("counted with the largest amount there is: {field}")))
            }
            Stage::Counted { .. } | Stage::Foreign | Stage::Stuck(_) => None,
        }
    }

    fn words_for_class(&self, class: ClassId) -> Option<(&'static str, String)> {
        let reason = self.book.class(class)?.reason()?;
        let quota = self.quotas.get(reason.quota)?;
        let compiled = quota.compiled.as_ref().ok()?;
        // It may have gone since the class was looked at, and its handle may be another pod's.
        let waits = |pod: &PodId| matches!(self.stage(*pod), Stage::Waiting(_));
        let ahead = reason.behind.filter(waits).and_then(|pod| self.pods.get(pod));
        let behind = ahead.filter(|pod| pod.namespace == quota.namespace).map(|pod| &*pod.name);
        let kind = if behind.is_some() { reasons::QUEUED } else { reasons::EXCEEDED };
        Some((kind, exceeded(&quota.name, compiled, reason, behind)))
    }
}

fn hash_of(reason: &str, message: &str) -> u64 {
    let mut words = DefaultHasher::new();
    (reason, message).hash(&mut words);
    // 0 stands for nothing told.
    words.finish().max(1)
}
