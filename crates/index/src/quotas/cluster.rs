//! Cluster quotas: which namespaces each of them selects, and the objects that record their charges.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sluice_engine::{QuotaId, Uid};

use super::namespace_selector::NamespaceSelector;
use super::record::{ChargeObject, ClusterScope, QuotaRecord, QuotaScope, compiled};
use super::recorded::Recorded;
use super::{QuotaChange, Quotas};
use crate::kinds::acrq::AcrqWire;
use crate::kinds::cluster_quota_charge::ClusterQuotaChargeWire;
use crate::kinds::namespace::{NamespaceId, Namespaces};
use crate::list_number::{ListNumber, Source};
use crate::listed::Listed;
use crate::version::Version;

/// What all cluster quotas have in common.
#[derive(Debug, Default)]
pub(super) struct ClusterQuotas {
    ids: BTreeSet<QuotaId>,
    by_uid: HashMap<Uid, QuotaId>,
    /// Whether there may be any: if not, those that there are select no namespace.
    are_allowed: bool,
    list: ListNumber,
    /// Quotas that are specified otherwise, or select other namespaces, than when they were asked for last.
    changed: BTreeSet<QuotaId>,
    /// By the uid of the quota, known or not: both come by watches of their own.
    charges: Listed<Uid, Charge>,
}

/// An object that records the charges of a quota.
#[derive(Debug)]
struct Charge {
    object: ChargeObject,
    recorded: Recorded,
}

/// What applying a cluster quota changed.
#[derive(Debug)]
pub struct ClusterChange {
    /// Of the quota itself.
    pub quota: QuotaChange,
    /// The namespaces that it selects now and did not before, or the other way round.
    pub moved: Vec<NamespaceId>,
}

impl Quotas {
    /// Whether cluster quotas have an effect.
    #[must_use]
    pub const fn are_cluster_quotas_allowed(&self) -> bool {
        self.cluster.are_allowed
    }

    /// From now on cluster quotas have an effect, or none. Returns the namespaces whose quotas change.
    pub fn allow_cluster_quotas(
        &mut self,
        are_allowed: bool,
        namespaces: &mut Namespaces,
    ) -> Vec<NamespaceId> {
        if self.cluster.are_allowed == are_allowed {
            return Vec::new();
        }
        self.cluster.are_allowed = are_allowed;
        let mut moved = BTreeSet::new();
        for id in self.cluster.ids.clone() {
            moved.extend(self.select(id, namespaces));
        }
        moved.into_iter().collect()
    }

    pub fn begin_cluster_list(&mut self) {
        self.cluster.list.begin();
    }

    /// The list is complete. Returns the cluster quotas that were not in it; they are still to be removed.
    #[must_use]
    pub fn end_cluster_list(&self) -> Vec<QuotaId> {
        let is_gone = |id: &QuotaId| self.get(*id).is_some_and(|record| record.list != self.cluster.list);
        self.cluster.ids.iter().copied().filter(is_gone).collect()
    }

    #[must_use]
    pub fn find_cluster(&self, name: &str) -> Option<QuotaId> {
        self.by_name.get(&(None, Arc::from(name))).copied()
    }

    /// A cluster quota by its identity.
    #[must_use]
    pub fn find_cluster_by_uid(&self, uid: &Uid) -> Option<QuotaId> {
        self.cluster.by_uid.get(uid).copied()
    }

    pub fn cluster_ids(&self) -> impl ExactSizeIterator<Item = QuotaId> {
        self.cluster.ids.iter().copied()
    }

    /// Whether each of these cluster quotas, by identity and number of the specification, is known with that specification
    /// or a later one.
    #[must_use]
    pub fn know_clusters(&self, listed: &[(Uid, i64)]) -> bool {
        listed.iter().all(|(uid, generation)| {
            let known = self.find_cluster_by_uid(uid).and_then(|id| self.get(id)?.cluster());
            known.is_some_and(|known| known.generation >= *generation)
        })
    }

    /// The cluster quota that an object would replace: same name, another uid.
    #[must_use]
    pub fn replaced_by_cluster(&self, wire: &AcrqWire) -> Option<QuotaId> {
        self.replaced(self.find_cluster(wire.metadata.name.as_deref()?)?, &wire.metadata)
    }

