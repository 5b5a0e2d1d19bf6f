//! What may be told in one namespace, to whom may view it: nothing of other namespaces but the sums of cluster quotas, which
//! are in their mirrors too. It takes little time, however much there is.

use std::sync::Arc;

use sluice_engine::{Amount, PodId, QuotaId, QuotaKind, Resource};
use sluice_index::{Namespace, NamespaceId};

use super::View;
use crate::explain::{Explanation, QuotaExplanation, Told, Topic};
use crate::stage::Stage;

/// In a namespace with more pods no place in the line is told, nor who takes most: that looks at each pod.
const MOST_PODS: usize = 5_000;
/// So many names are looked through for those that are near to one that does not exist.
const MOST_NAMES: usize = 250;

impl View<'_> {
    /// What is told of a subject in a namespace; `None`: this process does not lead.
    #[must_use]
    pub fn tell(&self, namespace: &str, topic: Topic<'_>) -> Option<Told> {
        if !self.accounts.is_leading() {
            return None;
        }
        let known =
            self.cluster.namespaces.id(namespace).and_then(|id| Some((id, self.cluster.namespaces.get(id)?)));
        let Some((id, known)) = known else { return Some(Told::Unknown(Vec::new())) };
        let told = self.told_of(id, known, topic);
        Some(told.unwrap_or_else(|| Told::Unknown(self.names(known, topic))))
    }

    fn told_of(&self, id: NamespaceId, known: &Namespace, topic: Topic<'_>) -> Option<Told> {
        let is_crowded = known.pods().len() > MOST_PODS;
        let explanations = match topic {
            Topic::Pod(name) => vec![self.told_pod(self.cluster.pods.find(id, name)?, is_crowded)?],
            Topic::Quota(name) => {
                let quota = self.cluster.quotas.find(id, name)?;
                let told = match is_crowded {
                    true => self.quota_summary(quota, self.accounts.status_of(self.cluster, quota)),
                    false => self.quota_explanation(quota),
                };
                vec![Explanation::Quota(told?)]
            }
            Topic::ClusterQuota(name) => {
                let quota =
                    self.cluster.quotas.find_cluster(name).filter(|quota| known.quotas().contains(quota))?;
                if is_crowded {
                    return Some(Told::Crowded);
                }
                vec![Explanation::Quota(self.cluster_quota_in(quota, id, known)?)]
            }
            Topic::Machine(name) => {
                let machine = self.cluster.machines.find(&known.name, name)?;
                let pods = self.accounts.pods_of_machine(self.cluster, id, &machine.uid);
                pods.into_iter().filter_map(|pod| self.told_pod(pod, is_crowded)).collect()
            }
        };
        Some(Told::Explained { explanations, is_crowded })
    }

    fn told_pod(&self, id: PodId, is_crowded: bool) -> Option<Explanation> {
        let mut explanation = self.pod_explanation(id)?;
        if !is_crowded {
            explanation.wait = self.wait_of(id, &explanation);
        }
        Some(Explanation::Pod(explanation))
    }

    /// A cluster quota as it is seen in one of its namespaces: the limits, what is taken in all, and of that what the pods
    /// of the namespace take and which of them wait.
    fn cluster_quota_in(
        &self,
        id: QuotaId,
        namespace: NamespaceId,
        known: &Namespace,
    ) -> Option<QuotaExplanation> {
        // Not its status, which looks at all its namespaces for what it does not enforce, and names them.
        let mut told = self.quota_summary(id, self.accounts.amounts_of(self.cluster, id))?;
        let queue = self.accounts.queue();
        let (shares, ledger) = (queue.shares(id), queue.ledger(id));
        let share = shares.map_or(&[][..], |shares| shares.get(namespace.share()));
        for line in &mut told.lines {
            let resource = Resource::from_quota_key(&line.key);
            let place =
                ledger.and_then(|ledger| ledger.lines().iter().position(|it| it.resource == resource));
            let own = place.and_then(|place| share.get(place)).copied().unwrap_or(Amount::ZERO);
            let format = line.used.format();
            line.counted = own.quantity(format);
            line.assumed = Amount::ZERO.quantity(format);
            line.unseen = Amount::from(line.used).saturating_sub(own).max(Amount::ZERO).quantity(format);
        }
        let waits = |pod: &&PodId| match self.accounts.stage(**pod) {
            Stage::Waiting(class) => queue.class(*class).is_some_and(|class| class.quotas().contains(&id)),
            _ => false,
        };
        let waiting = known.pods().iter().filter(waits);
        let mut waiting: Vec<_> =
            waiting.filter_map(|pod| self.cluster.pods.get(*pod)).map(|it| (it.created, &*it.name)).collect();
        told.held = waiting.len();
        waiting.sort_unstable();
        told.oldest = waiting.first().map(|(since, name)| (*since, (*name).to_owned()));
        told.within = Some(Arc::clone(&known.name));
        self.name_takers(&mut told, id, Some(namespace));
        Some(told)
    }

    /// Names of what there is of the kind in the namespace, sorted.
    fn names(&self, known: &Namespace, topic: Topic<'_>) -> Vec<Box<str>> {
        let quotas = |kind: QuotaKind| {
            let names = known.quotas().iter().filter_map(|quota| self.cluster.quota_name(*quota));
            let names = names.filter(|it| it.kind == kind).map(|it| Box::from(&*it.name));
            names.take(MOST_NAMES).collect()
        };
        let mut names: Vec<Box<str>> = match topic {
            Topic::Pod(_) => {
                let pods = known.pods().iter().take(MOST_NAMES);
                pods.filter_map(|pod| Some(self.cluster.pods.get(*pod)?.name.clone())).collect()
            }
            Topic::Quota(_) => quotas(QuotaKind::Namespace),
            Topic::ClusterQuota(_) => quotas(QuotaKind::Cluster),
            Topic::Machine(_) => {
                let machines = self.cluster.machines.in_namespace(&known.name).take(MOST_NAMES);
                machines.map(|(_, name)| Box::from(&**name)).collect()
            }
        };
        names.sort_unstable();
        names
    }
}
