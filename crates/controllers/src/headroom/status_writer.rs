//! Keeps the status of what grants head-room up to date: one write at a time, and only of what changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use kube::core::Request;
use parking_lot::Mutex;
use serde_json::Value;
use sluice_api::{HeadroomPolicy, VirtualMachineMigrationResourceQuota, names};
use sluice_index::{Cluster, Key, Policy, Sums, amounts_of, sum_of};
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::lease::WriteToken;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::request;
use sluice_runtime::retry::{Failure, classify};
use sluice_window::Observed;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::blocked_migrations::State;
use super::status_patches::{Covered, policy_patch, vmmrq_patch};
use crate::status_write::patch_status;

/// Changes are collected for so long before they are written: what migrations use comes and goes, and a display must not
/// compete with the raises and restores that it tells of.
const COLLECT_TIME: Duration = Duration::from_secs(1);

/// Takes notes of what changed; clones share them.
#[derive(Clone, Debug, Default)]
pub struct HeadroomStatusWriter {
    pending: Arc<Mutex<Pending>>,
    news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Pending {
    namespaces: BTreeSet<Arc<str>>,
    all: bool,
}

impl HeadroomStatusWriter {
    /// Something that is reported may have changed in these namespaces.
    pub(super) fn changed(&self, namespaces: impl IntoIterator<Item = Arc<str>>) {
        let mut pending = self.pending.lock();
        let before = pending.namespaces.len();
        pending.namespaces.extend(namespaces);
        if pending.namespaces.len() != before {
            self.news.notify_one();
        }
    }

    /// Something that is reported may have changed anywhere.
    pub(super) fn everything(&self) {
        self.pending.lock().all = true;
        self.news.notify_one();
    }