    /// A cluster quota was seen. [`Self::replaced_by_cluster`] has to be asked and obeyed before.
    pub fn upsert_cluster(&mut self, wire: &AcrqWire, namespaces: &mut Namespaces) -> ClusterChange {
        let generation = wire.metadata.generation.unwrap_or_default();
        let spec = wire.read_spec().map_err(Arc::from);
        let selector =
            spec.as_ref().map_err(Arc::clone).and_then(|spec| NamespaceSelector::read(spec.selector.clone()));
        let fresh = match (&spec, &selector) {
            (Ok(spec), Ok(_)) => compiled(&spec.quota).map(|spec| self.shared.spec(spec)),
            (Err(wrong), _) | (_, Err(wrong)) => Err(Arc::clone(wrong)),
        };
        let is_shown = wire.is_shown();
        let Some(id) = self.find_cluster(wire.metadata.name.as_deref().unwrap_or_default()) else {
            let selector = selector.unwrap_or_else(|_| NamespaceSelector::nothing());
            let scope = ClusterScope {
                selector,
                namespaces: BTreeSet::new(),
                moved: BTreeSet::new(),
                charge: None,
                is_shown,
                generation,
            };
            let scope = QuotaScope::Cluster(Box::new(scope));
            let record = QuotaRecord::new(&wire.metadata, scope, fresh, self.cluster.list);
            let uid = record.uid.clone();
            let id = self.enter(record, namespaces);
            self.cluster.ids.insert(id);
            self.cluster.by_uid.insert(uid, id);
            self.take_charge(id);
            return ClusterChange { quota: QuotaChange::Added(id), moved: self.select(id, namespaces) };
        };
        let list = self.cluster.list;
        let none = ClusterChange { quota: QuotaChange::Same, moved: Vec::new() };
        let Some(known) = self.records.get_mut(&id) else { return none };
        known.list = list;
        if !known.is_to_be_read(&wire.metadata) {
            return none;
        }
        let mut is_reselected = false;
        if let Some(cluster) = known.cluster_mut() {
            // Charges that were recorded once may be lost, whatever is shown later.
            cluster.is_shown |= is_shown;
            cluster.generation = generation;
            if let Ok(selector) = selector {
                is_reselected = cluster.selector != selector;
                cluster.selector = selector;
            }
        }
        let quota = known.respecify(id, fresh);
        if quota != QuotaChange::Same {
            self.cluster.changed.insert(id);
        }
        // What it shows changes often, and there may be very many namespaces.
        let moved = if is_reselected { self.select(id, namespaces) } else { Vec::new() };
        ClusterChange { quota, moved }
    }

    /// Labels or annotations of a namespace have changed. Returns whether other cluster quotas select it now.
    pub fn reselect(&mut self, id: NamespaceId, namespaces: &mut Namespaces) -> bool {
        let mut has_changed = false;
        for quota in self.cluster.ids.clone() {
            let is_selected = self.should_select(quota, id, namespaces);
            has_changed |= self.set_selected(quota, id, is_selected, namespaces);
        }
        namespaces.forget_if_empty(id);
        has_changed
    }

    fn should_select(&self, quota: QuotaId, id: NamespaceId, namespaces: &Namespaces) -> bool {
        let selector = self.get(quota).and_then(QuotaRecord::cluster).map(|cluster| &cluster.selector);
        let namespace = namespaces.get(id);
        self.cluster.are_allowed
            && selector.zip(namespace).is_some_and(|(selector, namespace)| selector.selects(namespace))
    }

    /// Selects the namespaces of a quota anew. Returns those that it did not select, or does not any more.
    fn select(&mut self, quota: QuotaId, namespaces: &mut Namespaces) -> Vec<NamespaceId> {
        let mut moved: Vec<NamespaceId> = Vec::new();
        let all: Vec<NamespaceId> = namespaces.iter().map(|(id, _)| id).collect();
        for id in all {
            let is_selected = self.should_select(quota, id, namespaces);
            if self.set_selected(quota, id, is_selected, namespaces) {
                moved.push(id);
            }
        }
        moved
    }

    fn set_selected(
        &mut self,
        quota: QuotaId,
        id: NamespaceId,
        is_selected: bool,
        namespaces: &mut Namespaces,
    ) -> bool {
        let Some(cluster) = self.records.get_mut(&quota).and_then(|record| record.cluster_mut()) else {
            return false;
        };
        let has_changed =
            if is_selected { cluster.namespaces.insert(id) } else { cluster.namespaces.remove(&id) };
        if has_changed {
            self.cluster.changed.insert(quota);
            if let Some(namespace) = namespaces.get_mut(id) {
                cluster.moved.insert(Arc::clone(&namespace.name));
                namespace.set_quota(quota, is_selected);
            }
        }
        has_changed
    }

    /// Whether [`Self::take_changed_clusters`] has any.
    #[must_use]
    pub fn have_clusters_changed(&self) -> bool {
        !self.cluster.changed.is_empty()
    }

