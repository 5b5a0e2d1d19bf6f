//! What all pages know of the cluster. Watches feed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;

use crate::history::Sample;
use crate::seen::{Condition, Kind, Migration, Quota};
use crate::table::{Change, Table};

/// A watch that does not tell at present: what it told before may not be so any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// Since when, in seconds since the epoch.
    pub since: i64,
    /// Why, and what helps.
    pub why: String,
}

#[derive(Debug, Default)]
pub struct Model {
    cluster: String,
    namespaced: Table<Quota>,
    clustered: Table<Quota>,
    native: Table<Quota>,
    migrations: Table<Migration>,
    installation: Vec<Condition>,
    interrupted: BTreeMap<String, Interruption>,
    missing: BTreeSet<String>,
    notes: BTreeSet<String>,
    record: Option<i64>,
}

impl Model {
    /// Nothing is known yet. `cluster` tells people which one it is.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self { cluster: cluster.to_owned(), ..Self::default() }
    }

    /// What a bundle has that was taken at this second of the epoch: nothing of it will change. `name` is that of its file.
    #[must_use]
    pub fn of_record(name: &str, taken: i64) -> Self {
        Self { record: Some(taken), ..Self::new(name) }
    }

    /// What is wrong with the installation, as the `AAQ` says.
    pub fn set_installation(&mut self, wrong: Vec<Condition>) {
        self.installation = wrong;
    }

    /// Takes over what a watch of quotas tells.
    pub fn on_quota(&mut self, kind: Kind, change: Change<Quota>, now: i64) {
        let table = match kind {
            Kind::Namespaced => &mut self.namespaced,
            Kind::Cluster => &mut self.clustered,
            Kind::Native => &mut self.native,
        };
        table.apply(change, |known, mut quota| {
            quota.history = known.map(|known| known.history).unwrap_or_default();
            let percent = quota.fullest().map_or(0, |line| line.percent());
            let number = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
            quota.history.add(Sample { at: now, percent: number(percent), held: number(quota.held) });
            quota
        });
    }

    /// Takes over what a watch of migrations tells.
    pub fn on_migration(&mut self, change: Change<Migration>) {
        self.migrations.apply(change, |_, migration| migration);
    }

    /// A watch was interrupted, or tells again.
    pub fn set_interruption(&mut self, what: &str, interruption: Option<Interruption>) {
        match interruption {
            Some(interruption) => drop(self.interrupted.insert(what.to_owned(), interruption)),
            None => drop(self.interrupted.remove(what)),
        }
    }

    /// Since when a watch is interrupted; `None`: it tells.
    #[must_use]
    pub fn interrupted_since(&self, what: &str) -> Option<i64> {
        self.interrupted.get(what).map(|interruption| interruption.since)
    }

    /// A right is missing, so that something is not shown, or it is there now.
    pub fn set_missing(&mut self, right: &str, is_missing: bool) {
        match is_missing {
            true => self.missing.insert(right.to_owned()),
            false => self.missing.remove(right),
        };
    }

    /// What a reader has to know of what is shown, or does not have to know any more.
    pub fn set_note(&mut self, note: &str, is_so: bool) {
        match is_so {
            true => self.notes.insert(note.to_owned()),
            false => self.notes.remove(note),
        };
    }

    /// When it was taken, if it is a bundle.
    pub(crate) const fn record(&self) -> Option<i64> {
        self.record
    }

    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    pub(crate) fn installation(&self) -> &[Condition] {
        &self.installation
    }

    pub(crate) fn quota(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Quota> {
        self.table(kind).get(namespace, name)
    }

    pub(crate) fn quotas(&self) -> impl Iterator<Item = (Kind, &str, &str, &Quota)> {
        let rows = |kind: Kind| {
            let rows = self.table(kind).iter();
            rows.map(move |((namespace, name), quota)| (kind, namespace.as_str(), name.as_str(), quota))
        };
        rows(Kind::Namespaced).chain(rows(Kind::Cluster)).chain(rows(Kind::Native))
    }

    pub(crate) const fn migrations(&self) -> &Table<Migration> {
        &self.migrations
    }

    pub(crate) const fn interrupted(&self) -> &BTreeMap<String, Interruption> {
        &self.interrupted
    }

    pub(crate) fn missing(&self) -> impl Iterator<Item = &str> {
        self.missing.iter().map(String::as_str)
    }

    pub(crate) fn notes(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }

    /// Whether the quotas were listed once, or cannot be.
    pub(crate) const fn is_read(&self) -> bool {
        self.namespaced.is_complete()
    }

    const fn table(&self, kind: Kind) -> &Table<Quota> {
        match kind {
            Kind::Namespaced => &self.namespaced,
            Kind::Cluster => &self.clustered,
            Kind::Native => &self.native,
        }
    }
}

/// The model, with a signal for each change. Clones share it.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    model: RwLock<Model>,
    changed: watch::Sender<u64>,
}

impl Shared {
    #[must_use]
    pub fn new(model: Model) -> Self {
        Self(Arc::new(Inner { model: RwLock::new(model), changed: watch::Sender::new(0) }))
    }

    /// Changes it, and tells.
    pub fn change(&self, change: impl FnOnce(&mut Model)) {
        change(&mut self.0.model.write());
        self.0.changed.send_modify(|version| *version += 1);
    }

    /// Reads it.
    pub fn look<T>(&self, look: impl FnOnce(&Model) -> T) -> T {
        look(&self.0.model.read())
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }
}
