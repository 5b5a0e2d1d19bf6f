//! Whether stages and sums are what the pods say: the sums of a namespace's quotas are made anew from its pods, to compare.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::ledger::Line;
use sluice_engine::status::enforced;
use sluice_engine::{Amount, Claim, Ledger, PodId, QuotaId, Shares};
use sluice_index::{Gates, NamespaceId};

use super::Accounts;
use crate::cluster::Cluster;
use crate::stage::Stage;

impl Accounts {
    /// Whether what the pod is charged is what its record says, by the quotas that are about it.
    pub fn is_stage_right(&mut self, cluster: &Cluster, id: PodId) -> bool {
        let Some(record) = cluster.pods.get(id) else { return true };
        let (namespace, facts) = (record.namespace, Arc::clone(&record.scope_facts));
        let (gates, payer) = (record.gates, self.payer(cluster, id, record));
        let matching = self.matching_quotas(cluster, namespace, &facts);
        match self.stages.get(id) {
            Stage::Counted { charge: counted, quotas } => {
                let is_charged =
                    *counted == payer.charge && self.stages.owners().owner_of(id) == payer.owner.as_ref();
                gates == Gates::None && is_charged && *quotas == matching
            }
            Stage::Waiting(class) => {
                let class = self.stages.queue().class(*class);
                let charge = match &payer.owner {
                    Some(owner) => Arc::new(self.stages.need(owner, &payer.charge, &matching)),
                    None => payer.charge,
                };
                let is_charged =
                    class.is_some_and(|class| *class.charge() == charge && *class.quotas() == matching);
                gates == Gates::Ours && is_charged
            }
            // While a release is in flight the pod may have changed or been replaced; the answer shows it.
            Stage::Assumed { .. } => gates != Gates::Foreign,
            Stage::Foreign => gates == Gates::Foreign,
            Stage::Free { .. } | Stage::Stuck(_) => gates == Gates::Ours,
        }
    }

    /// Whether what the pods of a namespace take of a quota is what they are charged. For a cluster quota, its total is what
    /// its namespaces take: audited one by one, they are all of it.
    pub fn is_sum_right(&self, cluster: &Cluster, id: QuotaId, namespace: NamespaceId) -> bool {
        let Some(quota) = cluster.quotas.get(id) else { return true };
        let (Ok(compiled), Some(ledger)) = (&quota.compiled, self.stages.queue().ledger(id)) else {
            return true;
        };
        if self.reclassification.is_quota_paused(id) {
            return true;
        }
        let recount = self.recount(cluster, id, namespace, Ledger::new(enforced(compiled)));
        match self.stages.queue().shares(id) {
            Some(shares) => {
                let used: Vec<Amount> = recount.lines().iter().map(Line::used).collect();
                // Once in a round is enough for the total.
                let is_first = quota.namespaces().next() == Some(namespace);
                is_nothing_or(&used, shares.get(namespace.share())) && (!is_first || sum_up(shares, ledger))
            }
            None => {
                ledger.lines().len() == recount.lines().len()
                    && ledger.lines().iter().zip(recount.lines()).all(|(kept, made)| {
                        kept.claimed(Claim::Counted) == made.claimed(Claim::Counted)
                            && kept.claimed(Claim::Assumed) == made.claimed(Claim::Assumed)
                    })
            }
        }
    }

    /// Adds what pods of the namespace take of the quota.
    pub fn recount(
        &self,
        cluster: &Cluster,
        id: QuotaId,
        namespace: NamespaceId,
        mut ledger: Ledger,
    ) -> Ledger {
        let mut owners = BTreeSet::new();
        for pod in cluster.namespaces.get(namespace).into_iter().flat_map(|known| known.pods()) {
            if let Some(owner) = self.stages.owners().owner_of(*pod) {
                owners.insert(owner);
                continue;
            }
            match self.stages.get(*pod) {
                Stage::Counted { charge, quotas } if quotas.binary_search(&id).is_ok() => {
                    ledger.apply(Claim::Counted, charge);
                }
                Stage::Assumed { charge, quotas, .. } if quotas.binary_search(&id).is_ok() => {
                    ledger.apply(Claim::Assumed, charge);
                }
                _ => {}
            }
        }
        for owner in owners {
            let taken = self.stages.taken(owner, id);
            ledger.apply(Claim::Counted, &taken.counted);
            ledger.apply(Claim::Assumed, &taken.assumed);
        }
        for charge in self.admissions.held_in(id, namespace.share()) {
            ledger.apply(Claim::Assumed, charge);
        }
        ledger
    }
}

/// A share that takes nothing has no sums.
fn is_nothing_or(used: &[Amount], share: &[Amount]) -> bool {
    used == share || share.is_empty() && used.iter().all(|amount| amount.is_zero())
}

/// Whether the shares make up what is counted and assumed.
fn sum_up(shares: &Shares, ledger: &Ledger) -> bool {
    let mut sums = vec![Amount::ZERO; ledger.lines().len()];
    for (_, share) in shares.iter() {
        for (sum, amount) in sums.iter_mut().zip(share) {
            *sum = sum.saturating_add(*amount);
        }
    }
    let of_line = |line: &Line| line.claimed(Claim::Counted).saturating_add(line.claimed(Claim::Assumed));
    ledger.lines().iter().map(of_line).eq(sums)
}
