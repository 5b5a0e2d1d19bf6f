//! What `ApplicationAwareResourceQuota`s want of their managed quotas.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sluice_engine::managed::{is_countable, managed};
use sluice_engine::quota_spec::compile;
use sluice_engine::{Quantity, ScopeRequirementText, Scopes, Uid};
use sluice_index::{ArqWire, Key, ListNumber};

/// What is wanted of a managed quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// `spec.hard`; not empty.
    pub hard: BTreeMap<Arc<str>, Quantity>,
    /// `spec.scopes`.
    pub listed: Vec<String>,
    /// `spec.scopeSelector.matchExpressions`.
    pub selected: Vec<ScopeRequirementText>,
    /// Both together.
    pub scopes: Scopes,
}

/// A quota with keys for a managed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arq {
    /// Its identity.
    pub uid: Uid,
    /// It is being deleted.
    pub deleting: bool,
    /// What it wants; `None` if its specification is invalid.
    pub limits: Option<Limits>,
}

impl Arq {
    /// `None`: it wants no managed quota.
    fn read(wire: &ArqWire) -> Option<Self> {
        if !wire.spec.hard.iter().any(|(key, _)| is_countable(key)) {
            return None;
        }
        let uid = Uid::parse(wire.metadata.uid.as_deref().unwrap_or_default());
        let deleting = wire.metadata.deletion_timestamp.is_some();
        let read = wire.spec.raw().ok().and_then(|raw| Some((compile(&raw).ok()?, raw)));
        let Some((compiled, raw)) = read else { return Some(Self { uid, deleting, limits: None }) };
        let hard: BTreeMap<_, _> =
            managed(&compiled).map(|entry| (Arc::clone(&entry.key), entry.hard)).collect();
        if hard.is_empty() {
            return None;
        }
        let selected = raw.scope_selector.unwrap_or_default();
        let limits = Limits { hard, listed: raw.scopes, selected, scopes: compiled.scopes };
        Some(Self { uid, deleting, limits: Some(limits) })
    }
}

/// All quotas with keys for a managed one.
#[derive(Debug, Default)]
pub(super) struct Arqs {
    by_key: HashMap<Key, Known>,
    list: ListNumber,
}

#[derive(Debug)]
struct Known {
    arq: Arq,
    /// `metadata.generation`, which grows with each change of the specification.
    generation: Option<i64>,
    list: ListNumber,
}

impl Arqs {
    pub fn get(&self, key: &Key) -> Option<&Arq> {
        self.by_key.get(key).map(|known| &known.arq)
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.by_key.keys()
    }

    /// A list begins.
    pub const fn begin_list(&mut self) {
        self.list.begin();
    }

    /// The list is complete. Returns the quotas that were not in it, which are forgotten.
    pub fn end_list(&mut self) -> Vec<Key> {
        let list = self.list;
        let gone = self.by_key.iter().filter(|(_, known)| known.list != list);
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        for key in &gone {
            self.by_key.remove(key);
        }
        gone
    }

    /// A quota was seen. Returns whether it wants something else than before.
    pub fn upsert(&mut self, key: &Key, wire: &ArqWire) -> bool {
        let (list, generation) = (self.list, wire.metadata.generation);
        if let Some(known) = self.by_key.get_mut(key) {
            known.list = list;
            let uid = Uid::parse(wire.metadata.uid.as_deref().unwrap_or_default());
            let deleting = wire.metadata.deletion_timestamp.is_some();
            if generation.is_some()
                && (generation, &uid, deleting) == (known.generation, &known.arq.uid, known.arq.deleting)
            {
                return false;
            }
        }
        let Some(arq) = Arq::read(wire) else { return self.by_key.remove(key).is_some() };
        let changed = self.get(key) != Some(&arq);
        self.by_key.insert(key.clone(), Known { arq, generation, list });
        changed
    }

    /// A quota is gone. Returns whether it was known.
    pub fn remove(&mut self, key: &Key) -> bool {
        self.by_key.remove(key).is_some()
    }
}
