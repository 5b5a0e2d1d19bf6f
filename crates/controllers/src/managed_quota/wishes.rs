//! What quotas want of their managed quotas.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use sluice_engine::managed::{is_countable, managed};
use sluice_engine::quota_spec::compile;
use sluice_engine::{Quantity, ScopeRequirementText, Scopes, Uid};
use sluice_index::{AcrqWire, ArqWire, Key, Listed, QuotaSpecWire, Source};

/// What is wanted of a managed quota.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limits {
    /// `hard`; not empty.
    pub hard: BTreeMap<Arc<str>, Quantity>,
    /// `scopes`.
    pub listed: Vec<String>,
    /// `scopeSelector.matchExpressions`.
    pub selected: Vec<ScopeRequirementText>,
    /// Both together.
    pub scopes: Scopes,
    /// The namespaces; nothing for a quota of one.
    pub selector: Value,
}

/// A quota with keys for a managed one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wish {
    pub uid: Uid,
    /// It is being deleted.
    pub deleting: bool,
    /// What it wants; `None` if its specification is invalid.
    pub limits: Option<Limits>,
}

/// A quota that may have a managed one.
pub(super) trait Quota {
    fn meta(&self) -> &ObjectMeta;

    /// Its limits; `None` if they cannot be read.
    fn spec(&self) -> Option<Cow<'_, QuotaSpecWire>>;

    /// The namespaces that it selects, as it is written.
    fn selector(&self) -> Value;
}

impl Quota for ArqWire {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn spec(&self) -> Option<Cow<'_, QuotaSpecWire>> {
        Some(Cow::Borrowed(&self.spec))
    }
    fn selector(&self) -> Value {
        Value::Null
    }
}

impl Quota for AcrqWire {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn spec(&self) -> Option<Cow<'_, QuotaSpecWire>> {
        self.read_spec().ok().map(|spec| Cow::Owned(spec.quota))
    }
    fn selector(&self) -> Value {
        self.spec.get("selector").cloned().unwrap_or_default()
    }
}

/// Namespace and name.
pub(super) fn key_of(meta: &ObjectMeta) -> Key {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    Key { namespace: text(&meta.namespace), name: text(&meta.name) }
}

fn identity(meta: &ObjectMeta) -> (Uid, bool) {
    (Uid::parse(meta.uid.as_deref().unwrap_or_default()), meta.deletion_timestamp.is_some())
}

impl Wish {
    /// `None`: it wants no managed quota.
    fn read(quota: &impl Quota) -> Option<Self> {
        let (uid, deleting) = identity(quota.meta());
        let unreadable = Self { uid: uid.clone(), deleting, limits: None };
        let Some(spec) = quota.spec() else { return Some(unreadable) };
        if !spec.hard.iter().any(|(key, _)| is_countable(key)) {
            return None;
        }
        let read = spec.raw().ok().and_then(|raw| Some((compile(&raw).ok()?, raw)));
        let Some((compiled, raw)) = read else { return Some(unreadable) };
        let hard: BTreeMap<_, _> =
            managed(&compiled).map(|entry| (Arc::clone(&entry.key), entry.hard)).collect();
        if hard.is_empty() {
            return None;
        }
        let selected = raw.scope_selector.unwrap_or_default();
        let (scopes, selector) = (compiled.scopes, quota.selector());
        Some(Self {
            uid,
            deleting,
            limits: Some(Limits { hard, listed: raw.scopes, selected, scopes, selector }),
        })
    }
}

/// All quotas with keys for a managed one.
#[derive(Debug, Default)]
pub(super) struct Wishes(Listed<Key, Known>);

#[derive(Debug)]
struct Known {
    wish: Wish,
    /// `metadata.generation`, which grows with each change of the specification.
    generation: Option<i64>,
}

impl Wishes {
    pub fn get(&self, key: &Key) -> Option<&Wish> {
        self.0.get(key).map(|known| &known.wish)
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.keys()
    }

    pub const fn begin_list(&mut self) {
        self.0.begin_list();
    }

    /// The list is complete. Returns the quotas that were not in it, which are forgotten.
    pub fn end_list(&mut self) -> Vec<Key> {
        self.0.end_list().into_iter().map(|(key, _)| key).collect()
    }

    /// A quota was seen. Returns whether it wants something else than before.
    pub fn upsert(&mut self, key: &Key, quota: &impl Quota) -> bool {
        let generation = quota.meta().generation;
        if let Some(known) = self.0.see(key, Source::Watch) {
            let (uid, deleting) = identity(quota.meta());
            if generation.is_some()
                && (generation, &uid, deleting) == (known.generation, &known.wish.uid, known.wish.deleting)
            {
                return false;
            }
        }
        let Some(wish) = Wish::read(quota) else { return self.0.remove(key).is_some() };
        let changed = self.get(key) != Some(&wish);
        self.0.insert(key.clone(), Known { wish, generation });
        changed
    }

    /// A quota is gone. Returns whether it was known.
    pub fn remove(&mut self, key: &Key) -> bool {
        self.0.remove(key).is_some()
    }
}
