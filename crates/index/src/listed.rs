//! What a watch has shown of one kind, by key, for those who keep something else than the [records](crate::Record) of a
//! store. The contract of lists and sweeps is that of [`Watched`](crate::Watched).

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

use crate::list_number::{ListNumber, Source};

/// What is known of the objects of one kind.
///
/// Invariant: between the begin and the end of a list no object is forgotten but by its own event.
#[derive(Debug)]
pub struct Listed<K, V> {
    known: BTreeMap<K, (ListNumber, V)>,
    list: ListNumber,
}

impl<K, V> Default for Listed<K, V> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), list: ListNumber::default() }
    }
}

impl<K: Ord, V> Listed<K, V> {
    pub const fn begin_list(&mut self) {
        self.list.begin();
    }

    /// An object was seen. Returns what is known of it.
    pub fn see(&mut self, key: &K, by: Source) -> Option<&mut V> {
        let (list, value) = self.known.get_mut(key)?;
        list.see(self.list, by);
        Some(value)
    }

    /// An object was seen, of which `new` is known if nothing is yet.
    pub fn see_or_insert(&mut self, key: K, by: Source, new: impl FnOnce() -> V) -> &mut V {
        let (list, value) = self.known.entry(key).or_insert_with(|| (self.list, new()));
        list.see(self.list, by);
        value
    }

    /// From now on this is known of an object that was [seen](Self::see). Returns what was known before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.known.get_mut(&key) {
            Some((_, known)) => Some(std::mem::replace(known, value)),
            None => self.known.insert(key, (self.list, value)).map(|(_, known)| known),
        }
    }

    /// An object is gone. Returns what was known of it.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.known.remove(key).map(|(_, value)| value)
    }

    /// The list is complete: forgets the objects that were not in it, and returns them.
    pub fn end_list(&mut self) -> Vec<(K, V)> {
        let gone = self.known.extract_if(.., |_, (list, _)| *list != self.list);
        gone.map(|(key, (_, value))| (key, value)).collect()
    }

    /// What is known of an object.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key).map(|(_, value)| value)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.known.get_mut(key).map(|(_, value)| value)
    }

    /// The objects that are known, by key.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.known.keys()
    }

    /// What is known of all objects.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.known.values().map(|(_, value)| value)
    }

    /// The objects of a part of the keys.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        self.known.range(range).map(|(key, (_, value))| (key, value))
    }
}
