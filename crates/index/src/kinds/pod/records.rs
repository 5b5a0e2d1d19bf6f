//! Pods as compact records.
//!
//! A record holds what decisions need, not the pod: 150,000 of them have to fit in memory with room to spare.
//! Equal charges and equal scope facts are shared, since pods of one template have the same.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use sluice_engine::{Amount, Charge, PodId, Resource, ScopeFacts, Timers, Uid, WaitKey};

use super::types::{Gates, OwnerKey, Peculiar, PlatformKey, PodFacts, UnstampedKey};
use crate::kinds::namespace::{NamespaceId, Namespaces};
use crate::list_number::{ListNumber, Source};
use crate::version::Version;

#[derive(Clone, Debug)]
pub struct PodRecord {
    pub name: Box<str>,
    pub namespace: NamespaceId,
    /// Its identity; a pod of the same name is another one.
    pub uid: Uid,
    /// The version that the rest was read from.
    pub version: Version,
    /// `spec.priority`.
    pub priority: i32,
    /// `metadata.creationTimestamp`, in seconds since the epoch.
    pub created: i64,
    /// What it takes, or would take without gates.
    pub charge: Arc<Charge>,
    /// What its scopes depend on.
    pub scope_facts: Arc<ScopeFacts>,
    /// What holds it back.
    pub gates: Gates,
    /// Whether it has generic ephemeral volumes, which never changes. Their claims are created while it is held
    /// (`k8s.io/kubernetes/pkg/controller/volume/ephemeral/controller.go`).
    pub has_ephemeral_volumes: bool,
    pub(super) peculiar: Option<Box<Peculiar>>,
    list: ListNumber,
    /// Where the namespace's list of pods has it.
    place: u32,
}

impl PodRecord {
    /// The pod's place in the order of waiting pods.
    #[must_use]
    pub fn wait_key(&self) -> WaitKey {
        WaitKey { priority: std::cmp::Reverse(self.priority), created: self.created, uid: self.uid.clone() }
    }

    /// Whether it takes nothing but its place as an object: it runs no more, or is overdue.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.charge.iter().all(|(resource, _)| *resource == Resource::CountPods)
    }
}

/// What applying a pod changed.
#[derive(Debug)]
pub enum PodChange {
    /// The pod was not known.
    Added(PodId),
    /// The pod was known and is different now.
    Changed(PodId),
    /// A pod of this name with another uid was known. That one is gone, the new one is to be added: see again.
    Replaced(PodRecord, PodId),
    /// Nothing that is kept, or the object is older than what is known.
    Same,
}

#[derive(Debug, Default)]
pub struct Pods {
    records: Vec<Option<PodRecord>>,
    free: Vec<PodId>,
    by_name: HashTable<PodId>,
    hasher: DefaultHashBuilder,
    charges: HashSet<Arc<Charge>>,
    scope_facts: HashSet<Arc<ScopeFacts>>,
    /// By the first second since the epoch at which each takes nothing but `count/pods` although it still exists.
    overdue: Timers<PodId, i64>,
    /// Of those that have an owner.
    pub(super) by_owner: BTreeSet<OwnerKey>,
    /// Of those that have an owner and no stamp, and are not over: by owner, the oldest first.
    pub(super) unstamped: BTreeSet<UnstampedKey>,
    /// Of those of the platform: by the pod that controls each.
    pub(super) of_platform: BTreeSet<PlatformKey>,
    pub(super) creators: HashSet<Arc<str>>,
    list: ListNumber,
    shared_since_sweep: usize,
}

impl Pods {
    /// How many pods there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    #[must_use]
    pub fn get(&self, id: PodId) -> Option<&PodRecord> {
        self.records.get(id.0 as usize).and_then(Option::as_ref)
    }

    #[must_use]
    pub fn find(&self, namespace: NamespaceId, name: &str) -> Option<PodId> {
        let hash = self.hash(namespace, name);
        self.by_name.find(hash, |id| self.is_named(*id, namespace, name)).copied()
    }

