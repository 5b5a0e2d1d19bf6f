//! What the reactive path and the sweep remember, between what is seen and what is done.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::config::ReactiveConfig;
use super::place::Place;
use super::stats::Stats;
use super::summary::Summary;
use crate::gate::Moment;

/// Everything that is remembered. It is asked for actions and told how they went.
#[derive(Debug)]
pub struct State {
    pub(super) config: ReactiveConfig,
    seed: u64,
    pub(super) leading: bool,
    pub(super) places: BTreeMap<Arc<str>, Place>,
    pub(super) dirty: BTreeSet<Arc<str>>,
    timers: BTreeSet<(u64, Arc<str>)>,
    /// Namespaces found when leading began: what is raised there is not waited for.
    pub(super) found: BTreeSet<Arc<str>>,
    pub(super) slots: Slots,
    pub(super) running: RunningMigrations,
    /// Namespaces of migrations that KubeVirt does not start yet.
    pub(super) limited: BTreeSet<Arc<str>>,
    /// Namespaces whose summary changed.
    told_anew: BTreeSet<Arc<str>>,
    /// What happened since it was last asked for.
    pub stats: Stats,
}

/// The windows that may be open at once.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) open: usize,
    queue: VecDeque<Arc<str>>,
    promised: BTreeSet<Arc<str>>,
}

impl Slots {
    /// Takes a slot; otherwise the namespace waits for its turn.
    pub(super) fn take(&mut self, namespace: &Arc<str>, place: &mut Place, most: usize) -> bool {
        if self.promised.remove(namespace) || self.open + self.promised.len() < most {
            place.queued = false;
            self.open += 1;
            return true;
        }
        if !place.queued {
            place.queued = true;
            self.queue.push_back(Arc::clone(namespace));
        }
        false
    }

    /// A slot is free: whose turn is it?
    pub(super) fn give_back(&mut self) -> Option<Arc<str>> {
        self.open = self.open.saturating_sub(1);
        self.promise()
    }

    fn promise(&mut self) -> Option<Arc<str>> {
        let next = self.queue.pop_front()?;
        self.promised.insert(Arc::clone(&next));
        Some(next)
    }

    /// The namespace had its turn. If it took no slot, the next one has.
    pub(super) fn passed(&mut self, namespace: &Arc<str>) -> Option<Arc<str>> {
        if self.promised.remove(namespace) { self.promise() } else { None }
    }
}

/// Migrations that count against KubeVirt's limits.
#[derive(Debug, Default)]
pub(super) struct RunningMigrations {
    pub(super) total: usize,
    by_node: HashMap<Arc<str>, usize>,
}

impl RunningMigrations {
    pub(super) fn away_from(&self, node: Option<&Arc<str>>) -> usize {
        node.and_then(|node| self.by_node.get(node)).copied().unwrap_or(0)
    }

    /// Replaces what a namespace has. Returns whether some ended.
    pub(super) fn replace(&mut self, old: &[Option<Arc<str>>], new: &[Option<Arc<str>>]) -> bool {
        for node in old {
            self.total = self.total.saturating_sub(1);
            let Some(node) = node else { continue };
            if let Some(count) = self.by_node.get_mut(node) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.by_node.remove(node);
                }
            }
        }
        for node in new {
            self.total += 1;
            if let Some(node) = node {
                *self.by_node.entry(Arc::clone(node)).or_default() += 1;
            }
        }
        old.iter().any(|node| !new.contains(node)) || new.len() < old.len()
    }
}

impl State {
    /// Nothing was seen yet. `seed` spreads the waits of several processes.
    #[must_use]
    pub fn new(config: ReactiveConfig, seed: u64) -> Self {
        Self {
            config,
            seed,
            leading: false,
            places: BTreeMap::new(),
            dirty: BTreeSet::new(),
            timers: BTreeSet::new(),
            found: BTreeSet::new(),
            slots: Slots::default(),
            running: RunningMigrations::default(),
            limited: BTreeSet::new(),
            told_anew: BTreeSet::new(),
            stats: Stats::default(),
        }
    }

