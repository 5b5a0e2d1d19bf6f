//! What pods are told, and when. Kept is who has news, not the words: these are made when there is a turn, so a pod hears how
//! things are then, and a flood of changes makes no flood of events. What cannot be written is tried again.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use sluice_engine::{ClassId, PodId, Uid};
use sluice_index::NamespaceId;

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

/// With more namespaces at rest than these, those that have gone are dropped.
const MANY: usize = 1_024;

/// An event about something else than a pod is tried so often.
const ATTEMPTS: u32 = 8;

/// Who was told what, and who is to be told something.
#[derive(Debug, Default)]
pub(super) struct Telling {
    pods: HashMap<PodId, Told>,
    due: BTreeSet<(u64, PodId)>,
    turns: Turns,
    /// Where events cannot be written: how often in a row, and until when (milliseconds) none is tried.
    resting: HashMap<NamespaceId, (u32, u64)>,
    announced: BTreeMap<(u64, u64), Announced>,
    /// Those that are being written.
    announced_now: Vec<Announced>,
    /// The last turn was that of an announcement.
    announced_last: bool,
    next_number: u64,
    under_way: usize,
}

/// Pods that are to be told something now. Namespaces take turns, so that a crowd in one delays no other.
#[derive(Debug, Default)]
struct Turns {
    order: VecDeque<NamespaceId>,
    pods: HashMap<NamespaceId, VecDeque<PodId>>,
}

impl Turns {
    fn push(&mut self, namespace: NamespaceId, pod: PodId) {
        let pods = self.pods.entry(namespace).or_insert_with(|| {
            self.order.push_back(namespace);
            VecDeque::new()
        });
        pods.push_back(pod);
    }

    fn pop(&mut self) -> Option<(NamespaceId, PodId)> {
        let namespace = self.order.pop_front()?;
        let pods = self.pods.get_mut(&namespace)?;
        let pod = pods.pop_front();
        if pods.is_empty() {
            self.pods.remove(&namespace);
        } else {
            self.order.push_back(namespace);
        }
        Some((namespace, pod?))
    }
}

/// An event about a quota or the configuration.
#[derive(Debug)]
struct Announced {
    tell: Tell,
    failures: u32,
}

#[derive(Debug, Default)]
struct Told {
    /// When it is to be looked at again (milliseconds); otherwise when there is news.
    due_ms: Option<u64>,
    /// It has a place among the turns.
    has_turn: bool,
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
        if !told.has_turn && told.due_ms.is_none_or(|at| at > due) {
            self.later(id, due);
        }
    }

    /// Nothing more is to be told to the pod.
    pub fn forget(&mut self, id: PodId) {
        if let Some(told) = self.pods.remove(&id) {
            told.due_ms.map(|at| self.due.remove(&(at, id)));
        }
    }

    /// Tells of something else than a pod.
    pub fn announce(&mut self, tell: Tell) {
        self.announce_at(0, Announced { tell, failures: 0 });
    }

    fn announce_at(&mut self, due_ms: u64, announced: Announced) {
        self.next_number += 1;
        self.announced.insert((due_ms, self.next_number), announced);
    }

    /// When there is something to tell (milliseconds).
    pub fn next_due_ms(&self, now: Moment) -> Option<u64> {
        if self.under_way >= AT_A_TIME {
            return None;
        }
        if !self.turns.order.is_empty() {
            return Some(now.mono_ms);
        }
        let announced = self.announced.first_key_value().map(|((at, _), _)| *at);
        self.due.first().map(|(at, _)| *at).into_iter().chain(announced).min()
    }

    fn later(&mut self, id: PodId, due_ms: u64) {
        if let Some(told) = self.pods.get_mut(&id) {
            told.due_ms.replace(due_ms).map(|at| self.due.remove(&(at, id)));
            self.due.insert((due_ms, id));
        }
    }
}

impl State {
    /// The reason for holding the class is another one: its first pods hear it. The rest of a long queue hears it when it is
    /// its turn to hear anything.
    pub(super) fn class_has_news(&mut self, class: ClassId, now: Moment) {
        let Some(class) = self.queue.class(class) else { return };
        for pod in class.pods().take(self.config.retold_pods) {
            self.telling.news(pod, now);
        }
    }

    /// What is told now.
    pub(super) fn plan_tells(&mut self, now: Moment) -> Vec<Tell> {
        let mut tells = Vec::new();
        self.give_turns(now);
        for _ in 0..LOOKS {
            let is_announced =
                self.telling.announced.first_key_value().is_some_and(|((at, _), _)| *at <= now.mono_ms);
            let has_turns = !self.telling.turns.order.is_empty();
            if self.telling.under_way >= AT_A_TIME || !(is_announced || has_turns) {
                break;
            }
            // Both kinds in turn.
            self.telling.announced_last = is_announced && !(has_turns && self.telling.announced_last);
            let tell = if self.telling.announced_last {
                self.plan_announcement()
            } else {
                let turn = self.telling.turns.pop();
                turn.and_then(|(namespace, id)| self.plan_tell(namespace, id, now))
            };
            if let Some(tell) = tell {
                self.telling.under_way += 1;
                tells.push(tell);
            }
        }
        tells
    }

