//! Objects of one kind by namespace and name, versions and lists included.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_engine::Uid;

use crate::version::Version;

/// Namespace and name of an object; the namespace of a cluster-wide one is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

/// What is kept of an object: who it is, and what its kind adds.
#[derive(Clone, Debug)]
pub struct Record<B> {
    /// `metadata.namespace`; empty for cluster-wide objects.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Uid,
    /// The version that the rest was read from.
    pub version: Version,
    /// `metadata.creationTimestamp`, in seconds since the epoch.
    pub created: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    pub(super) body: B,
}

impl<B> Record<B> {
    pub(super) fn new(meta: &ObjectMeta, body: B) -> Self {
        Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: Uid::parse(meta.uid.as_deref().unwrap_or_default()),
            version: Version::parse(meta.resource_version.as_deref()),
            created: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            deleting: meta.deletion_timestamp.is_some(),
            body,
        }
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        Key { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }
}

impl<B> Deref for Record<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.body
    }
}

/// What a sighting changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that is kept, or it is older than what is known.
    Same,
    /// It was not known.
    Added,
    /// Something that is kept.
    Changed,
    /// An object of the same name with another uid was known.
    Replaced,
}

/// A kind that is fed by one watch.
pub trait Watched {
    /// What its objects are decoded to.
    type Wire;

    /// A list begins.
    fn begin_list(&mut self);

    /// An object was seen, in a list or by an event.
    fn upsert(&mut self, wire: &Self::Wire) -> Change;

    /// An object is gone. Returns whether it was known; one of the same name with another uid stays.
    fn remove(&mut self, wire: &Self::Wire) -> bool;

    /// An object was looked for and not found.
    fn remove_named(&mut self, namespace: &str, name: &str);

    /// The list is complete: what was not in it is removed, and returned.
    fn end_list(&mut self) -> Vec<Key>;
}

/// How a kind is read, and what else is kept beside its records. Public only because [`Watched`] is implemented by
/// way of it; the module is private.
pub trait Indexed {
    type Wire;
    type Body: PartialEq;

    fn store_mut(&mut self) -> &mut Store<Self::Body>;
    fn meta(wire: &Self::Wire) -> &ObjectMeta;
    fn body(wire: &Self::Wire) -> Self::Body;

    /// Whether objects of this name are kept.
    fn is_kept(_meta: &ObjectMeta) -> bool {
        true
    }
    /// A record was put in.
    fn link(&mut self, _record: &Arc<Record<Self::Body>>) {}
    /// A record was taken out, or replaced by the one that is linked next.
    fn unlink(&mut self, _record: &Arc<Record<Self::Body>>) {}
    /// The object of a record that was taken out does not exist any more.
    fn forget(&mut self, _key: &Key) {}
}

impl<T: Indexed> Watched for T {
    type Wire = T::Wire;

    fn begin_list(&mut self) {
        let store = self.store_mut();
        store.mark = store.mark.wrapping_add(1);
    }

    fn upsert(&mut self, wire: &T::Wire) -> Change {
        let meta = T::meta(wire);
        if !T::is_kept(meta) {
            return Change::Same;
        }
        let version = Version::parse(meta.resource_version.as_deref());
        if self.store_mut().is_stale(meta, version) {
            return Change::Same;
        }
        let (record, old) = self.store_mut().put(Record::new(meta, T::body(wire)));
        let Some(old) = old else {
            self.link(&record);
            return Change::Added;
        };
        self.unlink(&old);
        self.link(&record);
        if old.uid != record.uid {
            Change::Replaced
        } else if old.body != record.body || old.deleting != record.deleting {
            Change::Changed
        } else {
            Change::Same
        }
    }

    fn remove(&mut self, wire: &T::Wire) -> bool {
        remove(self, T::meta(wire))
    }

    fn remove_named(&mut self, namespace: &str, name: &str) {
        let namespace = Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty());
        remove(self, &ObjectMeta { namespace, name: Some(name.to_owned()), ..ObjectMeta::default() });
    }

    fn end_list(&mut self) -> Vec<Key> {
        let gone = self.store_mut().sweep();
        for record in &gone {
            self.unlink(record);
            self.forget(&record.key());
        }
        gone.iter().map(|record| record.key()).collect()
    }
}

