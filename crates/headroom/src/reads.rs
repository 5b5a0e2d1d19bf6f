//! What an opening learns of quotas, budgets and other windows.

use std::sync::Arc;

use futures::future::try_join_all;
use sluice_engine::Uid;
use sluice_index::headroom::{HeadroomIndex, NativeRecord};
use sluice_index::wire::NativeQuotaWire;
use tokio::time::Instant;

use crate::hands::{Hands, PROOF_TIME, failed};
use crate::protocol::Answer;

/// Above this many quotas a namespace's are listed.
const MOST_SINGLE_READS: usize = 16;

impl Hands<'_> {
    pub(crate) async fn read(&mut self) -> Answer {
        let wires = match self.read_quotas().await {
            Ok(wires) => wires,
            Err(error) => return failed("reading the namespace's quotas", &error),
        };
        let records = wires.iter().map(NativeRecord::read);
        self.records = records.map(|record| (Arc::clone(&record.name), record)).collect();
        self.quotas()
    }

    pub(crate) fn recall(&mut self) -> Answer {
        if !self.headroom.observed.is_synced() {
            return Answer::Failed("what is known of the cluster is not complete".into());
        }
        let namespace = &self.target.namespace;
        self.records = self.headroom.observed.read(|index| {
            let records = index.quotas.records_in(namespace).iter();
            records.map(|record| (Arc::clone(&record.name), NativeRecord::clone(record))).collect()
        });
        self.quotas()
    }

    /// The quotas as they are in `records`.
    fn quotas(&self) -> Answer {
        let (budget, namespace_opted_out) = self
            .headroom
            .observed
            .read(|index| (index.budget(&self.target.namespace), index.opted_out(&self.target.namespace)));
        let mut quotas: Vec<_> = self.records.values().map(NativeRecord::native).collect();
        quotas.sort_by(|a, b| a.name.cmp(&b.name));
        for quota in &mut quotas {
            quota.opted_out |= namespace_opted_out;
        }
        Answer::Quotas { quotas, budget, left: self.lock_end.saturating_duration_since(Instant::now()) }
    }

    /// Each known quota by its name: an API server answers that from storage, while it lets a list wait until its cache
    /// has caught up, which takes ten times as long.
    async fn read_quotas(&self) -> kube::Result<Vec<NativeQuotaWire>> {
        let (requests, namespace) = (&self.headroom.requests, &self.target.namespace);
        let names: Vec<Arc<str>> = self.headroom.observed.read(|index| {
            index.quotas.records_in(namespace).iter().map(|record| Arc::clone(&record.name)).collect()
        });
        if !self.headroom.observed.is_synced() || names.len() > MOST_SINGLE_READS {
            return requests.quotas(namespace).await;
        }
        let reads = names.iter().map(|name| requests.quota::<NativeQuotaWire>(namespace, name));
        Ok(try_join_all(reads).await?.into_iter().flatten().collect())
    }

    pub(crate) async fn read_budget(&self) -> Answer {
        let namespace = &self.target.namespace;
        match self.headroom.requests.budget(namespace).await {
            Ok(budget) => {
                self.headroom.observed.learn(&budget);
                Answer::BudgetRead
            }
            Err(error) => failed("reading the namespace's budget", &error),
        }
    }

    pub(crate) async fn catch_up(&self) -> Answer {
        let Some(window) = &self.window else { return Answer::CaughtUp };
        let (namespace, uid) = (&self.target.namespace, Uid::parse(&window.uid));
        let shown =
            |index: &HeadroomIndex| index.windows.get(namespace).filter(|known| known.uid == uid).map(drop);
        self.headroom.observed.until(PROOF_TIME, shown).await;
        Answer::CaughtUp
    }
}
