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
use sluice_index::{Cluster, Dirty, Key, Mode, Policy, Sums, amounts_of, sum_of};
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::events::Report;
use sluice_runtime::lease::WriteToken;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::request;
use sluice_runtime::retry::{Failure, classify};
use sluice_runtime::status_write::patch_status;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::blocked_migrations::Summaries;
use super::leftovers::Leftovers;
use super::metrics::LoopMetrics;
use crate::headroom::Headroom;

mod patches;

use patches::{Covered, policy_patch, vmmrq_patch};

/// Changes are collected for so long before they are written: what migrations use comes and goes, and a display must not
/// compete with the raises and restores that it tells of.
const COLLECT_TIME: Duration = Duration::from_secs(1);

/// Takes notes of what changed; clones share them.
#[derive(Clone, Debug, Default)]
pub struct GrantStatus {
    pending: Arc<Mutex<Dirty>>,
    news: Arc<Notify>,
    freed: Arc<Notify>,
}

impl GrantStatus {
    /// Something that is reported may have changed in these namespaces.
    pub(super) fn changed(&self, namespaces: impl IntoIterator<Item = Arc<str>>) {
        let mut pending = self.pending.lock();
        let before = pending.namespaces.len();
        pending.namespaces.extend(namespaces);
        if pending.namespaces.len() != before {
            self.news.notify_one();
        }
    }

    /// Waits until less of a shared budget is taken than before.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Something that is reported may have changed anywhere.
    pub(super) fn everything(&self) {
        self.pending.lock().all = true;
        self.news.notify_one();
    }

