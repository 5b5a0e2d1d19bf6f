//! What the status of a quota is to say: what is taken, who waits, and what is not enforced.

use sluice_engine::{
    CompiledQuota, CountedBy, ManagedStatus, PodId, QuotaId, QuotaKind, StatusTarget, claims_uncounted,
    status_target,
};
use sluice_index::QuotaRecord;

use super::Accounts;
use crate::cluster::Cluster;
use crate::explain::{HeldTold, Lack, Obstacle};
use crate::stage::Stage;

impl Accounts {
    /// The target with what is told of pods and claims that the quota does not limit.
    fn with_unenforced(
        &self,
        cluster: &Cluster,
        kind: QuotaKind,
        quota: &QuotaRecord,
        compiled: &CompiledQuota,
        mut target: StatusTarget,
    ) -> StatusTarget {
        let ungated = match kind {
            QuotaKind::Namespace => cluster.unenforced(quota, compiled),
            QuotaKind::Cluster => cluster.unenforced_in_cluster(quota, compiled),
        };
        target.unenforced = ungated.or_else(|| self.unenforced_while_paused(cluster, kind, quota, compiled));
        if let Some(told) = claims_uncounted(kind, compiled, &cluster.claimed_resources) {
            let separator = if target.uncounted.is_empty() { "" } else { "; " };
            target.uncounted = format!("{}{separator}{told}", target.uncounted);
        }
        target
    }

    /// The status that a quota should have; `None` as long as its sums are not complete.
    pub fn status_of(&self, cluster: &Cluster, id: QuotaId) -> Option<StatusTarget> {
        let target = self.amounts_of(cluster, id)?;
        let (quota, compiled) = (cluster.quotas.get(id)?, self.complete(cluster, id)?);
        let kind = if quota.cluster().is_some() { QuotaKind::Cluster } else { QuotaKind::Namespace };
        Some(self.with_unenforced(cluster, kind, quota, compiled, target))
    }

    /// As [`Self::status_of`], but for what the quota does not enforce: that looks at each namespace of a cluster quota.
    pub fn amounts_of(&self, cluster: &Cluster, id: QuotaId) -> Option<StatusTarget> {
        let (quota, compiled, ledger) =
            (cluster.quotas.get(id)?, self.complete(cluster, id)?, self.stages.queue().ledger(id)?);
        let (none, own);
        let (kind, managed) = if quota.cluster().is_some() {
            none = ManagedStatus::default();
            (QuotaKind::Cluster, cluster.managed_status_of_cluster(quota).unwrap_or(&none))
        } else {
            own = cluster.managed_status(quota, compiled);
            (QuotaKind::Namespace, &own)
        };
        Some(status_target(kind, compiled, ledger, managed, self.counted_by(cluster)))
    }

    pub fn counted_by(&self, cluster: &Cluster) -> CountedBy {
        CountedBy { machines: cluster.machines.counted_by(), evaluators: self.evaluations.is_on() }
    }

    /// What is to be recorded of a quota: its status, or what pods take of a cluster quota; `None` as [`Self::status_of`].
    pub fn record_of(&self, cluster: &Cluster, id: QuotaId) -> Option<StatusTarget> {
        let quota = cluster.quotas.get(id)?;
        let (compiled, ledger) = (self.complete(cluster, id)?, self.stages.queue().ledger(id)?);
        let managed = cluster.managed_status(quota, compiled);
        let target =
            status_target(QuotaKind::Namespace, compiled, ledger, &managed, self.counted_by(cluster));
        Some(self.with_unenforced(cluster, QuotaKind::Namespace, quota, compiled, target))
    }

    /// How many pods wait for the quota, as its status says it.
    pub fn held_by(&self, id: QuotaId) -> i64 {
        i64::try_from(self.stages.queue().held(id)).unwrap_or(i64::MAX)
    }

    /// Of the pods that wait for the quota the one that was created first: of equal ones the first by name, whichever
    /// process looks.
    pub fn oldest(&self, cluster: &Cluster, id: QuotaId) -> Option<(i64, PodId, String)> {
        let (since, pod) = self.stages.queue().oldest(id)?;
        let record = cluster.pods.get(pod)?;
        let is_of_cluster = cluster.quotas.get(id)?.cluster().is_some();
        let namespace = &cluster.namespaces.get(record.namespace)?.name;
        let name =
            if is_of_cluster { format!("{namespace}/{}", record.name) } else { record.name.to_string() };
        Some((since, pod, name))
    }

    /// What the condition `PodsHeld` of a quota says; `None`: no pod waits for it.
    pub fn held_told(&self, cluster: &Cluster, id: QuotaId) -> Option<HeldTold> {
        let held = self.stages.queue().held(id);
        let (since, pod, name) = self.oldest(cluster, id)?;
        let name_of = cluster.quota_name(id)?;
        let why = match self.stages.get(pod) {
            Stage::Waiting(class) => {
                let obstacles = self.obstacles(cluster, *class);
                obstacles.iter().find(|it| it.quota == name_of).map(lacks)
            }
            _ => None,
        };
        let why = why.unwrap_or_else(|| "this quota has room for it".to_owned());
        let pods = if held == 1 { "1 pod waits".to_owned() } else { format!("{held} pods wait") };
        let message = crate::explain::words::fit(
            &[format!("{pods}, the oldest is {name}: {why}")],
            crate::explain::words::MOST_BYTES,
            "",
        );
        Some(HeldTold { since, message })
    }
}

/// What the oldest pod lacks of a quota.
fn lacks(obstacle: &Obstacle) -> String {
    if obstacle.lack != Lack::Exceeded {
        return "room is kept for a pod that has waited longer".to_owned();
    }
    let keys = obstacle.keys.iter().map(|key| match key.never {
        true => format!("{} {} is more than the whole limit {}", key.key, key.needs, key.limit),
        false => format!("{} short by {}", key.key, key.short_by),
    });
    keys.collect::<Vec<_>>().join(", ")
}
