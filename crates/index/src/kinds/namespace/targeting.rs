//! For the gate: which namespaces are targeted, and which pods and quotas are in them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::core::{Selector, SelectorExt};
use sluice_engine::{NamespacePattern, PodId, QuotaId};

use crate::store::ListNumber;

/// Labels that are looked at only when another choice of namespaces is made: kept small.
type Labels = Box<[(Box<str>, Box<str>)]>;

/// A namespace by a small handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId(pub(in crate::kinds) u32);

/// What is known of a namespace.
#[derive(Debug)]
pub struct Namespace {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels; `None` while only things *in* it were seen, not the namespace itself.
    labels: Option<Labels>,
    /// Whether the labels are those of a targeted namespace.
    targeted: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Pods in it, in no order.
    pub(in crate::kinds) pods: Vec<PodId>,
    /// Quotas in it, in the order of ids.
    pub(in crate::kinds) quotas: Vec<QuotaId>,
    list: ListNumber,
}

impl Namespace {
    /// Pods in the namespace, in no order.
    #[must_use]
    pub fn pods(&self) -> &[PodId] {
        &self.pods
    }

    /// Quotas in the namespace, in the order of ids.
    #[must_use]
    pub fn quotas(&self) -> &[QuotaId] {
        &self.quotas
    }
}

/// Which namespaces are targeted.
#[derive(Clone, Debug)]
pub struct Targeting {
    selector: Selector,
    exempt: Arc<[NamespacePattern]>,
}

impl Targeting {
    /// Targets the namespaces that `selector` matches, but never those that are exempt: in them are pods that must start
    /// before anything can be released.
    #[must_use]
    pub fn new(selector: Selector, exempt: Arc<[NamespacePattern]>) -> Self {
        Self { selector, exempt }
    }

    fn covers(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        !self.exempt.iter().any(|each| each.matches(name)) && self.selector.matches(labels)
    }
}

/// All namespaces.
#[derive(Debug)]
pub struct Namespaces {
    by_name: HashMap<Arc<str>, NamespaceId>,
    slots: Vec<Option<Namespace>>,
    free: Vec<NamespaceId>,
    targeting: Targeting,
    list: ListNumber,
}

impl Namespaces {
    /// No namespaces yet.
    #[must_use]
    pub fn new(targeting: Targeting) -> Self {
        Self {
            by_name: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            targeting,
            list: ListNumber::default(),
        }
    }

    /// A namespace by its handle.
    #[must_use]
    pub fn get(&self, id: NamespaceId) -> Option<&Namespace> {
        self.slots.get(id.0 as usize).and_then(Option::as_ref)
    }

    pub(in crate::kinds) fn get_mut(&mut self, id: NamespaceId) -> Option<&mut Namespace> {
        self.slots.get_mut(id.0 as usize).and_then(Option::as_mut)
    }

    /// The handle of a namespace that something was seen of.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<NamespaceId> {
        self.by_name.get(name).copied()
    }

    /// All namespaces that something was seen of.
    pub fn iter(&self) -> impl Iterator<Item = (NamespaceId, &Namespace)> {
        self.by_name.values().filter_map(|id| self.get(*id).map(|namespace| (*id, namespace)))
    }

    /// Whether pods of the namespace are gated; `None` while the namespace itself was not seen.
    #[must_use]
    pub fn is_targeted(&self, id: NamespaceId) -> Option<bool> {
        let namespace = self.get(id)?;
        namespace.labels.as_ref().map(|_| namespace.targeted)
    }

    /// Takes over another choice of namespaces; returns those for which the answer changes.
    pub fn retarget(&mut self, targeting: Targeting) -> Vec<NamespaceId> {
        let mut changed = Vec::new();
        for id in self.by_name.values().copied().collect::<Vec<_>>() {
            let Some(namespace) = self.get_mut(id) else { continue };
            let Some(labels) = &namespace.labels else { continue };
            let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            let targeted = targeting.covers(&namespace.name, &labels);
            if namespace.targeted != targeted {
                namespace.targeted = targeted;
                changed.push(id);
            }
        }
        self.targeting = targeting;
        changed
    }

    /// A list of namespaces begins.
    pub fn begin_list(&mut self) {
        self.list.begin();
    }

    /// The list is complete: namespaces that were not in it are gone. Returns those that changed.
    pub fn end_list(&mut self) -> Vec<NamespaceId> {
        let gone: Vec<Arc<str>> = self
            .iter()
            .filter(|(_, namespace)| namespace.labels.is_some() && namespace.list != self.list)
            .map(|(_, namespace)| Arc::clone(&namespace.name))
            .collect();
        gone.iter().filter_map(|name| self.remove(name)).collect()
    }

    /// A namespace was seen. Returns its handle if anything that matters changed.
    pub fn upsert(
        &mut self,
        name: &str,
        labels: BTreeMap<String, String>,
        terminating: bool,
    ) -> Option<NamespaceId> {
        let id = self.intern(name);
        let before = (self.is_targeted(id), self.get(id).is_some_and(|namespace| namespace.terminating));
        let list = self.list;
        let targeted = self.targeting.covers(name, &labels);
        let namespace = self.get_mut(id)?;
        namespace.targeted = targeted;
        namespace.labels = Some(labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect());
        namespace.terminating = terminating;
        namespace.list = list;
        (before != (self.is_targeted(id), terminating)).then_some(id)
    }

    /// A namespace is gone. Returns its handle if something is still known to be in it.
    pub fn remove(&mut self, name: &str) -> Option<NamespaceId> {
        let id = self.id(name)?;
        let namespace = self.get_mut(id)?;
        namespace.labels = None;
        self.forget_if_empty(id);
        self.get(id).map(|_| id)
    }

    /// The handle of a namespace, seen or not.
    pub(in crate::kinds) fn intern(&mut self, name: &str) -> NamespaceId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let namespace = Namespace {
            name: Arc::clone(&name),
            labels: None,
            targeted: false,
            terminating: false,
            pods: Vec::new(),
            quotas: Vec::new(),
            list: self.list,
        };
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.slots.push(None);
                NamespaceId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
            }
        };
        if let Some(slot) = self.slots.get_mut(id.0 as usize) {
            *slot = Some(namespace);
        }
        self.by_name.insert(name, id);
        id
    }

    /// Frees the handle of a namespace that is gone and has nothing in it.
    pub(in crate::kinds) fn forget_if_empty(&mut self, id: NamespaceId) {
        let Some(namespace) = self.get(id) else { return };
        if namespace.labels.is_some() || !namespace.pods.is_empty() || !namespace.quotas.is_empty() {
            return;
        }
        let name = Arc::clone(&namespace.name);
        self.by_name.remove(&name);
        if let Some(slot) = self.slots.get_mut(id.0 as usize) {
            *slot = None;
        }
        self.free.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exempt_is_not_targeted_whatever_the_selector_says() {
        let exempt = ["kube-*", "own"].map(|text| text.parse().unwrap());
        let targeting = Targeting::new(Selector::default(), exempt.into());
        let labels = BTreeMap::new();
        let covered = ["kube-system", "own", "own-2", "kubevirt", "team"];
        assert_eq!(covered.map(|name| targeting.covers(name, &labels)), [false, false, true, true, true]);
    }
}
