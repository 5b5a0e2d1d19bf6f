//! For the gate: which namespaces are targeted, which pods are in them, and which quotas are about those.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Expression, Selector, SelectorExt};
use sluice_api::names;
use sluice_engine::{FieldError, NamespacePattern, PodId, QuotaId, ShareId, Ungated};

use crate::annotations::Annotations;
use crate::kinds::aaq::Aaqs;
use crate::list_number::ListNumber;
use crate::selector::read_selector;

/// Labels that are looked at only when another choice of namespaces is made: kept small.
type Labels = Box<[(Box<str>, Box<str>)]>;

/// A namespace by a small handle, which no other namespace gets when this one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId(pub(crate) u32);

impl NamespaceId {
    /// The share of quotas that the pods of the namespace have.
    #[must_use]
    pub const fn share(self) -> ShareId {
        ShareId(self.0)
    }

    /// The namespace with this share.
    #[must_use]
    pub const fn of_share(share: ShareId) -> Self {
        Self(share.0)
    }
}

/// What is known of a namespace.
#[derive(Debug)]
pub struct Namespace {
    pub name: Arc<str>,
    /// Its labels, in order; `None` while only things *in* it were seen, not the namespace itself.
    labels: Option<Labels>,
    annotations: Annotations,
    /// Whether the labels are those of a targeted namespace.
    targeted: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Pods in it, in no order.
    pub(crate) pods: Vec<PodId>,
    /// Quotas that are about its pods, in the order of ids.
    quotas: Vec<QuotaId>,
    list: ListNumber,
}

impl Namespace {
    /// Pods in the namespace, in no order.
    #[must_use]
    pub fn pods(&self) -> &[PodId] {
        &self.pods
    }

    /// Quotas that are about its pods, its own and those of the cluster, in the order of ids.
    #[must_use]
    pub fn quotas(&self) -> &[QuotaId] {
        &self.quotas
    }

    /// A quota is about its pods from now on, or no more.
    pub(crate) fn set_quota(&mut self, quota: QuotaId, is_about: bool) {
        match (self.quotas.binary_search(&quota), is_about) {
            (Err(at), true) => self.quotas.insert(at, quota),
            (Ok(at), false) => drop(self.quotas.remove(at)),
            _ => {}
        }
    }

    /// Whether the selector selects it. One that was not seen itself is selected by what selects all.
    #[must_use]
    pub fn is_selected(&self, selector: &Selector) -> bool {
        let labels = self.labels.iter().flatten();
        let labels: BTreeMap<String, String> =
            labels.map(|(key, value)| (key.to_string(), value.to_string())).collect();
        selector.matches(&labels)
    }

    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().flatten().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }

    pub(crate) fn labels(&self) -> Option<&[(Box<str>, Box<str>)]> {
        self.labels.as_deref()
    }

    pub(crate) const fn annotations(&self) -> &Annotations {
        &self.annotations
    }
}

/// What applying a namespace changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceChange {
    pub id: NamespaceId,
    /// Whether its pods are gated, or whether it is being deleted.
    pub is_retargeted: bool,
    /// What quotas may select it by.
    pub is_relabelled: bool,
}

#[derive(Clone, Debug)]
pub struct Targeting {
    selector: Selector,
    /// The selector as text.
    text: Arc<str>,
    exempt: Arc<[NamespacePattern]>,
}

impl Targeting {
    /// Targets the namespaces that `selector` matches, but never those that are exempt: in them are pods that must start
    /// before anything can be released.
    #[must_use]
    pub fn new(selector: Selector, exempt: Arc<[NamespacePattern]>) -> Self {
        let text = selector.to_string().into();
        Self { selector, text, exempt }
    }

    /// Targets what the `AAQ` that counts selects, which is the oldest: there should be only one. Returns too what is wrong
    /// with its selector. The webhook refuses such a one, and the API server in all that gates, so pods are gated as before.
    /// If no namespace counted as targeted, all that wait would go without a charge; if all do, they wait for their quotas.
    #[must_use]
    pub fn by(aaqs: &Aaqs, exempt: &Arc<[NamespacePattern]>) -> (Self, Vec<FieldError>) {
        let by_default = || Selector::from(Expression::Exists(names::TARGET_LABEL.to_owned()));
        let (selector, errors) = match aaqs.holding().and_then(|aaq| aaq.selector.clone()) {
            None => (by_default(), Vec::new()),
            Some(selector) => match read_selector("spec.namespaceSelector", selector) {
                Ok(selector) => (selector, Vec::new()),
                Err(errors) => (Selector::default(), errors),
            },
        };
        (Self::new(selector, Arc::clone(exempt)), errors)
    }

    /// Why pods of a namespace with this name and these labels are not gated; `None` if they are.
    #[must_use]
    pub fn ungated(&self, name: &str, labels: &BTreeMap<String, String>) -> Option<Ungated> {
        if self.is_exempt(name) {
            return Some(Ungated::Exempt);
        }
        (!self.selector.matches(labels)).then_some(Ungated::NotTargeted)
    }

    /// The selector of the `AAQ` as text.
    #[must_use]
    pub fn selector_text(&self) -> &str {
        &self.text
    }

