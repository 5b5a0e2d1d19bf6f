//! What is to be written: pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use kube::Resource as _;
use serde_json::{Value, json};
use sluice_api::ApplicationAwareClusterResourceQuota;
use sluice_engine::{QuotaId, StatusTarget};
use sluice_index::{AacrqWire, AcrqWire, Listed, Source};

use super::digest::Digest;
use super::mirror::{mirror, mirror_key};
use super::retries::{MirrorKey, Object, Retries};
use super::status::{Told, Used, entry, listed, mirror_status, quota_status, without_told};
use crate::{ClusterView, Moment};

/// The least time between a write of a status and one that only tells something else of pods (milliseconds).
const TOLD_SPACING_MS: u64 = 10_000;

/// What a mirror says of namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MirrorNamespaces {
    /// Only its own: tenants do not see what others take.
    #[default]
    Own,
    /// All, as upstream's do.
    All,
}

/// A request that changes an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    Status(Arc<str>, Value),
    /// A mirror that does not exist.
    Create(MirrorKey, Value),
    /// A mirror that says something else.
    Replace(MirrorKey, Value),
    /// A mirror in a namespace that the quota does not select: by uid.
    Delete(MirrorKey, String),
}

impl Write {
    pub(super) fn object(&self) -> Object {
        match self {
            Self::Status(name, _) => Object::Quota(Arc::clone(name)),
            Self::Create(key, _) | Self::Replace(key, _) | Self::Delete(key, _) => {
                Object::Mirror(key.clone())
            }
        }
    }
}

/// A quota as it is, and what there is to show of it.
#[derive(Debug)]
struct Quota {
    uid: String,
    version: Option<String>,
    spec: Value,
    status: Value,
    view: Option<View>,
    /// The last mirror whose total was looked at, while not all have been since the total changed.
    round: Option<Round>,
    /// When its status was written last (milliseconds).
    written_ms: Option<u64>,
}

#[derive(Debug)]
struct View {
    handle: QuotaId,
    total: Result<StatusTarget, Arc<str>>,
    told: Told,
    used: Used,
}

/// A tour of all mirrors of a quota.
#[derive(Debug, Default)]
struct Round {
    /// The last one that was looked at.
    at: Option<Arc<str>>,
    /// The total has changed meanwhile: another round follows.
    again: bool,
}

#[derive(Debug)]
struct Mirror {
    uid: String,
    version: Option<String>,
    digest: Digest,
}

/// Everything that is shown, as it is and as it should be.
#[derive(Debug, Default)]
pub struct Planner {
    shows: MirrorNamespaces,
    quotas: Listed<Arc<str>, Quota>,
    names: HashMap<QuotaId, Arc<str>>,
    mirrors: Listed<MirrorKey, Mirror>,
    /// Quotas whose status may have to be written.
    changed: BTreeSet<Arc<str>>,
    /// Mirrors that may have to be written for another reason than the total.
    urgent: BTreeSet<MirrorKey>,
    retries: Retries,
}

impl Planner {
    /// `seed` spreads the waits after failures apart.
    #[must_use]
    pub fn new(shows: MirrorNamespaces, seed: u64) -> Self {
        Self { shows, retries: Retries::new(seed), ..Self::default() }
    }

    pub(super) fn begin_quotas(&mut self) {
        self.quotas.begin_list();
    }

    pub(super) fn end_quotas(&mut self) {
        for (_, quota) in self.quotas.end_list() {
            self.on_quota_gone(&quota);
        }
    }

    /// A quota is this now.
    pub fn apply_quota(&mut self, wire: &AcrqWire, by: Source) {
        let meta = &wire.metadata;
        let name: Arc<str> = meta.name.as_deref().unwrap_or_default().into();
        let uid = meta.uid.clone().unwrap_or_default();
        if self.quotas.get(&name).is_some_and(|known| known.uid != uid) {
            self.delete_quota(&name);
        }
        let quota = self.quotas.see_or_insert(Arc::clone(&name), by, || Quota {
            uid,
            version: None,
            spec: Value::Null,
            status: Value::Null,
            view: None,
            round: None,
            written_ms: None,
        });
        quota.version.clone_from(&meta.resource_version);
        quota.status = wire.status.clone();
        if quota.spec != wire.spec {
            quota.spec = wire.spec.clone();
            let namespaces = quota.view.iter().flat_map(|view| view.used.keys());
            self.urgent.extend(namespaces.map(|namespace| (Arc::clone(&name), Arc::clone(namespace))));
        }
        self.changed.insert(name);
    }

    /// Its mirrors are collected with it: they have an owner reference.
    pub(super) fn delete_quota(&mut self, name: &str) {
        if let Some(quota) = self.quotas.remove(name) {
            self.on_quota_gone(&quota);
        }
    }