    /// Writes until `cancel`, while `token` is held.
    pub async fn run(
        self,
        (state, observed): (Arc<Mutex<State>>, Arc<Observed>),
        client: Client,
        token: WriteToken,
        writes: ApiWrites,
        cancel: CancellationToken,
    ) {
        let mut planner = StatusPlanner { state, observed, views: HashMap::new(), written: HashMap::new() };
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
        let work = async {
            loop {
                self.news.notified().await;
                tokio::time::sleep(COLLECT_TIME).await;
                let pending = std::mem::take(&mut *self.pending.lock());
                let mut failed = false;
                for (key, write) in planner.plan(&pending) {
                    if !token.is_held() {
                        continue;
                    }
                    let version = write.version.clone();
                    let object = (write.plural, &write.kind, &*key.name);
                    match patch_status(&client, &writes, object, &write.patch).await {
                        Ok(()) => _ = planner.written.insert((write.plural, key), version),
                        // A watch tells of the version that is there now.
                        Err(error) if matches!(classify(&error), Failure::Conflict | Failure::NotFound) => {}
                        Err(error) => {
                            tracing::warn!(path = %write.kind.url_path, name = %key.name, %error, "status not written");
                            self.changed([Arc::clone(&key.namespace)]);
                            failed = true;
                        }
                    }
                }
                if failed {
                    tokio::time::sleep(backoff.failed()).await;
                } else {
                    backoff.reset();
                }
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
    }
}

/// A write of a status.
struct Write {
    plural: &'static str,
    /// Requests about the objects of its kind.
    kind: Request,
    version: Option<String>,
    patch: Value,
}

struct StatusPlanner {
    state: Arc<Mutex<State>>,
    observed: Arc<Observed>,
    views: HashMap<Arc<str>, View>,
    /// The versions that were already answered with a write: what comes of it is on its way.
    written: HashMap<(&'static str, Key), Option<String>>,
}

/// What a policy covers, by namespace.
#[derive(Default)]
struct View {
    version: String,
    over: BTreeMap<Arc<str>, Sums>,
}

impl StatusPlanner {
    fn plan(&mut self, pending: &Pending) -> Vec<(Key, Write)> {
        let mut writes = self.plan_vmmrqs(pending);
        writes.extend(self.plan_policies(pending));
        let observed = &self.observed;
        self.written.retain(|(plural, key), version| {
            observed.read(|index| current(index, plural, key)) == Some(version.clone())
        });
        writes.retain(|(key, write)| {
            self.written.get(&(write.plural, key.clone())).is_none_or(|version| *version != write.version)
        });
        writes
    }

    fn plan_vmmrqs(&self, pending: &Pending) -> Vec<(Key, Write)> {
        let objects: Vec<_> = self.observed.read(|index| {
            if pending.all {
                index.vmmrqs.iter().cloned().collect()
            } else {
                let dirty = pending.namespaces.iter();
                dirty.flat_map(|namespace| index.vmmrqs.in_namespace(namespace)).cloned().collect()
            }
        });
        let now = Timestamp::now();
        let mut writes = Vec::new();
        for object in objects {
            let Some(stated) = &object.stated else { continue };
            let summary = self.state.lock().summary(&object.namespace);
            let Some(patch) = vmmrq_patch(stated, &object.errors, &summary, now) else { continue };
            let kind = request::objects::<VirtualMachineMigrationResourceQuota>(Some(&object.namespace));
            let version = stated.resource_version.clone();
            writes.push((object.key(), Write { plural: names::VMMRQS, kind, version, patch }));
        }
        writes
    }

    fn plan_policies(&mut self, pending: &Pending) -> Vec<(Key, Write)> {
        let objects = self.observed.read(|index| index.policies.all().to_vec());
        self.views.retain(|name, _| objects.iter().any(|object| object.name == *name));
        let now = Timestamp::now();
        let mut writes = Vec::new();
        for object in objects {
            let Some(stated) = &object.stated else { continue };
            let Some(covered) = self.covered(&object.name, pending) else { continue };
            let Some(patch) = policy_patch(stated, &covered, now) else { continue };
            let kind = request::objects::<HeadroomPolicy>(None);
            let version = stated.resource_version.clone();
            writes.push((object.key(), Write { plural: names::HEADROOM_POLICIES, kind, version, patch }));
        }
        writes
    }

    /// What the policy covers. Namespaces in which nothing changed are not looked at again.
    fn covered(&mut self, name: &Arc<str>, pending: &Pending) -> Option<Covered> {
        let view = self.views.entry(Arc::clone(name)).or_default();
        let policy = self.observed.read(|index| index.policies.get(name).cloned())?;
        let version = policy.version.to_string();
        let namespaces: Vec<Arc<str>> = if pending.all || version != view.version {
            view.version = version;
            view.over.clear();
            self.observed
                .read(|index| index.namespaces.all().iter().map(|one| Arc::clone(&one.name)).collect())
        } else {
            pending.namespaces.iter().cloned().collect()
        };
        // One namespace at a time: events of pods wait while the index is read.
        for namespace in &namespaces {
            self.observed.read(|index| view.look(index, &policy, namespace));
        }
        let mut covered = view.covered(&policy);
        let state = self.state.lock();
        covered.forbidden = view.over.keys().find_map(|namespace| state.summary(namespace).forbidden);
        Some(covered)
    }
}

/// The version that is known of the object whose status is written.
fn current(index: &Cluster, plural: &str, key: &Key) -> Option<Option<String>> {
    if plural == names::VMMRQS {
        let stated = index.vmmrqs.get(&key.namespace, &key.name)?.stated.as_ref()?;
        Some(stated.resource_version.clone())
    } else {
        let stated = index.policies.get(&key.name)?.stated.as_ref()?;
        Some(stated.resource_version.clone())
    }
}

impl View {
    fn look(&mut self, index: &Cluster, policy: &Policy, namespace: &Arc<str>) {
        self.over.remove(namespace);
        let Some(record) = index.namespaces.get(namespace).filter(|record| policy.covers(record)) else {
            return;
        };
        let over = index.overdraft_in(namespace, policy, |quota| quota.native().overdraft());
        self.over.insert(Arc::clone(&record.name), over);
    }

    fn covered(&self, policy: &Policy) -> Covered {
        let used = amounts_of(&sum_of(self.over.values())).into_iter();
        let used = used.map(|(key, amount)| (key.to_string(), Quantity(amount.to_string())));
        Covered {
            namespaces: i64::try_from(self.over.len()).unwrap_or(i64::MAX),
            used: used.collect(),
            errors: policy.errors.clone(),
            forbidden: None,
        }
    }
}