    fn is_exempt(&self, name: &str) -> bool {
        self.exempt.iter().any(|each| each.matches(name))
    }

    fn covers(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.ungated(name, labels).is_none()
    }
}

#[derive(Debug)]
pub struct Namespaces {
    by_name: HashMap<Arc<str>, NamespaceId>,
    records: HashMap<NamespaceId, Namespace>,
    next: u32,
    targeting: Targeting,
    list: ListNumber,
}

impl Namespaces {
    /// No namespaces yet.
    #[must_use]
    pub fn new(targeting: Targeting) -> Self {
        Self {
            by_name: HashMap::new(),
            records: HashMap::new(),
            next: 0,
            targeting,
            list: ListNumber::default(),
        }
    }

    #[must_use]
    pub fn get(&self, id: NamespaceId) -> Option<&Namespace> {
        self.records.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: NamespaceId) -> Option<&mut Namespace> {
        self.records.get_mut(&id)
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

    /// Why pods of the namespace are not gated; `None` if they are, or while the namespace itself was not seen.
    #[must_use]
    pub fn ungated(&self, id: NamespaceId) -> Option<Ungated> {
        let namespace = self.get(id).filter(|namespace| namespace.labels.is_some() && !namespace.targeted)?;
        let is_exempt = self.targeting.is_exempt(&namespace.name);
        Some(if is_exempt { Ungated::Exempt } else { Ungated::NotTargeted })
    }

    #[must_use]
    pub const fn targeting(&self) -> &Targeting {
        &self.targeting
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

    /// A namespace was seen.
    pub fn upsert(&mut self, meta: &ObjectMeta) -> NamespaceChange {
        let name = meta.name.as_deref().unwrap_or_default();
        let nothing = BTreeMap::new();
        let labels = meta.labels.as_ref().unwrap_or(&nothing);
        let id = self.intern(name);
        let was_targeted = self.is_targeted(id);
        let (list, targeted) = (self.list, self.targeting.covers(name, labels));
        let pairs = labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into()));
        let labels = Some(pairs.collect());
        let annotations = Annotations::read(meta.annotations.as_ref());
        let terminating = meta.deletion_timestamp.is_some();
        let mut change = NamespaceChange { id, is_retargeted: false, is_relabelled: false };
        let Some(namespace) = self.get_mut(id) else { return change };
        change.is_relabelled = namespace.labels != labels || namespace.annotations != annotations;
        change.is_retargeted = was_targeted != Some(targeted) || namespace.terminating != terminating;
        (namespace.labels, namespace.annotations) = (labels, annotations);
        (namespace.targeted, namespace.terminating, namespace.list) = (targeted, terminating, list);
        change
    }

    /// A namespace is gone. Returns its handle if something is still known to be in it.
    pub fn remove(&mut self, name: &str) -> Option<NamespaceId> {
        let id = self.id(name)?;
        let namespace = self.get_mut(id)?;
        namespace.labels = None;
        namespace.annotations = Annotations::default();
        self.forget_if_empty(id);
        self.get(id).map(|_| id)
    }

    /// The handle of a namespace, seen or not.
    pub(crate) fn intern(&mut self, name: &str) -> NamespaceId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let namespace = Namespace {
            name: Arc::clone(&name),
            labels: None,
            annotations: Annotations::default(),
            targeted: false,
            terminating: false,
            pods: Vec::new(),
            quotas: Vec::new(),
            list: self.list,
        };
        let id = NamespaceId(self.next);
        self.next = self.next.wrapping_add(1);
        self.records.insert(id, namespace);
        self.by_name.insert(name, id);
        id
    }

    /// Forgets a namespace that is gone and has nothing in it.
    pub(crate) fn forget_if_empty(&mut self, id: NamespaceId) {
        let Some(namespace) = self.get(id) else { return };
        if namespace.labels.is_some() || !namespace.pods.is_empty() || !namespace.quotas.is_empty() {
            return;
        }
        if let Some(gone) = self.records.remove(&id) {
            self.by_name.remove(&gone.name);
        }
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
        let targeting = Targeting::new(Expression::Exists("gated".to_owned()).into(), targeting.exempt);
        assert_eq!(
            ["own", "team"].map(|name| targeting.ungated(name, &labels)),
            [Some(Ungated::Exempt), Some(Ungated::NotTargeted)]
        );
        assert_eq!(targeting.ungated("team", &[("gated".to_owned(), String::new())].into()), None);
        assert_eq!(targeting.selector_text(), "gated");
    }

    /// What is remembered of one that has ended is no other's.
    #[test]
    fn a_namespace_does_not_get_the_handle_of_one_that_has_ended() {
        let mut namespaces = Namespaces::new(Targeting::new(Selector::default(), [].into()));
        let mut see = |name: &str| {
            let id =
                namespaces.upsert(&ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }).id;
            assert_eq!(namespaces.remove(name), None);
            assert!(namespaces.get(id).is_none());
            id
        };
        assert_ne!(see("one"), see("other"));
        assert_ne!(see("one"), see("one"));
    }
}
