//! Everything as it is, to read: why a pod waits, what a quota has. Changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::{Amount, ClassId, PodId, QuotaId, QuotaKind};
use sluice_index::{NamespaceId, PodRecord};

use crate::accounts::{Accounts, unknown_text};
use crate::cluster::Cluster;
use crate::explain::words::MOST_BYTES;
use crate::explain::{Ahead, Explanation, Obstacle, PodExplanation, QuotaName, Subject, Verdict, Wait};
use crate::messages::{TARGET_HELD_BYTES, Text, reasons, target_held};
use crate::releaser::Releaser;
use crate::stage::{Stage, Stuck};

mod quota;
mod tell;

/// What there is to look at.
#[derive(Clone, Copy)]
pub struct View<'g> {
    pub cluster: &'g Cluster,
    pub accounts: &'g Accounts,
    pub releaser: &'g Releaser,
}

/// So many pods are named that go before another one.
const NAMED: usize = 3;

impl View<'_> {
    /// Explains a subject; `None`: nothing is known of such an object.
    #[must_use]
    pub fn explain(&self, subject: Subject<'_>) -> Option<Explanation> {
        match subject {
            Subject::Pod { namespace, name } => {
                let id = self.cluster.pods.find(self.cluster.namespaces.id(namespace)?, name)?;
                let mut explanation = self.pod_explanation(id)?;
                explanation.wait = self.wait_of(id, &explanation);
                Some(Explanation::Pod(explanation))
            }
            Subject::Quota { namespace, name } => {
                let id = self.cluster.quotas.find(self.cluster.namespaces.id(namespace)?, name)?;
                self.quota_explanation(id).map(Explanation::Quota)
            }
            Subject::ClusterQuota { name } => {
                self.quota_explanation(self.cluster.quotas.find_cluster(name)?).map(Explanation::Quota)
            }
        }
    }

    /// The pods with this controller's gate, without their places, the oldest first.
    #[must_use]
    pub fn held_pods(&self) -> Vec<PodExplanation> {
        let mut held: Vec<PodExplanation> =
            self.accounts.held().filter_map(|id| self.pod_explanation(id)).collect();
        held.sort_by(|one, other| {
            (one.since, &one.namespace, &one.name).cmp(&(other.since, &other.namespace, &other.name))
        });
        held
    }

    /// Why a pod is where it is, without its place.
    fn pod_explanation(&self, id: PodId) -> Option<PodExplanation> {
        let record = self.cluster.pods.get(id)?;
        Some(PodExplanation {
            namespace: Arc::clone(&self.cluster.namespaces.get(record.namespace)?.name),
            name: record.name.clone(),
            verdict: self.verdict(id, record),
            since: record.created,
            quotas: self.names_of_quotas(id),
            wait: None,
            has_claims: record.has_ephemeral_volumes,
        })
    }

    fn verdict(&self, id: PodId, record: &PodRecord) -> Verdict {
        let pause = self.accounts.pause_end(record.namespace).map(|until| until.to_string());
        let refused = || self.releaser.refusal(id).map(|why| Verdict::Refused(why.to_owned()));
        match self.accounts.stage(id) {
            Stage::Foreign => Verdict::OtherGates,
            Stage::Counted { .. } if record.is_over() => Verdict::Over,
            Stage::Counted { .. } => Verdict::Released { unreadable: record.unreadable().map(Arc::clone) },
            Stage::Assumed { .. } => refused().unwrap_or(Verdict::Going),
            Stage::Free { .. } => {
                let is_targeted = self.cluster.namespaces.is_targeted(record.namespace) == Some(true);
                let is_free = if is_targeted && !self.accounts.is_exempt(self.cluster, record) {
                    Verdict::Going
                } else {
                    Verdict::NotTargeted
                };
                refused().unwrap_or(is_free)
            }
            Stage::Waiting(class) => match pause {
                Some(until) => Verdict::Paused(until),
                None => match self.accounts.obstacles(self.cluster, *class) {
                    obstacles if obstacles.is_empty() => Verdict::Pending,
                    obstacles => Verdict::NoRoom(obstacles),
                },
            },
            Stage::Stuck(Stuck::Unreadable(field)) => Verdict::Unreadable(Arc::clone(field)),
            Stage::Stuck(Stuck::InvalidQuota(quota)) => match pause {
                Some(until) => Verdict::Paused(until),
                None => Verdict::InvalidQuota(self.cluster.invalid_message(*quota)),
            },
            Stage::Stuck(Stuck::Evaluating) => self
                .accounts
                .text_about_evaluation(self.cluster, id)
                .map_or(Verdict::Pending, Verdict::NotEvaluated),
            Stage::Stuck(Stuck::Machine(unknown)) => Verdict::UnknownMachine(unknown_text(unknown)),
            Stage::Stuck(Stuck::Terminating) => Verdict::Terminating,
            Stage::Stuck(Stuck::BackingOff | Stuck::UnknownNamespace) => {
                refused().unwrap_or(Verdict::Pending)
            }
        }
    }

    /// In an order that is the same in all processes.
    fn names_of_quotas(&self, id: PodId) -> Vec<QuotaName> {
        let quotas = self.quotas_of(id);
        let mut names: Vec<QuotaName> =
            quotas.iter().filter_map(|quota| self.cluster.quota_name(*quota)).collect();
        names.sort_by_cached_key(|quota| (quota.kind == QuotaKind::Cluster, Arc::clone(&quota.name)));
        names
    }

    fn quotas_of(&self, id: PodId) -> Vec<QuotaId> {
        match self.accounts.stage(id) {
            Stage::Waiting(class) => {
                self.accounts.queue().class(*class).map(|class| class.quotas().to_vec()).unwrap_or_default()
            }
            Stage::Assumed { quotas, .. } | Stage::Counted { quotas, .. } => quotas.to_vec(),
            Stage::Foreign | Stage::Free { .. } | Stage::Stuck(_) => Vec::new(),
        }
    }

    /// The place of a pod among those of its namespace that wait for one of the quotas that have no room for it.
    fn wait_of(&self, id: PodId, explanation: &PodExplanation) -> Option<Wait> {
        let (Stage::Waiting(class), Verdict::NoRoom(obstacles)) =
            (self.accounts.stage(id), &explanation.verdict)
        else {
            return None;
        };
        let own = self.accounts.queue().class(*class).filter(|class| class.could_fit())?;
        let namespace = self.cluster.pods.get(id)?.namespace;
        let short: BTreeSet<QuotaId> = own
            .quotas()
            .iter()
            .copied()
            .filter(|quota| {
                obstacles.iter().any(|it| self.cluster.quota_name(*quota).as_ref() == Some(&it.quota))
            })
            .collect();
        let line = self.line(namespace, &short);
        let place = line.iter().position(|(pod, _)| *pod == id)?;
        let ahead = line
            .iter()
            .take(place)
            .take(NAMED)
            .filter_map(|(pod, class)| self.ahead(*pod, *class, obstacles));
        let (takers, others) = self.takers_of(obstacles.first()?, namespace, &short);
        Some(Wait { place: place + 1, of: line.len(), ahead: ahead.collect(), takers, others })
    }

    /// The pods of a namespace that wait for one of these quotas and could ever fit, in the order in which they go.
    fn line(&self, namespace: NamespaceId, quotas: &BTreeSet<QuotaId>) -> Vec<(PodId, ClassId)> {
        let pods = self.cluster.namespaces.get(namespace).map_or(&[][..], |known| known.pods());
        let classes: BTreeSet<ClassId> = pods
            .iter()
            .filter_map(|pod| {
                if let Stage::Waiting(class) = self.accounts.stage(*pod) { Some(*class) } else { None }
            })
            .collect();
        let mut line = Vec::new();
        for id in classes {
            let Some(class) = self.accounts.queue().class(id).filter(|class| class.could_fit()) else {
                continue;
            };
            if class.quotas().iter().any(|quota| quotas.contains(quota)) {
                line.extend(class.ranked().map(|(deadline, key, pod)| ((deadline, key.clone()), pod, id)));
            }
        }
        line.sort();
        line.into_iter().map(|(_, pod, class)| (pod, class)).collect()
    }

    fn ahead(&self, pod: PodId, class: ClassId, obstacles: &[Obstacle]) -> Option<Ahead> {
        let record = self.cluster.pods.get(pod)?;
        let charge = self.accounts.queue().class(class)?.charge();
        let keys = obstacles.iter().flat_map(|obstacle| &obstacle.keys);
        let mut needs: Vec<_> = keys
            .filter_map(|key| {
                let amount = charge.get(&sluice_engine::Resource::from_quota_key(&key.key))?;
                (amount > Amount::ZERO).then(|| (Arc::clone(&key.key), amount.quantity(key.limit.format())))
            })
            .collect();
        needs.dedup_by(|one, other| one.0 == other.0);
        Some(Ahead { name: record.name.clone(), priority: record.priority, needs })
    }

    /// What an event about the pod says as things are: the short form of its explanation.
    /// What an event about the pod says as things are.
    pub fn event_about(&self, id: PodId) -> Option<Text> {
        let text = self.text_about(id)?;
        Some(self.text_about_held(id, text))
    }

    fn text_about(&self, id: PodId) -> Option<Text> {
        if let Stage::Waiting(class) = self.accounts.stage(id) {
            // Not looked at yet: what is in its way now may be gone when it is.
            self.accounts.queue().class(*class)?.reason()?;
        }
        let most = MOST_BYTES - if self.accounts.is_late_target(id) { TARGET_HELD_BYTES } else { 0 };
        self.pod_explanation(id)?.event(most)
    }

    /// What is told of a pod that is held for this reason: more if it is a target that is late.
    fn text_about_held(&self, id: PodId, text: Text) -> Text {
        let is_held = matches!(self.accounts.stage(id), Stage::Waiting(_) | Stage::Stuck(_));
        let target = self.cluster.pods.get(id).filter(|_| is_held && self.accounts.is_late_target(id));
        match target.and_then(|record| Some((record, self.accounts.deadline(self.cluster, id, record)?))) {
            Some((record, deadline)) => {
                (reasons::TARGET_HELD, target_held(record.created, deadline, &text.1))
            }
            None => text,
        }
    }
}