    /// All pods with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (PodId, &PodRecord)> {
        self.by_name.iter().filter_map(|id| self.get(*id).map(|record| (*id, record)))
    }

    pub fn begin_list(&mut self) {
        self.list.begin();
    }

    /// The list is complete. Returns the pods that were not in it; they are still to be removed.
    #[must_use]
    pub fn end_list(&self) -> Vec<PodId> {
        self.iter().filter(|(_, record)| record.list != self.list).map(|(id, _)| id).collect()
    }

    /// Whether a list that is under way has shown the pod, if any is.
    #[must_use]
    pub fn is_listed(&self, id: PodId) -> bool {
        self.get(id).is_some_and(|record| record.list == self.list)
    }

    /// A pod was seen.
    pub fn upsert(&mut self, facts: PodFacts, by: Source, namespaces: &mut Namespaces) -> PodChange {
        let namespace = namespaces.intern(&facts.namespace);
        let Some(id) = self.find(namespace, &facts.name) else {
            return PodChange::Added(self.insert(facts, namespace, namespaces));
        };
        let list = self.list;
        let Some(known) = self.records.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return PodChange::Same;
        };
        if facts.version.is_older_than(known.version) {
            known.list.see(list, by);
            return PodChange::Same;
        }
        if known.uid != facts.uid {
            let Some(old) = self.remove(id, namespaces) else { return PodChange::Same };
            return PodChange::Replaced(old, self.insert(facts, namespace, namespaces));
        }
        known.list.see(list, by);
        // The same version is compared too: it may be read by other rules of charging.
        known.version = facts.version;
        let unchanged = known.gates == facts.gates
            && self.overdue.moment(&id) == facts.overdue_at
            && known.priority == facts.priority
            && *known.scope_facts == facts.scope_facts
            && known.unreadable() == facts.unreadable.as_ref()
            && known.ownership() == facts.ownership.as_ref()
            && known.platform() == facts.platform.as_ref()
            && *known.charge == facts.charge;
        if unchanged {
            return PodChange::Same;
        }
        match facts.overdue_at {
            Some(at) => self.overdue.set(id, at),
            None => self.overdue.cancel(&id),
        }
        let (charge, scope_facts) = self.share(facts.charge, facts.scope_facts);
        self.leave_owner(id);
        let peculiar = self.peculiar(facts.unreadable, facts.ownership, facts.platform);
        if let Some(known) = self.records.get_mut(id.0 as usize).and_then(Option::as_mut) {
            known.peculiar = peculiar;
            known.priority = facts.priority;
            known.charge = charge;
            known.scope_facts = scope_facts;
            known.gates = facts.gates;
        }
        self.join_owner(id);
        PodChange::Changed(id)
    }

    pub fn remove(&mut self, id: PodId, namespaces: &mut Namespaces) -> Option<PodRecord> {
        self.leave_owner(id);
        let record = self.records.get_mut(id.0 as usize)?.take()?;
        if let Ok(entry) = self
            .by_name
            .find_entry(hash_of(&self.hasher, record.namespace, &record.name), |other| *other == id)
        {
            entry.remove();
        }
        self.overdue.cancel(&id);
        self.free.push(id);
        if let Some(namespace) = namespaces.get_mut(record.namespace) {
            let place = record.place as usize;
            if place < namespace.pods.len() {
                namespace.pods.swap_remove(place);
            }
            let moved = namespace.pods.get(place).copied();
            if let Some(moved) = moved.and_then(|id| self.records.get_mut(id.0 as usize)?.as_mut()) {
                moved.place = record.place;
            }
        }
        namespaces.forget_if_empty(record.namespace);
        Some(record)
    }

    /// When the next pod becomes overdue, in seconds since the epoch.
    #[must_use]
    pub fn next_overdue(&self) -> Option<i64> {
        self.overdue.next()
    }

    /// Takes the pods that have become overdue; their charge is `count/pods` from now on.
    pub fn take_overdue(&mut self, now: i64) -> Vec<PodId> {
        let mut taken = Vec::new();
        while let Some(id) = self.overdue.pop_due(now) {
            let (charge, _) = self.share(terminal_charge(), ScopeFacts::default());
            self.leave_owner(id);
            if let Some(record) = self.records.get_mut(id.0 as usize).and_then(Option::as_mut) {
                record.charge = charge;
                if let Some(peculiar) = &mut record.peculiar {
                    peculiar.unreadable = None;
                }
                taken.push(id);
            }
            self.join_owner(id);
        }
        taken
    }

    fn insert(&mut self, facts: PodFacts, namespace: NamespaceId, namespaces: &mut Namespaces) -> PodId {
        let id = self.free.pop().unwrap_or_else(|| {
            push_tightly(&mut self.records, None);
            PodId(u32::try_from(self.records.len() - 1).unwrap_or(u32::MAX))
        });
        let (charge, scope_facts) = self.share(facts.charge, facts.scope_facts);
        let mut place = 0;
        // The namespace may just have been forgotten together with the pod that is replaced.
        let namespace =
            if namespaces.get(namespace).is_some() { namespace } else { namespaces.intern(&facts.namespace) };
        if let Some(namespace) = namespaces.get_mut(namespace) {
            place = u32::try_from(namespace.pods.len()).unwrap_or(u32::MAX);
            namespace.pods.push(id);
        }
        if let Some(at) = facts.overdue_at {
            self.overdue.set(id, at);
        }
        let hash = self.hash(namespace, &facts.name);
        let record = PodRecord {
            name: facts.name,
            namespace,
            uid: facts.uid,
            version: facts.version,
            priority: facts.priority,
            created: facts.created,
            charge,
            scope_facts,
            gates: facts.gates,
            has_ephemeral_volumes: facts.has_ephemeral_volumes,
            peculiar: self.peculiar(facts.unreadable, facts.ownership, facts.platform),
            list: self.list,
            place,
        };
        if let Some(slot) = self.records.get_mut(id.0 as usize) {
            *slot = Some(record);
        }
        self.join_owner(id);
        let Self { by_name, records, hasher, .. } = self;
        by_name.insert_unique(hash, id, |id| {
            records
                .get(id.0 as usize)
                .and_then(Option::as_ref)
                .map_or(0, |record| hash_of(hasher, record.namespace, &record.name))
        });
        id
    }

    fn join_owner(&mut self, id: PodId) {
        let key = self.owner_key(id);
        self.by_owner.extend(key);
        let key = self.unstamped_key(id);
        self.unstamped.extend(key);
        let key = self.platform_key(id);
        self.of_platform.extend(key);
    }

    fn leave_owner(&mut self, id: PodId) {
        if let Some(key) = self.owner_key(id) {
            self.by_owner.remove(&key);
        }
        if let Some(key) = self.unstamped_key(id) {
            self.unstamped.remove(&key);
        }
        if let Some(key) = self.platform_key(id) {
            self.of_platform.remove(&key);
        }
    }

    /// Replaces values by equal ones that are there already.
    fn share(&mut self, charge: Charge, scope_facts: ScopeFacts) -> (Arc<Charge>, Arc<ScopeFacts>) {
        self.sweep_shared();
        (shared(&mut self.charges, charge), shared(&mut self.scope_facts, scope_facts))
    }

    /// Drops shared values that no pod has any more; after as many calls as there are values, so that the cost
    /// per call is constant.
    fn sweep_shared(&mut self) {
        self.shared_since_sweep += 1;
        let values = self.charges.len() + self.scope_facts.len() + self.creators.len();
        if self.shared_since_sweep < 1024 + values {
            return;
        }
        self.shared_since_sweep = 0;
        self.charges.retain(|charge| Arc::strong_count(charge) > 1);
        self.scope_facts.retain(|facts| Arc::strong_count(facts) > 1);
        self.creators.retain(|name| Arc::strong_count(name) > 1);
    }

    fn is_named(&self, id: PodId, namespace: NamespaceId, name: &str) -> bool {
        self.get(id).is_some_and(|record| record.namespace == namespace && *record.name == *name)
    }

    fn hash(&self, namespace: NamespaceId, name: &str) -> u64 {
        hash_of(&self.hasher, namespace, name)
    }
}

/// Pushes onto a vector that may become very long: it grows by an eighth instead of to the double.
pub fn push_tightly<T>(list: &mut Vec<T>, value: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 64);
    }
    list.push(value);
}

/// What a pod object takes that runs no more (`docs/quota-semantics.md`, *Terminal and overdue pods*).
fn terminal_charge() -> Charge {
    Charge::from_pairs([(Resource::CountPods, Amount::ONE)])
}

fn hash_of(hasher: &DefaultHashBuilder, namespace: NamespaceId, name: &str) -> u64 {
    hasher.hash_one((namespace, name))
}

fn shared<T: Eq + Hash>(pool: &mut HashSet<Arc<T>>, value: T) -> Arc<T> {
    if let Some(known) = pool.get(&value) {
        return Arc::clone(known);
    }
    let value = Arc::new(value);
    pool.insert(Arc::clone(&value));
    value
}
