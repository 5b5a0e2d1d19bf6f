//! Pauses that administrators have ordered, and in which order and how fast those go that wait meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::{Pause, PauseError, read_pause};
use sluice_engine::{PodId, Uid, WaitKey};
use sluice_index::{NamespaceId, PodRecord};

use crate::config::Moment;

const SECOND_US: u64 = 1_000_000;

/// What a pause is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All namespaces that have no pause of their own: the `AAQ` says so.
    All,
    One(NamespaceId),
}

/// An object with the annotation of a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    pub name: Arc<str>,
    pub uid: Uid,
    /// What the annotation says; an error is no pause.
    pub said: Result<Pause, PauseError>,
}

impl Paused {
    /// Reads it; `None`: there is no annotation, or its pause has ended.
    pub fn read(
        name: &str,
        uid: Uid,
        annotations: Option<&BTreeMap<String, String>>,
        now: Moment,
    ) -> Option<Self> {
        let said = read_pause(annotations, time(now)).transpose()?;
        Some(Self { name: name.into(), uid, said })
    }

    /// Of an object with this metadata.
    pub fn of(meta: &ObjectMeta, now: Moment) -> Option<Self> {
        let uid = Uid::parse(meta.uid.as_deref().unwrap_or_default());
        Self::read(meta.name.as_deref().unwrap_or_default(), uid, meta.annotations.as_ref(), now)
    }
}

/// Those that wait in the scope of a pause.
#[derive(Debug, Default)]
struct Line {
    /// In their order. Some may go already, or wait in another line.
    pods: BTreeMap<WaitKey, PodId>,
    /// When the next one goes (microseconds).
    next_us: u64,
}

/// Invariant: each pod that waits where a pause is in force is in the line of that pause, and the lines of pauses that have
/// ended are gone. Others may be in a line too: the caller looks at each that is [due](Self::due).
#[derive(Debug, Default)]
pub struct Pauses {
    known: BTreeMap<Scope, Paused>,
    lines: BTreeMap<Scope, Line>,
}

impl Pauses {
    /// What an object says now. Returns whether another pause is in force: then all that wait there have to
    /// [wait](Self::wait) anew.
    pub fn set(&mut self, scope: Scope, paused: Option<Paused>) -> bool {
        let in_force = |paused: &Option<Paused>| paused.as_ref().and_then(|paused| paused.said.clone().ok());
        let now = in_force(&paused);
        let before = match paused {
            Some(paused) => self.known.insert(scope, paused),
            None => self.known.remove(&scope),
        };
        let is_other = in_force(&before) != now;
        if is_other {
            self.lines.remove(&scope);
        }
        is_other
    }

    /// What is known of an object.
    pub fn get(&self, scope: Scope) -> Option<&Paused> {
        self.known.get(&scope)
    }

    /// Objects with a pause, or with one that cannot be read.
    pub fn scopes(&self) -> impl Iterator<Item = Scope> {
        self.known.keys().copied()
    }

    /// The pause that is in force in a namespace that is targeted.
    pub fn of(&self, namespace: NamespaceId) -> Option<(Scope, Pause)> {
        [Scope::One(namespace), Scope::All]
            .into_iter()
            .find_map(|scope| Some((scope, self.known.get(&scope)?.said.clone().ok()?)))
    }

    /// The pod waits in this namespace: if that is paused, it has its place among those that go.
    pub fn wait(&mut self, namespace: NamespaceId, key: &WaitKey, id: PodId) {
        if let Some((scope, _)) = self.of(namespace) {
            self.lines.entry(scope).or_default().pods.insert(key.clone(), id);
        }
    }

    /// The pod, as it was when it came to wait, waits no more, or anew.
    pub fn leave(&mut self, record: &PodRecord) {
        if self.lines.is_empty() {
            return;
        }
        let key = record.wait_key();
        for scope in [Scope::One(record.namespace), Scope::All] {
            if let Some(line) = self.lines.get_mut(&scope) {
                line.pods.remove(&key);
            }
        }
    }

    /// The first of a line that one of may go now.
    pub fn due(&self, scope: Scope, now: Moment) -> Option<(WaitKey, PodId)> {
        let line = self.lines.get(&scope).filter(|line| line.next_us <= now_us(now))?;
        line.pods.first_key_value().map(|(key, id)| (key.clone(), *id))
    }

    /// The first of a line waits no more.
    pub fn pass(&mut self, scope: Scope) {
        if let Some(line) = self.lines.get_mut(&scope) {
            line.pods.pop_first();
        }
    }

    /// The first of a line goes; the next one later.
    pub fn went(&mut self, scope: Scope, now: Moment) {
        self.pass(scope);
        let rate =
            self.known.get(&scope).and_then(|paused| paused.said.as_ref().ok()).map(|pause| pause.rate);
        if let Some((line, rate)) = self.lines.get_mut(&scope).zip(rate) {
            line.next_us = now_us(now) + SECOND_US / u64::from(rate.max(1));
        }
    }

    /// Takes those out whose end has come.
    pub fn take_ended(&mut self, now: Moment) -> Vec<(Scope, Paused)> {
        let has_ended = |paused: &Paused| paused.said.as_ref().is_ok_and(|pause| pause.until <= time(now));
        let ended = self.known.iter().filter(|(_, paused)| has_ended(paused)).map(|(scope, _)| *scope);
        let ended: Vec<_> = ended.collect();
        let take = |scope: Scope| {
            self.lines.remove(&scope);
            Some((scope, self.known.remove(&scope)?))
        };
        ended.into_iter().filter_map(take).collect()
    }

    /// Forgets the namespaces that are gone: their handle may be another one's.
    pub fn keep_only(&mut self, is_there: impl Fn(NamespaceId) -> bool) {
        let is_kept = |scope: &Scope| match scope {
            Scope::All => true,
            Scope::One(namespace) => is_there(*namespace),
        };
        self.known.retain(|scope, _| is_kept(scope));
        self.lines.retain(|scope, _| is_kept(scope));
    }

    pub fn ends(&self) -> impl Iterator<Item = Timestamp> {
        self.known.values().filter_map(|paused| paused.said.as_ref().ok()).map(|pause| pause.until)
    }

    /// When the next pause ends, or the next pod goes; of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self, now: Moment, is_leading: bool) -> Option<u64> {
        let left_ms = |end: Timestamp| u64::try_from(end.as_millisecond() - now.unix_ms).unwrap_or(0);
        let end = self.ends().map(left_ms).min().map(|left| now.mono_ms.saturating_add(left));
        let lines = self.lines.values().filter(|line| is_leading && !line.pods.is_empty());
        let next = lines.map(|line| line.next_us.div_ceil(1_000)).min();
        end.into_iter().chain(next).min()
    }
}

#[cfg(test)]
impl Pauses {
    /// So many are in lines.
    pub fn in_line(&self) -> usize {
        self.lines.values().map(|line| line.pods.len()).sum()
    }
}

fn time(now: Moment) -> Timestamp {
    Timestamp::from_millisecond(now.unix_ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

const fn now_us(now: Moment) -> u64 {
    now.mono_ms.saturating_mul(1_000)
}