    fn on_quota_gone(&mut self, quota: &Quota) {
        if let Some(view) = &quota.view {
            self.names.remove(&view.handle);
        }
    }

    pub(super) fn begin_mirrors(&mut self) {
        self.mirrors.begin_list();
    }

    pub(super) fn end_mirrors(&mut self) {
        self.urgent.extend(self.mirrors.end_list().into_iter().map(|(key, _)| key));
    }

    /// A mirror is this now.
    pub fn apply_mirror(&mut self, wire: &AacrqWire, by: Source) {
        let key = mirror_key(wire);
        let meta = &wire.metadata;
        let uid = meta.uid.clone().unwrap_or_default();
        if self.mirrors.see(&key, by).is_some_and(|known| known.uid != uid) {
            self.mirrors.remove(&key);
        }
        let (version, digest) = (meta.resource_version.clone(), Digest::of(wire));
        self.mirrors.insert(key.clone(), Mirror { uid, version, digest });
        self.urgent.insert(key);
    }

    pub(super) fn delete_mirror(&mut self, wire: &AacrqWire) {
        let key = mirror_key(wire);
        self.mirrors.remove(&key);
        self.urgent.insert(key);
    }

    /// Whether all namespaces of the quota are to be looked at, not only those that have changed.
    #[must_use]
    pub fn needs_all(&self, id: QuotaId) -> bool {
        !self.names.contains_key(&id)
    }

    /// There is this to show. With `all`, the quota has no other namespaces.
    pub fn show(&mut self, view: ClusterView, all: bool) {
        let (name, uid) = (&view.name, view.uid.to_string());
        let Some(quota) = self.quotas.get_mut(name).filter(|quota| quota.uid == uid) else { return };
        let old = quota.view.take();
        if let Some(old) = &old {
            self.names.remove(&old.handle);
        }
        self.names.insert(view.id, Arc::clone(name));
        let has_changed = old.as_ref().is_none_or(|old| old.total != view.total);
        let mut used = old.map(|old| old.used).unwrap_or_default();
        let key = |namespace: &Arc<str>| (Arc::clone(name), Arc::clone(namespace));
        if all {
            self.urgent.extend(used.keys().map(key));
            let of_quota = (Bound::Included(key(&Arc::from(""))), Bound::Unbounded);
            let known = self.mirrors.range(of_quota).take_while(|((quota, _), _)| quota == name);
            self.urgent.extend(known.map(|(key, _)| key.clone()));
            used.clear();
        }
        for (namespace, amounts) in view.namespaces {
            self.urgent.insert(key(&namespace));
            match amounts {
                Some(amounts) => _ = used.insert(namespace, amounts.into()),
                None => _ = used.remove(&namespace),
            }
        }
        if has_changed || self.shows == MirrorNamespaces::All {
            quota.round.get_or_insert_default().again = true;
        }
        let told = Told { held: view.held, oldest: view.held_told, unevaluated: view.unevaluated };
        quota.view = Some(View { handle: view.id, total: view.total, told, used });
        self.changed.insert(Arc::clone(name));
    }

    /// All namespaces of the quota are to be looked at again.
    pub(super) fn forget_view(&mut self, id: QuotaId) {
        self.names.remove(&id);
    }

    /// Whether [`Self::plan`] has more to write.
    pub(super) fn has_more(&self) -> bool {
        !self.changed.is_empty()
            || !self.urgent.is_empty()
            || self.quotas.values().any(|quota| quota.round.is_some())
    }

