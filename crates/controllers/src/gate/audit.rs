//! The audit: the sums of a namespace's quotas made anew from its pods, to compare; what differs is put right.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::status::enforced;
use sluice_engine::{Claim, Ledger, PodId, QuotaId};
use sluice_index::{Gates, NamespaceId};

use super::config::Moment;
use super::metrics::Work;
use super::run::Gate;
use super::stage::Stage;
use super::state::State;

/// All namespaces are audited in this time, one after the other.
const ROUND: Duration = Duration::from_secs(300);
/// Between two of them it is at most so long; so a small cluster is audited more often.
const PAUSE: Duration = Duration::from_secs(10);

/// Pods that are compared before others get at the state.
const PODS: usize = 1_000;

/// Where the audit of a namespace goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    pods: usize,
    quotas: usize,
}

/// What a part of an audit found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// So far nothing, but there is more.
    More,
    /// The namespace is as it should be.
    Right,
    /// Something was wrong, and everything of the namespace is made anew.
    Repaired {
        /// A pod whose record and whose charge disagree.
        pod: Option<Box<str>>,
        /// A quota whose sums are not those of its pods.
        quota: Option<Arc<str>>,
    },
}

/// Audits one namespace after the other.
pub(super) async fn audit_for_ever(gate: &Gate) -> Infallible {
    loop {
        let round: Vec<NamespaceId> = {
            let state = gate.state();
            let state = state.lock();
            let with_quotas = state.namespaces.iter().filter(|(_, known)| !known.quotas().is_empty());
            with_quotas.map(|(id, _)| id).collect()
        };
        let many = u32::try_from(round.len()).unwrap_or(u32::MAX).max(1);
        let pause = (ROUND / many).min(PAUSE);
        // A cluster without quotas is looked at again after the pause.
        tokio::time::sleep(pause).await;
        for namespace in round {
            audit_namespace(gate, namespace).await;
            tokio::time::sleep(pause).await;
        }
    }
}

async fn audit_namespace(gate: &Gate, namespace: NamespaceId) {
    let mut place = Place::default();
    loop {
        let found = gate.locked(Work::Audit, |state, now| state.audit(namespace, &mut place, now));
        match found {
            Found::Right => return,
            Found::More => tokio::task::yield_now().await,
            Found::Repaired { pod, quota } => {
                tracing::error!(
                    ?pod,
                    ?quota,
                    "charges differed from the pods and were made anew: please report this"
                );
                gate.change(Work::Audit, |_, _| ());
                return;
            }
        }
    }
}

impl State {
    /// Audits one more part of a namespace: its pods, some at a time, then the sums of its quotas, one at a time.
    pub fn audit(&mut self, namespace: NamespaceId, place: &mut Place, now: Moment) -> Found {
        let Some(known) = self.namespaces.get(namespace) else { return Found::Right };
        let (quotas, pods) = (known.quotas().to_vec(), known.pods().len());
        if quotas.is_empty() || self.restaging.rests(namespace) {
            return Found::Right;
        }
        if place.pods < pods {
            let part: Vec<PodId> = known.pods().iter().skip(place.pods).take(PODS).copied().collect();
            place.pods += part.len();
            let Some(wrong) = part.into_iter().find(|id| !self.is_staged_right(*id)) else {
                return Found::More;
            };
            let pod = self.pods.get(wrong).map(|record| record.name.clone());
            return self.repair(namespace, &quotas, Found::Repaired { pod, quota: None }, now);
        }
        let Some(next) = quotas.get(place.quotas).copied() else { return Found::Right };
        place.quotas += 1;
        self.stats.audited += 1;
        if self.is_summed_right(next) {
            return Found::More;
        }
        let wrong = next;
        let quota = self.quotas.get(wrong).map(|record| Arc::clone(&record.name));
        self.repair(namespace, &quotas, Found::Repaired { pod: None, quota }, now)
    }

    fn repair(&mut self, namespace: NamespaceId, quotas: &[QuotaId], found: Found, now: Moment) -> Found {
        self.stats.audit_differences += 1;
        for id in quotas {
            self.renew_quota(*id);
        }
        self.restage_all(namespace, now);
        found
    }

    /// Whether what the pod is charged is what its record says, by the quotas that are about it.
    fn is_staged_right(&mut self, id: PodId) -> bool {
        let Some(record) = self.pods.get(id) else { return true };
        let (namespace, facts) = (record.namespace, Arc::clone(&record.scope_facts));
        let (gates, charge) = (record.gates, Arc::clone(&record.charge));
        let matching = self.matching_quotas(namespace, &facts);
        match self.stage(id) {
            Stage::Counted { charge: counted, quotas } => {
                gates == Gates::None && *counted == charge && *quotas == matching
            }
            Stage::Waiting(class) => {
                let class = self.queue.class(*class);
                let is_charged =
                    class.is_some_and(|class| *class.charge() == charge && *class.quotas() == matching);
                gates == Gates::Ours && is_charged
            }
            // A pod that is being released may be another by now; the answer tells.
            Stage::Assumed { .. } => gates != Gates::Foreign,
            Stage::Foreign => gates == Gates::Foreign,
            Stage::Free { .. } | Stage::Stuck(_) => gates == Gates::Ours,
        }
    }

    /// Whether the sums of a quota are those of its pods.
    fn is_summed_right(&self, id: QuotaId) -> bool {
        let Some(quota) = self.quotas.get(id) else { return true };
        let (Ok(compiled), Some(ledger)) = (&quota.compiled, self.queue.ledger(id)) else { return true };
        let mut recount = Ledger::new(enforced(compiled));
        for pod in self.namespaces.get(quota.namespace).into_iter().flat_map(|known| known.pods()) {
            match self.stage(*pod) {
                Stage::Counted { charge, quotas } if quotas.binary_search(&id).is_ok() => {
                    recount.apply(Claim::Counted, charge);
                }
                Stage::Assumed { charge, quotas, .. } if quotas.binary_search(&id).is_ok() => {
                    recount.apply(Claim::Assumed, charge);
                }
                _ => {}
            }
        }
        for charge in self.admissions.held_in(id) {
            recount.apply(Claim::Assumed, charge);
        }
        ledger.lines().len() == recount.lines().len()
            && ledger.lines().iter().zip(recount.lines()).all(|(kept, made)| {
                kept.claimed(Claim::Counted) == made.claimed(Claim::Counted)
                    && kept.claimed(Claim::Assumed) == made.claimed(Claim::Assumed)
            })
    }
}