fn remove<T: Indexed>(kind: &mut T, meta: &ObjectMeta) -> bool {
    let removed = kind.store_mut().take(meta);
    if let Some(record) = &removed {
        kind.unlink(record);
        kind.forget(&record.key());
    }
    removed.is_some()
}

/// Records of one kind.
#[derive(Debug)]
pub struct Store<B> {
    groups: HashMap<Arc<str>, Group<B>>,
    mark: u32,
}

/// Records of one namespace by name, each with the list it was last seen in.
#[derive(Debug)]
struct Group<B> {
    records: Vec<Arc<Record<B>>>,
    marks: Vec<u32>,
}

impl<B> Default for Store<B> {
    fn default() -> Self {
        Self { groups: HashMap::new(), mark: 0 }
    }
}

impl<B> Group<B> {
    fn place(&self, name: &str) -> Result<usize, usize> {
        // Lists come in the order of names, so the end is the most likely place.
        match self.records.last() {
            Some(last) if *last.name < *name => Err(self.records.len()),
            _ => self.records.binary_search_by(|record| (*record.name).cmp(name)),
        }
    }
}

impl<B> Store<B> {
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Record<B>>> {
        let group = self.groups.get(namespace)?;
        group.records.get(group.place(name).ok()?)
    }

    /// Records of a namespace by name.
    pub(super) fn in_namespace(&self, namespace: &str) -> &[Arc<Record<B>>] {
        self.groups.get(namespace).map_or(&[], |group| &group.records)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Record<B>>> {
        self.groups.values().flat_map(|group| &group.records)
    }

    /// Whether a sighting says nothing new; what it confirms is noted.
    fn is_stale(&mut self, meta: &ObjectMeta, version: Version) -> bool {
        let mark = self.mark;
        let Some(group) = self.groups.get_mut(meta.namespace.as_deref().unwrap_or_default()) else {
            return false;
        };
        let Ok(place) = group.place(meta.name.as_deref().unwrap_or_default()) else { return false };
        let Some(known) = group.records.get(place) else { return false };
        let stale = version.is_older_than(known.version)
            || (version == known.version && version != Version::default());
        if stale && let Some(seen) = group.marks.get_mut(place) {
            *seen = mark;
        }
        stale
    }

    /// Puts a record in; returns it, and the one it replaces.
    fn put(&mut self, mut record: Record<B>) -> (Arc<Record<B>>, Option<Arc<Record<B>>>) {
        match self.groups.get_key_value(&record.namespace) {
            Some((shared, _)) => record.namespace = Arc::clone(shared),
            None => {
                let group = Group { records: Vec::with_capacity(1), marks: Vec::with_capacity(1) };
                self.groups.insert(Arc::clone(&record.namespace), group);
            }
        }
        let mark = self.mark;
        let record = Arc::new(record);
        let Some(group) = self.groups.get_mut(&record.namespace) else { return (record, None) };
        match group.place(&record.name) {
            Ok(place) => {
                if let Some(seen) = group.marks.get_mut(place) {
                    *seen = mark;
                }
                let old =
                    group.records.get_mut(place).map(|known| std::mem::replace(known, Arc::clone(&record)));
                (record, old)
            }
            Err(place) => {
                group.records.insert(place, Arc::clone(&record));
                group.marks.insert(place, mark);
                (record, None)
            }
        }
    }

    fn take(&mut self, meta: &ObjectMeta) -> Option<Arc<Record<B>>> {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let group = self.groups.get_mut(namespace)?;
        let place = group.place(meta.name.as_deref().unwrap_or_default()).ok()?;
        let known = group.records.get(place)?;
        if meta.uid.as_deref().is_some_and(|uid| known.uid != Uid::parse(uid)) {
            return None;
        }
        group.marks.remove(place);
        let record = group.records.remove(place);
        if group.records.is_empty() {
            self.groups.remove(namespace);
        }
        Some(record)
    }

    /// Takes out what was not seen since the list began.
    fn sweep(&mut self) -> Vec<Arc<Record<B>>> {
        let mark = self.mark;
        let mut gone = Vec::new();
        self.groups.retain(|_, group| {
            let mut seen = group.marks.iter().map(|seen| *seen == mark);
            group.records.retain(|record| {
                let keep = seen.next().unwrap_or(true);
                if !keep {
                    gone.push(Arc::clone(record));
                }
                keep
            });
            group.marks.retain(|seen| *seen == mark);
            !group.records.is_empty()
        });
        gone.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        gone
    }
}
