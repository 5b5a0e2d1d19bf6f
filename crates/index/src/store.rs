//! Objects of one kind by namespace and name, and the one contract of lists and sweeps.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use sluice_engine::Uid;

use crate::list_number::{ListNumber, Source};
use crate::version::Version;

/// Namespace and name of an object; the namespace of a cluster-wide one is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        let (namespace, name) = named(meta);
        Self { namespace: namespace.into(), name: name.into() }
    }
}

fn named(meta: &ObjectMeta) -> (&str, &str) {
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// Where a change of an object may matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affected {
    Namespace(Arc<str>),
    /// In any namespace.
    Everywhere,
}

/// What is kept of an object: who it is, and what its kind adds.
#[derive(Clone, Debug)]
pub struct Record<B> {
    /// `metadata.namespace`; empty for cluster-wide objects.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
    /// The version that the rest was read from.
    pub version: Version,
    /// `metadata.creationTimestamp`, in seconds since the epoch.
    pub created: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    pub(crate) body: B,
}

impl<B> Record<B> {
    pub(crate) fn new(meta: &ObjectMeta, body: B) -> Self {
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

/// What applying an object changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that is kept, or the object is older than what is known.
    Same,
    /// The object was not known.
    Added,
    /// Something that is kept.
    Changed,
    /// An object of the same name with another uid was known.
    Replaced,
    /// The object was known, and is none of those that are kept any more.
    Removed,
}

/// Objects of one kind, fed by one watch: the contract of lists and sweeps.
///
/// In the middle of a list nothing is forgotten: what was known stays until the list is complete, and then what was not in
/// it is removed. A list that breaks off removes nothing; the next one begins anew.
pub trait Watched {
    /// What its objects are decoded to.
    type Wire;

    fn begin_list(&mut self);

    /// An object was seen, in a list or by an event.
    fn upsert(&mut self, wire: &Self::Wire) -> Change;

    /// The answer to a request says how an object is.
    fn upsert_answered(&mut self, wire: &Self::Wire) -> Change;

    /// An object is gone. Returns whether it was known; one of the same name with another uid stays.
    fn remove(&mut self, wire: &Self::Wire) -> bool;

    /// An object was looked for and not found. Returns whether it was known.
    fn remove_named(&mut self, namespace: &str, name: &str) -> bool;

    /// The list is complete: what was not in it is removed, and returned.
    fn end_list(&mut self) -> Vec<Key>;

    /// Whether an event about this object may change anything. Costs less than applying it.
    fn concerns(&self, wire: &Self::Wire) -> bool;

    /// Namespace and name.
    fn key(wire: &Self::Wire) -> Key;

    /// Where a change of the object with this key may matter.
    fn affects(key: &Key) -> Affected;

    /// Applies an event of the watch. Returns the keys of the objects that changed.
    fn apply(&mut self, event: &Event<Self::Wire>) -> Vec<Key> {
        let changed = match event {
            Event::Init => {
                self.begin_list();
                return Vec::new();
            }
            Event::InitDone => return self.end_list(),
            Event::InitApply(wire) | Event::Apply(wire) => {
                (self.upsert(wire) != Change::Same).then(|| Self::key(wire))
            }
            Event::Delete(wire) => self.remove(wire).then(|| Self::key(wire)),
        };
        changed.into_iter().collect()
    }
}

/// How a kind is read, and what else is kept beside its records. Public only because [`Watched`] is implemented by
/// way of it; the module is private.
pub trait Indexed {
    type Wire;
    type Body: PartialEq;

    fn store_mut(&mut self) -> &mut Store<Self::Body>;
    fn meta(wire: &Self::Wire) -> &ObjectMeta;
    fn body(wire: &Self::Wire) -> Self::Body;

    /// Whether the object is one of those that are kept.
    fn is_kept(_meta: &ObjectMeta) -> bool {
        true
    }
    /// See [`Watched::concerns`]. Needed where most objects of the kind are not kept.
    fn concerns(&self, _meta: &ObjectMeta) -> bool {
        true
    }
    /// See [`Watched::affects`].
    fn affects(key: &Key) -> Affected {
        Affected::Namespace(Arc::clone(&key.namespace))
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
        self.store_mut().list.begin();
    }

    fn upsert(&mut self, wire: &T::Wire) -> Change {
        see(self, wire, Source::Watch)
    }

    fn upsert_answered(&mut self, wire: &T::Wire) -> Change {
        see(self, wire, Source::Answer)
    }

    fn remove(&mut self, wire: &T::Wire) -> bool {
        let meta = T::meta(wire);
        let (namespace, name) = named(meta);
        remove(self, namespace, name, meta.uid.as_deref())
    }

    fn remove_named(&mut self, namespace: &str, name: &str) -> bool {
        remove(self, namespace, name, None)
    }

    fn end_list(&mut self) -> Vec<Key> {
        let gone = self.store_mut().sweep();
        for record in &gone {
            self.unlink(record);
            self.forget(&record.key());
        }
        gone.iter().map(|record| record.key()).collect()
    }