    /// Those whose time has come take their place behind others of their namespace.
    fn give_turns(&mut self, now: Moment) {
        for _ in 0..LOOKS {
            let Some((_, id)) = self.telling.due.first().copied().filter(|(at, _)| *at <= now.mono_ms) else {
                break;
            };
            self.telling.due.pop_first();
            let Some(told) = self.telling.pods.get_mut(&id) else { continue };
            told.due_ms = None;
            if let Some(record) = self.pods.get(id) {
                told.has_turn = true;
                self.telling.turns.push(record.namespace, id);
            }
        }
    }

    fn plan_announcement(&mut self) -> Option<Tell> {
        let (_, announced) = self.telling.announced.pop_first()?;
        let tell = announced.tell.clone();
        self.telling.announced_now.push(announced);
        Some(tell)
    }

    fn plan_tell(&mut self, namespace: NamespaceId, id: PodId, now: Moment) -> Option<Tell> {
        let words = self.words_for(id);
        let rests_until = self
            .telling
            .resting
            .get(&namespace)
            .map(|(_, until)| *until)
            .filter(|until| *until > now.mono_ms);
        let told = self.telling.pods.get_mut(&id).filter(|told| told.has_turn)?;
        told.has_turn = false;
        let Some((reason, message)) = words else {
            if matches!(self.stage(id), Stage::Waiting(_)) {
                // It was not looked at yet.
                self.telling.later(id, now.mono_ms + FAILED_MS);
            }
            return None;
        };
        if let Some(until) = rests_until {
            self.telling.later(id, until);
            return None;
        }
        let hash = hash_of(reason, &message);
        let again_ms = told.at_ms + SAME_WORDS_MS;
        if told.words == hash && now.mono_ms < again_ms {
            self.telling.later(id, again_ms);
            return None;
        }
        told.times += u32::from(told.words != hash);
        (told.words, told.at_ms) = (hash, now.mono_ms);
        self.telling.later(id, now.mono_ms + SAME_WORDS_MS);
        let Release { namespace, name, uid, .. } = self.address(id)?;
        Some(Tell { about: About::Pod(id), namespace, name: name.into(), uid, reason, message })
    }

    /// An event was written, or could not be.
    pub(super) fn settle_tell(&mut self, tell: Tell, is_written: bool, now: Moment) {
        self.telling.under_way = self.telling.under_way.saturating_sub(1);
        let About::Pod(id) = tell.about else { return self.settle_announcement(&tell, is_written, now) };
        let Some(record) = self.pods.get(id).filter(|record| record.uid == tell.uid) else { return };
        if is_written {
            self.telling.resting.remove(&record.namespace);
        } else {
            let (failures, until) = self.telling.resting.entry(record.namespace).or_default();
            *failures = failures.saturating_add(1);
            *until = now.mono_ms + backoff_ms(FAILED_MS, *failures);
            // Namespaces that have gone meanwhile.
            let namespaces = &self.namespaces;
            if self.telling.resting.len() > MANY {
                self.telling.resting.retain(|namespace, _| namespaces.get(*namespace).is_some());
            }
        }
        let Some(told) = self.telling.pods.get_mut(&id) else { return };
        told.failures = if is_written { 0 } else { told.failures.saturating_add(1) };
        if !is_written {
            told.words = 0;
            told.times = told.times.saturating_sub(1);
            let due_ms = now.mono_ms + backoff_ms(FAILED_MS, told.failures);
            self.telling.later(id, due_ms);
        }
    }

    fn settle_announcement(&mut self, tell: &Tell, is_written: bool, now: Moment) {
        let now_written = &mut self.telling.announced_now;
        let Some(at) = now_written.iter().position(|announced| announced.tell == *tell) else { return };
        let mut announced = now_written.swap_remove(at);
        announced.failures += 1;
        if !is_written && announced.failures < ATTEMPTS {
            let due_ms = now.mono_ms + backoff_ms(FAILED_MS, announced.failures);
            self.telling.announce_at(due_ms, announced);
        }
    }

    /// The configuration has done something that a person should know.
    pub(super) fn tell_of_configuration(&mut self, name: &str, uid: Uid, message: String) {
        let (about, reason) = (About::Configuration, reasons::NO_LONGER_TARGETED);
        let (namespace, name) = (Arc::from(""), name.into());
        self.telling.announce(Tell { about, namespace, name, uid, reason, message });
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
        let reason = self.queue.class(class)?.reason()?;
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
