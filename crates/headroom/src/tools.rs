//! What a session works with: reads, writes, probes, and what is known of the cluster.

use std::sync::Arc;

use sluice_engine::headroom::Account;
use sluice_index::{LauncherRecord, Observed, ResourceQuotaRecord};
use sluice_runtime::api_servers::Servers;

use crate::looks::Looks;
use crate::metrics::HeadroomMetrics;
use crate::observed_locks::ObservedLocks;
use crate::probes::Probes;
use crate::proofs::Proofs;
use crate::protocol::Snapshot;
use crate::requests::Requests;
use crate::status_writer::StatusWriter;

/// Above this many quotas a namespace's are listed.
const MOST_SINGLE_READS: usize = 16;
/// How long a lock holds when it is taken or renewed, if it is not ended before; the admission policy allows no more.
pub(crate) const LOCK_SECONDS: i64 = 10;

/// What all sessions share.
pub(crate) struct Tools {
    pub(crate) observed: Arc<Observed>,
    pub(crate) locks: ObservedLocks,
    pub(crate) looks: Looks,
    pub(crate) requests: Requests,
    pub(crate) writer: StatusWriter,
    pub(crate) probes: Probes,
    pub(crate) proofs: Proofs,
    pub(crate) metrics: HeadroomMetrics,
    pub(crate) servers: Arc<Servers>,
    pub(crate) seed: u64,
}

impl Tools {
    /// Why nothing is raised now; `None` if it can be.
    pub(crate) fn unproven(&self) -> Option<Arc<str>> {
        self.hidden().map(Into::into).or_else(|| self.proofs.missing())
    }

    pub(crate) fn hidden(&self) -> Option<String> {
        self.servers.hidden(self.requests.clock.reckoned())
    }

    /// What a plan takes: these quotas, the budget as it is known, what explains the usage above the quotas, the API
    /// server's clock and a mark of its own. `live`: all pods of the namespace, as they were just listed.
    pub(crate) fn snapshot(
        &self,
        namespace: &str,
        records: &[Arc<ResourceQuotaRecord>],
        live: Option<&[LauncherRecord]>,
    ) -> Snapshot {
        let now_ms = self.server_now_ms();
        let now = now_ms.div_euclid(1000);
        let mut quotas: Vec<_> = records.iter().map(|record| record.native()).collect();
        let is_above = quotas.iter().any(|quota| !quota.overdraft().is_empty());
        let (budget, opted_out, account) = self.observed.read(|index| {
            let account = if is_above { index.account(namespace, live, now) } else { Account::default() };
            (index.budget(namespace, now), index.opted_out(namespace), account)
        });
        quotas.iter_mut().for_each(|quota| quota.opted_out |= opted_out);
        Snapshot { quotas, budget, account, now_ms, mark: self.mark(now_ms) }
    }

    /// All pods of a namespace, not from a cache; its machines and migrations are learnt beside,
    /// for pods are judged by them.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) async fn pods(&self, namespace: &str) -> kube::Result<Vec<LauncherRecord>> {
        let (requests, observed) = (&self.requests, &self.observed);
        let (pods, (machines, migrations)) =
            futures::try_join!(requests.pods(namespace), requests.machines(namespace))?;
        observed.learn_machines(&machines, &migrations);
        Ok(pods)
    }

    /// The quotas of a namespace as the watch has shown them.
    pub(crate) fn known_quotas(&self, namespace: &str) -> Vec<Arc<ResourceQuotaRecord>> {
        self.observed.read(|index| index.resource_quotas.records_in(namespace).to_vec())
    }

    /// The end of a lock taken now, unlike that of any other: sessions of one second differ in the milliseconds, which do
    /// not count for the end. Neither it nor the next one is a multiple of 1000, which would be stored in another way.
    fn mark(&self, now_ms: i64) -> i64 {
        use std::hash::{BuildHasher as _, RandomState};
        let draw = RandomState::new().hash_one(self.seed) % 499;
        (now_ms.div_euclid(1000) + LOCK_SECONDS) * 1000 + 1 + 2 * i64::try_from(draw).unwrap_or(0)
    }

    /// All quotas of a namespace, not from a cache. Each known quota is read by its name: an API server answers that from
    /// storage, while it lets a list wait until its cache has caught up, which takes ten times as long.
    pub(crate) async fn quotas(&self, namespace: &Arc<str>) -> kube::Result<Vec<Arc<ResourceQuotaRecord>>> {
        let names: Vec<_> =
            self.known_quotas(namespace).iter().map(|record| Arc::clone(&record.name)).collect();
        let wires = if names.len() > MOST_SINGLE_READS {
            self.requests.quotas(namespace).await?
        } else {
            let reads = names.iter().map(|name| self.requests.quota(namespace, name));
            futures::future::try_join_all(reads).await?.into_iter().flatten().collect()
        };
        let mut records: Vec<_> =
            wires.iter().map(|wire| Arc::new(ResourceQuotaRecord::read(wire))).collect();
        records.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(records)
    }

    /// The API server's clock, as reckoned from its last answer; milliseconds since the epoch.
    pub(crate) fn server_now_ms(&self) -> i64 {
        self.requests.clock.reckoned().as_millisecond()
    }
}