    fn concerns(&self, wire: &T::Wire) -> bool {
        Indexed::concerns(self, T::meta(wire))
    }

    fn key(wire: &T::Wire) -> Key {
        Key::of(T::meta(wire))
    }

    fn affects(key: &Key) -> Affected {
        <T as Indexed>::affects(key)
    }
}

fn see<T: Indexed>(kind: &mut T, wire: &T::Wire, by: Source) -> Change {
    let meta = T::meta(wire);
    let version = Version::parse(meta.resource_version.as_deref());
    if kind.store_mut().is_stale(meta, version, by) {
        return Change::Same;
    }
    if !T::is_kept(meta) {
        let (namespace, name) = named(meta);
        return if remove(kind, namespace, name, None) { Change::Removed } else { Change::Same };
    }
    let (record, old) = kind.store_mut().put(Record::new(meta, T::body(wire)), by);
    let Some(old) = old else {
        kind.link(&record);
        return Change::Added;
    };
    kind.unlink(&old);
    kind.link(&record);
    if old.uid != record.uid {
        Change::Replaced
    } else if old.body != record.body || old.deleting != record.deleting {
        Change::Changed
    } else {
        Change::Same
    }
}

/// With a `uid` an object of the same name that has another one stays.
fn remove<T: Indexed>(kind: &mut T, namespace: &str, name: &str, uid: Option<&str>) -> bool {
    let removed = kind.store_mut().take(namespace, name, uid);
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
    list: ListNumber,
}

/// Records of one namespace by name, and at the same place of `lists` the list that each was last seen in.
#[derive(Debug)]
struct Group<B> {
    records: Vec<Arc<Record<B>>>,
    lists: Vec<ListNumber>,
}

impl<B> Default for Store<B> {
    fn default() -> Self {
        Self { groups: HashMap::new(), list: ListNumber::default() }
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
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Record<B>>> {
        let group = self.groups.get(namespace)?;
        group.records.get(group.place(name).ok()?)
    }

    /// Records of a namespace by name.
    pub(crate) fn in_namespace(&self, namespace: &str) -> &[Arc<Record<B>>] {
        self.groups.get(namespace).map_or(&[], |group| &group.records)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Record<B>>> {
        self.groups.values().flat_map(|group| &group.records)
    }

    /// Whether an object says nothing new; that it was listed is noted.
    fn is_stale(&mut self, meta: &ObjectMeta, version: Version, by: Source) -> bool {
        let list = self.list;
        let (namespace, name) = named(meta);
        let Some(group) = self.groups.get_mut(namespace) else { return false };
        let Ok(place) = group.place(name) else { return false };
        let Some(known) = group.records.get(place) else { return false };
        let stale = version.is_older_than(known.version)
            || (version == known.version && version != Version::default());
        if stale && let Some(seen) = group.lists.get_mut(place) {
            seen.see(list, by);
        }
        stale
    }

    /// Puts a record in; returns it, and the one it replaces.
    fn put(&mut self, mut record: Record<B>, by: Source) -> (Arc<Record<B>>, Option<Arc<Record<B>>>) {
        match self.groups.get_key_value(&record.namespace) {
            Some((shared, _)) => record.namespace = Arc::clone(shared),
            None => {
                let group = Group { records: Vec::with_capacity(1), lists: Vec::with_capacity(1) };
                self.groups.insert(Arc::clone(&record.namespace), group);
            }
        }
        let list = self.list;
        let record = Arc::new(record);
        let Some(group) = self.groups.get_mut(&record.namespace) else { return (record, None) };
        match group.place(&record.name) {
            Ok(place) => {
                let old =
                    group.records.get_mut(place).map(|known| std::mem::replace(known, Arc::clone(&record)));
                let is_another = old.as_ref().is_some_and(|old| old.uid != record.uid);
                if let Some(seen) = group.lists.get_mut(place) {
                    if is_another { *seen = list } else { seen.see(list, by) }
                }
                (record, old)
            }
            Err(place) => {
                group.records.insert(place, Arc::clone(&record));
                group.lists.insert(place, list);
                (record, None)
            }
        }
    }

    fn take(&mut self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Arc<Record<B>>> {
        let group = self.groups.get_mut(namespace)?;
        let place = group.place(name).ok()?;
        let known = group.records.get(place)?;
        if uid.is_some_and(|uid| known.uid != Uid::parse(uid)) {
            return None;
        }
        group.lists.remove(place);
        let record = group.records.remove(place);
        if group.records.is_empty() {
            self.groups.remove(namespace);
        }
        Some(record)
    }

    /// Takes out what was not seen since the list began.
    fn sweep(&mut self) -> Vec<Arc<Record<B>>> {
        let list = self.list;
        let mut gone = Vec::new();
        self.groups.retain(|_, group| {
            let mut seen = group.lists.iter().map(|seen| *seen == list);
            group.records.retain(|record| {
                let keep = seen.next().unwrap_or(true);
                if !keep {
                    gone.push(Arc::clone(record));
                }
                keep
            });
            group.lists.retain(|seen| *seen == list);
            !group.records.is_empty()
        });
        gone.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        gone
    }
}