    /// When something that failed is to be tried again (milliseconds).
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.retries.next_due_ms()
    }

    /// The request failed, and no watch will tell of the object: it is tried again later, each time twice as late.
    /// Others go on.
    pub(super) fn failed(&mut self, write: &Write, now: Moment) {
        self.retries.failed(write.object(), now.mono_ms);
    }

    /// The request was done.
    pub fn done(&mut self, write: &Write) {
        self.retries.forget(&write.object());
    }

    /// The statuses to write now, and so many mirrors, each once.
    pub fn plan(&mut self, mirrors: usize, now: Moment) -> Vec<Write> {
        for object in self.retries.take_due(now.mono_ms) {
            match object {
                Object::Quota(name) => _ = self.changed.insert(name),
                Object::Mirror(key) => _ = self.urgent.insert(key),
            }
        }
        let mut writes = Vec::new();
        for name in std::mem::take(&mut self.changed) {
            let object = Object::Quota(Arc::clone(&name));
            let mut later = None;
            let plan = |planner: &Self| planner.plan_status(&name, &mut later, now);
            let write = self.unless_waiting(object.clone(), now, plan);
            if let Some(quota) = self.quotas.get_mut(&name).filter(|_| write.is_some()) {
                quota.written_ms = Some(now.mono_ms);
            }
            if let Some(at_ms) = later {
                self.retries.look_again(object, at_ms);
            }
            writes.extend(write);
        }
        let mut written: BTreeMap<MirrorKey, Write> = BTreeMap::new();
        while written.len() < mirrors
            && let Some(key) = self.urgent.pop_first()
        {
            let object = Object::Mirror(key.clone());
            let write = self.unless_waiting(object, now, |planner| planner.plan_mirror(&key, true, now));
            written.extend(write.map(|write| (key, write)));
        }
        for name in self.quotas.keys().cloned().collect::<Vec<_>>() {
            while written.len() < mirrors
                && let Some(key) = self.next_of_round(&name)
            {
                // One that is written already gets the total of now with that.
                if !written.contains_key(&key) {
                    let object = Object::Mirror(key.clone());
                    let write =
                        self.unless_waiting(object, now, |planner| planner.plan_mirror(&key, false, now));
                    written.extend(write.map(|write| (key, write)));
                }
            }
        }
        writes.extend(written.into_values());
        writes
    }

    /// The write of an object that does not wait after a failure. If none is needed, there is nothing to try again.
    fn unless_waiting(
        &mut self,
        object: Object,
        now: Moment,
        plan: impl FnOnce(&Self) -> Option<Write>,
    ) -> Option<Write> {
        if self.retries.is_waiting(&object, now.mono_ms) {
            return None;
        }
        let write = plan(self);
        if write.is_none() {
            self.retries.forget(&object);
        }
        write
    }

    /// Sets `later` to the moment (milliseconds) of a write that only tells something else of pods.
    fn plan_status(&self, name: &Arc<str>, later: &mut Option<u64>, now: Moment) -> Option<Write> {
        let quota = self.quotas.get(name)?;
        let view = quota.view.as_ref()?;
        let total = view.total.as_ref().ok()?;
        let status = json!(quota_status(total, &view.told, &view.used, &quota.status, now.unix_s()));
        let due_ms = quota.written_ms.map_or(0, |written_ms| written_ms + TOLD_SPACING_MS);
        if due_ms > now.mono_ms && without_told(&status) == without_told(&quota.status) {
            *later = (status != quota.status).then_some(due_ms);
            return None;
        }
        (status != quota.status).then(|| {
            let object = json!({
                "apiVersion": ApplicationAwareClusterResourceQuota::api_version(&()),
                "kind": ApplicationAwareClusterResourceQuota::kind(&()),
                "metadata": { "name": **name, "uid": quota.uid, "resourceVersion": quota.version },
                "spec": quota.spec,
                "status": status,
            });
            Write::Status(Arc::clone(name), object)
        })
    }

    /// The next mirror whose total is to be looked at.
    fn next_of_round(&mut self, name: &Arc<str>) -> Option<MirrorKey> {
        let quota = self.quotas.get_mut(name)?;
        let (round, view) = (quota.round.as_mut()?, quota.view.as_ref()?);
        let after = round.at.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        if let Some((namespace, _)) = view.used.range::<Arc<str>, _>((after, Bound::Unbounded)).next() {
            round.at = Some(Arc::clone(namespace));
            return Some((Arc::clone(name), Arc::clone(namespace)));
        }
        quota.round = round.again.then(Round::default);
        None
    }

    fn plan_mirror(&self, key: &MirrorKey, is_urgent: bool, now: Moment) -> Option<Write> {
        let (name, namespace) = key;
        let quota = self.quotas.get(name)?;
        let view = quota.view.as_ref()?;
        let known = self.mirrors.get(key);
        let Some(used) = view.used.get(namespace) else {
            return known.map(|mirror| Write::Delete(key.clone(), mirror.uid.clone()));
        };
        let total = view.total.as_ref().ok()?;
        let namespaces = match self.shows {
            MirrorNamespaces::Own => vec![entry(total, namespace, used)],
            MirrorNamespaces::All => listed(total, &view.used).0,
        };
        let status = mirror_status(total, namespaces, now.unix_s());
        let known_as = known.map(|known| (known.uid.as_str(), known.version.as_deref()));
        let object = mirror((&quota.uid, &quota.spec), key, &status, known_as);
        let Some(known) = known else { return Some(Write::Create(key.clone(), object)) };
        let wanted = Digest::of(&serde_json::from_value(object.clone()).ok()?);
        let differs = if is_urgent { wanted.own != known.digest.own } else { wanted != known.digest };
        differs.then(|| Write::Replace(key.clone(), object))
    }
}