    /// Writes until `cancel`, while `token` is held.
    pub async fn run(
        self,
        (summaries, headroom): (Summaries, Arc<Headroom>),
        (metrics, tell): (LoopMetrics, impl Fn(Report)),
        client: Client,
        token: WriteToken,
        writes: ApiWrites,
        cancel: CancellationToken,
    ) {
        let mut planner = StatusPlanner {
            summaries,
            headroom,
            views: HashMap::new(),
            above: BTreeSet::new(),
            leftovers: Leftovers::new(metrics.clone()),
            metrics,
            freed: false,
        };
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
        let work = async {
            loop {
                let due = async {
                    // Only the leader tells.
                    match planner.leftovers.due().filter(|_| token.is_held()) {
                        Some(at) => tokio::time::sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = self.news.notified() => tokio::time::sleep(COLLECT_TIME).await,
                    () = due => {}
                }
                let pending = std::mem::take(&mut *self.pending.lock());
                let mut failed = false;
                planner.look_for_leftovers(&pending);
                if token.is_held() {
                    planner.leftovers.tell().into_iter().for_each(&tell);
                }
                let planned = planner.plan(&pending);
                if std::mem::take(&mut planner.freed) {
                    self.freed.notify_one();
                }
                for (key, write) in planned {
                    if !token.is_held() {
                        continue;
                    }
                    let object = (write.plural, &write.kind, &*key.name);
                    match patch_status(&client, &writes, object, &write.patch).await {
                        Ok(()) => {}
                        // A watch tells of the version that is there now, be it of our own last write.
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

struct Write {
    plural: &'static str,
    /// Requests about the objects of its kind.
    kind: Request,
    patch: Value,
}

struct StatusPlanner {
    summaries: Summaries,
    headroom: Arc<Headroom>,
    views: HashMap<Arc<str>, View>,
    /// Namespaces with a grant of managed-tenant-quota's kind that use more than their quotas.
    above: BTreeSet<Arc<str>>,
    leftovers: Leftovers,
    metrics: LoopMetrics,
    /// Less of a pool is taken than when it was last looked at.
    freed: bool,
}

/// What a policy covers, by namespace.
#[derive(Default)]
struct View {
    version: String,
    over: BTreeMap<Arc<str>, Sums>,
    total: Sums,
}

impl StatusPlanner {
    fn plan(&mut self, pending: &Dirty) -> Vec<(Key, Write)> {
        self.look_above(pending);
        let mut writes = self.plan_vmmrqs(pending);
        writes.extend(self.plan_policies(pending));
        let of_policies = self.views.values().flat_map(View::above);
        let above: BTreeSet<_> = of_policies.chain(&self.above).collect();
        self.metrics.above(above.len());
        writes
    }

    fn look_for_leftovers(&mut self, pending: &Dirty) {
        let now = self.headroom.server_now_ms().div_euclid(1000);
        let observed = self.headroom.observed();
        let namespaces: Vec<Arc<str>> = if pending.all {
            observed.read(|index| index.namespaces.all().iter().map(|one| Arc::clone(&one.name)).collect())
        } else {
            pending.namespaces.iter().cloned().collect()
        };
        for namespace in &namespaces {
            observed.read(|index| self.leftovers.look(index, namespace, now));
        }
    }

    fn look_above(&mut self, pending: &Dirty) {
        self.headroom.observed().read(|index| {
            let is_above = |namespace: &Arc<str>| {
                let quotas = index.resource_quotas.records_in(namespace);
                !index.vmmrqs.in_namespace(namespace).is_empty()
                    && quotas.iter().any(|quota| !quota.native().overdraft().is_empty())
            };
            if pending.all {
                let granted = index.vmmrqs.iter().map(|one| Arc::clone(&one.namespace));
                self.above = granted.filter(is_above).collect();
            }
            for namespace in &pending.namespaces {
                match is_above(namespace) {
                    true => self.above.insert(Arc::clone(namespace)),
                    false => self.above.remove(namespace),
                };
            }
        });
    }

    /// Whether the namespace uses more than its quotas; `None` while a migration is under way, which may do so.
    fn is_above(&self, namespace: &Arc<str>) -> Option<bool> {
        let is_quiet = self
            .headroom
            .observed()
            .read(|index| index.vmims.in_namespace(namespace).iter().all(|migration| migration.is_final()));
        is_quiet.then(|| self.above.contains(namespace))
    }

    fn plan_vmmrqs(&self, pending: &Dirty) -> Vec<(Key, Write)> {
        let objects: Vec<_> = self.headroom.observed().read(|index| {
            if pending.all {
                index.vmmrqs.iter().cloned().collect()
            } else {
                let dirty = pending.namespaces.iter();
                dirty.flat_map(|namespace| index.vmmrqs.in_namespace(namespace)).cloned().collect()
            }
        });
        let (now, unproven) = (Timestamp::now(), self.headroom.proofs().borrow().clone());
        let mut writes = Vec::new();
        for object in objects {
            let Some(stated) = &object.stated else { continue };
            let mut summary = self.summaries.lock().get(&object.namespace).cloned().unwrap_or_default();
            summary.opted_out |= self.headroom.observed().read(|index| index.opted_out(&object.namespace));
            let said = (&summary, unproven.as_deref());
            let above = self.is_above(&object.namespace);
            let Some(patch) = vmmrq_patch(stated, &object.errors, said, (above, now)) else { continue };
            let kind = request::objects::<VirtualMachineMigrationResourceQuota>(Some(&object.namespace));
            writes.push((object.key(), Write { plural: names::VMMRQS, kind, patch }));
        }
        writes
    }

    fn plan_policies(&mut self, pending: &Dirty) -> Vec<(Key, Write)> {
        let objects = self.headroom.observed().read(|index| index.policies.all().to_vec());
        self.views.retain(|name, _| objects.iter().any(|object| object.name == *name));
        let now = Timestamp::now();
        let mut writes = Vec::new();
        for object in objects {
            let Some(stated) = &object.stated else { continue };
            let Some(covered) = self.covered(&object.name, pending) else { continue };
            let Some(patch) = policy_patch(stated, &covered, now) else { continue };
            let kind = request::objects::<HeadroomPolicy>(None);
            writes.push((object.key(), Write { plural: names::HEADROOM_POLICIES, kind, patch }));
        }
        writes
    }

    /// What the policy covers. Namespaces in which nothing changed are not looked at again.
    fn covered(&mut self, name: &Arc<str>, pending: &Dirty) -> Option<Covered> {
        let view = self.views.entry(Arc::clone(name)).or_default();
        let policy = self.headroom.observed().read(|index| index.policies.get(name).cloned())?;
        let version = policy.version.to_string();
        let namespaces: Vec<Arc<str>> = if pending.all || version != view.version {
            view.version = version;
            view.over.clear();
            self.headroom
                .observed()
                .read(|index| index.namespaces.all().iter().map(|one| Arc::clone(&one.name)).collect())
        } else {
            pending.namespaces.iter().cloned().collect()
        };
        // One namespace at a time: events of pods wait while the index is read.
        for namespace in &namespaces {
            self.headroom.observed().read(|index| view.look(index, &policy, namespace));
        }
        let mut covered = view.covered(&policy);
        self.freed |= view.sum_up() && policy.mode == Mode::Pool;
        covered.unproven.clone_from(&self.headroom.proofs().borrow());
        let summaries = self.summaries.lock();
        let mut of_covered = summaries.iter().filter(|(namespace, _)| view.over.contains_key(*namespace));
        covered.forbidden = of_covered.find_map(|(_, summary)| summary.forbidden.clone());
        Some(covered)
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

    /// Adds up. Returns whether less of something is taken than before.
    fn sum_up(&mut self) -> bool {
        let total = sum_of(self.over.values());
        let before = std::mem::replace(&mut self.total, total);
        before.iter().any(|(resource, taken)| self.total.get(resource).is_none_or(|now| now < taken))
    }

    /// Namespaces that use more than a quota's `spec.hard`.
    fn above(&self) -> impl Iterator<Item = &Arc<str>> {
        self.over.iter().filter(|(_, sums)| !sums.is_empty()).map(|(namespace, _)| namespace)
    }

    fn covered(&self, policy: &Policy) -> Covered {
        let used = amounts_of(&sum_of(self.over.values())).into_iter();
        let used = used.map(|(key, amount)| (key.to_string(), Quantity(amount.to_string())));
        Covered {
            namespaces: i64::try_from(self.over.len()).unwrap_or(i64::MAX),
            used: used.collect(),
            above: self.above().cloned().collect(),
            errors: policy.errors.clone(),
            ..Covered::default()
        }
    }
}