    /// The cluster quotas that are specified otherwise, or select other namespaces, than when this was asked last.
    pub fn take_changed_clusters(&mut self) -> BTreeSet<QuotaId> {
        std::mem::take(&mut self.cluster.changed)
    }

    /// [`Self::take_changed_clusters`] returns the quota again.
    pub fn note_changed_cluster(&mut self, id: QuotaId) {
        self.cluster.changed.insert(id);
    }

    /// There is something else to show of these namespaces of the quota, and of its total.
    pub fn note_changed_namespaces(&mut self, id: QuotaId, names: impl IntoIterator<Item = Arc<str>>) {
        if let Some(cluster) = self.records.get_mut(&id).and_then(|record| record.cluster_mut()) {
            cluster.moved.extend(names);
            self.cluster.changed.insert(id);
        }
    }

    /// Names of the namespaces that a quota selects now and did not, or the other way round, when this was asked last, and
    /// those of [`Self::note_changed_namespaces`].
    pub fn take_moved(&mut self, id: QuotaId) -> BTreeSet<Arc<str>> {
        let cluster = self.records.get_mut(&id).and_then(|record| record.cluster_mut());
        cluster.map(|cluster| std::mem::take(&mut cluster.moved)).unwrap_or_default()
    }

    pub fn begin_charge_list(&mut self) {
        self.cluster.charges.begin_list();
    }

    /// The list of charges is complete. Returns the quotas whose charge is not there any more.
    pub fn end_charge_list(&mut self) -> Vec<QuotaId> {
        let gone = self.cluster.charges.end_list();
        gone.iter().filter_map(|(quota, _)| self.on_charge_gone(quota)).collect()
    }

    /// The object that records a quota's charges was seen. Returns the quota if that says something new about it.
    pub fn upsert_charge(&mut self, wire: &ClusterQuotaChargeWire, by: Source) -> Option<QuotaId> {
        let meta = &wire.metadata;
        // The object's name is the quota's uid.
        let quota = Uid::parse(meta.name.as_deref().unwrap_or_default());
        let object = ChargeObject {
            uid: Uid::parse(meta.uid.as_deref().unwrap_or_default()),
            version: Version::parse(meta.resource_version.as_deref()),
        };
        let charges = &mut self.cluster.charges;
        if let Some(known) = charges.get(&quota) {
            let is_another = known.object.uid != object.uid;
            let is_older = object.version.is_older_than(known.object.version);
            let is_known = is_older || object == known.object && object.version != Version::default();
            if !is_another {
                charges.see(&quota, by);
            }
            if is_known {
                return None;
            }
            if is_another {
                charges.remove(&quota);
            }
        }
        let shared = &mut self.shared;
        let recorded = wire.status.as_ref().map(|status| Recorded::read(status, shared)).unwrap_or_default();
        self.cluster.charges.insert(quota.clone(), Charge { object, recorded });
        let id = self.find_cluster_by_uid(&quota)?;
        self.take_charge(id);
        Some(id)
    }

    /// The object that records the charges of the quota with this uid is gone. Returns the quota if there is one.
    pub fn remove_charge(&mut self, quota: &Uid) -> Option<QuotaId> {
        self.cluster.charges.remove(quota)?;
        self.on_charge_gone(quota)
    }

    fn on_charge_gone(&mut self, quota: &Uid) -> Option<QuotaId> {
        let id = self.find_cluster_by_uid(quota)?;
        if let Some(cluster) = self.records.get_mut(&id).and_then(|record| record.cluster_mut()) {
            cluster.charge = None;
        }
        Some(id)
    }

    fn take_charge(&mut self, id: QuotaId) {
        let Some(record) = self.records.get_mut(&id) else { return };
        let Some(charge) = self.cluster.charges.get(&record.uid) else { return };
        record.recorded = charge.recorded.clone();
        if let Some(cluster) = record.cluster_mut() {
            cluster.charge = Some(charge.object.clone());
        }
    }

    /// The quota has another handle, or none any more.
    pub(super) fn move_cluster(&mut self, old: QuotaId, new: Option<QuotaId>) {
        if !self.cluster.ids.remove(&old) {
            return;
        }
        self.cluster.ids.extend(new);
        self.cluster.changed.remove(&old);
        self.cluster.changed.extend(new);
        self.cluster.by_uid.retain(|_, id| {
            let is_moved = *id == old;
            *id = new.filter(|_| is_moved).unwrap_or(*id);
            !is_moved || new.is_some()
        });
    }
}