    /// Begins to decide. `namespaces`: all in which there is something to look at. What is raised or expired there
    /// is what a predecessor left, and is not waited for.
    pub fn lead(&mut self, namespaces: impl IntoIterator<Item = Arc<str>>) {
        self.leading = true;
        self.found.extend(namespaces);
        self.dirty.extend(self.found.iter().cloned());
    }

    /// Something changed in these namespaces.
    pub fn see(&mut self, namespaces: impl IntoIterator<Item = Arc<str>>) {
        if self.leading {
            self.dirty.extend(namespaces);
        }
    }

    /// The namespaces of which something is remembered.
    pub fn known(&self) -> impl Iterator<Item = &Arc<str>> {
        self.places.keys()
    }

    /// When [`State::plan`] has something to do even if nothing is seen: milliseconds from `now`.
    #[must_use]
    pub fn next_due_ms(&self, now: Moment) -> Option<u64> {
        if !self.dirty.is_empty() {
            return Some(0);
        }
        self.timers.first().map(|(at, _)| at.saturating_sub(now.mono_ms))
    }

    /// How many migrations wait that a quota rejected, and how many of them lack head-room.
    #[must_use]
    pub fn blocked(&self) -> (usize, usize) {
        let lacking = |place: &Place| place.summary.not_enough.as_ref().map_or(0, |(_, count)| *count);
        self.places.values().fold((0, 0), |(blocked, not_enough), place| {
            (blocked + place.blocked.len(), not_enough + lacking(place))
        })
    }

    /// How many namespaces have a quota whose status somebody forbids to write.
    #[must_use]
    pub fn forbidden(&self) -> usize {
        self.places.values().filter(|place| place.forbidden.is_some()).count()
    }

    /// How many windows for rejected migrations are open.
    #[must_use]
    pub const fn open(&self) -> usize {
        self.slots.open
    }

    /// What is to be said about a namespace.
    #[must_use]
    pub fn summary(&self, namespace: &str) -> Summary {
        self.places.get(namespace).map(|place| place.summary.clone()).unwrap_or_default()
    }

    /// The namespaces about which something else is to be said than when this was last asked.
    pub fn take_told_anew(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.told_anew)
    }

    pub(super) fn pass_time(&mut self, now: Moment) {
        while let Some((at, namespace)) = self.timers.first().cloned().filter(|(at, _)| *at <= now.mono_ms) {
            self.timers.remove(&(at, Arc::clone(&namespace)));
            if let Some(place) = self.places.get_mut(&namespace) {
                place.timer = None;
            }
            self.dirty.insert(namespace);
        }
    }

    /// Takes what is remembered of a namespace, to look at it.
    pub(super) fn take_place(&mut self, namespace: &Arc<str>) -> Place {
        let known = self.places.remove(namespace);
        let mut place = known.unwrap_or_else(|| Place::new(&self.config, self.seed_of(namespace)));
        if let Some(at) = place.timer.take() {
            self.timers.remove(&(at, Arc::clone(namespace)));
        }
        place
    }

    /// Puts it back. `due`: when to look again.
    pub(super) fn put_place(
        &mut self,
        namespace: &Arc<str>,
        mut place: Place,
        due: Option<u64>,
        summary: Summary,
    ) {
        if place.summary != summary {
            place.summary = summary;
            self.told_anew.insert(Arc::clone(namespace));
        }
        if let Some(at) = due {
            place.timer = Some(at);
            self.timers.insert((at, Arc::clone(namespace)));
        }
        if !place.is_idle() {
            self.places.insert(Arc::clone(namespace), place);
        }
    }

    pub(super) fn seed_of(&self, namespace: &str) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        namespace.hash(&mut hasher);
        self.seed ^ hasher.finish()
    }
}
