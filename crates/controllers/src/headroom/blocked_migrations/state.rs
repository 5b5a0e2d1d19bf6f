//! What is remembered of blocked migrations, between what is seen and what is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::BlockedConfig;
use super::messages::Summary;
use super::namespace_state::NamespaceState;
use crate::gate::Moment;

/// Counts since they were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Migrations that became rejected by a quota.
    pub rejected: u64,
    /// Migrations that were told that head-room is not enough.
    pub not_enough: u64,
    /// Writes that only wake KubeVirt's controller.
    pub nudges: u64,
    /// Writes that are refused.
    pub forbidden: u64,
}

/// Everything that is remembered. It is asked for actions and told how they went.
#[derive(Debug)]
pub struct State {
    pub(super) config: BlockedConfig,
    seed: u64,
    pub(super) leading: bool,
    namespaces: BTreeMap<Arc<str>, NamespaceState>,
    pub(super) dirty: BTreeSet<Arc<str>>,
    timers: BTreeSet<(u64, Arc<str>)>,
    /// Namespaces whose summary changed.
    told_anew: BTreeSet<Arc<str>>,
    /// What happened since it was last asked for.
    pub stats: Stats,
}

impl State {
    /// Nothing was seen yet. `seed` spreads the waits of several processes.
    #[must_use]
    pub fn new(config: BlockedConfig, seed: u64) -> Self {
        Self {
            config,
            seed,
            leading: false,
            namespaces: BTreeMap::new(),
            dirty: BTreeSet::new(),
            timers: BTreeSet::new(),
            told_anew: BTreeSet::new(),
            stats: Stats::default(),
        }
    }

    /// Begins to decide. `namespaces`: all in which there is something to look at.
    pub fn lead(&mut self, namespaces: impl IntoIterator<Item = Arc<str>>) {
        self.leading = true;
        self.dirty.extend(namespaces);
    }

    /// Something changed in these namespaces.
    pub fn see(&mut self, namespaces: impl IntoIterator<Item = Arc<str>>) {
        if self.leading {
            self.dirty.extend(namespaces);
        }
    }

    /// The namespaces of which something is remembered.
    pub fn known(&self) -> impl Iterator<Item = &Arc<str>> {
        self.namespaces.keys()
    }

    /// When [`State::plan`] has something to do even if nothing is seen: milliseconds from `now`.
    #[must_use]
    pub fn next_due_ms(&self, now: Moment) -> Option<u64> {
        if !self.dirty.is_empty() {
            return Some(0);
        }
        self.timers.first().map(|(at, _)| at.saturating_sub(now.mono_ms))
    }

    /// How many migrations wait that a quota rejected, how many of them lack head-room, and in how many namespaces writing is
    /// refused.
    #[must_use]
    pub fn counts(&self) -> [usize; 3] {
        let lacking = |namespace_state: &NamespaceState| {
            namespace_state.summary.not_enough.as_ref().map_or(0, |(_, count)| *count)
        };
        self.namespaces.values().fold([0; 3], |[blocked, not_enough, forbidden], namespace_state| {
            [
                blocked + namespace_state.blocked.len(),
                not_enough + lacking(namespace_state),
                forbidden + usize::from(namespace_state.forbidden.is_some()),
            ]
        })
    }

    /// What is to be said about a namespace.
    #[must_use]
    pub fn summary(&self, namespace: &str) -> Summary {
        self.namespaces
            .get(namespace)
            .map(|namespace_state| namespace_state.summary.clone())
            .unwrap_or_default()
    }

    /// The namespaces about which something else is to be said than when this was last asked.
    pub fn take_told_anew(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.told_anew)
    }

    pub(super) fn pass_time(&mut self, now: Moment) {
        while let Some((at, namespace)) = self.timers.first().cloned().filter(|(at, _)| *at <= now.mono_ms) {
            self.timers.remove(&(at, Arc::clone(&namespace)));
            if let Some(namespace_state) = self.namespaces.get_mut(&namespace) {
                namespace_state.timer = None;
            }
            self.dirty.insert(namespace);
        }
    }

    /// Takes what is remembered of a namespace, to look at it.
    pub(super) fn take_namespace(&mut self, namespace: &Arc<str>) -> NamespaceState {
        let known = self.namespaces.remove(namespace);
        let mut namespace_state =
            known.unwrap_or_else(|| NamespaceState::new(&self.config, self.seed_of(namespace)));
        if let Some(at) = namespace_state.timer.take() {
            self.timers.remove(&(at, Arc::clone(namespace)));
        }
        namespace_state
    }

    /// Puts it back. `due`: when to look again.
    pub(super) fn put_namespace(
        &mut self,
        namespace: &Arc<str>,
        mut namespace_state: NamespaceState,
        due: Option<u64>,
        summary: Summary,
    ) {
        if namespace_state.summary != summary {
            namespace_state.summary = summary;
            self.told_anew.insert(Arc::clone(namespace));
        }
        if let Some(at) = due {
            namespace_state.timer = Some(at);
            self.timers.insert((at, Arc::clone(namespace)));
        }
        if !namespace_state.is_idle() {
            self.namespaces.insert(Arc::clone(namespace), namespace_state);
        }
    }

    pub(super) fn seed_of(&self, namespace: &str) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        namespace.hash(&mut hasher);
        self.seed ^ hasher.finish()
    }
}
