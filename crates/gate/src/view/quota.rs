//! Explains quotas: what is taken, by whom, and since when pods wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_engine::{Amount, Claim, Format, Quantity, QuotaId, Resource, StatusTarget};
use sluice_index::NamespaceId;

use super::View;
use crate::explain::{Line, Obstacle, QuotaExplanation, Taker};
use crate::stage::Stage;

/// So many are named that take most.
const NAMED: usize = 4;

/// Who takes most, and what all others take.
type Takers = (Vec<Taker>, Option<(usize, Quantity)>);

impl View<'_> {
    pub(super) fn quota_explanation(&self, id: QuotaId) -> Option<QuotaExplanation> {
        let mut explanation = self.quota_summary(id, self.accounts.status_of(self.cluster, id))?;
        self.name_takers(&mut explanation, id, self.cluster.quotas.get(id)?.namespace());
        Some(explanation)
    }

    /// The same without who takes most. `target`: the status that the quota should have.
    pub(super) fn quota_summary(
        &self,
        id: QuotaId,
        target: Option<StatusTarget>,
    ) -> Option<QuotaExplanation> {
        let record = self.cluster.quotas.get(id)?;
        let name = self.cluster.quota_name(id)?;
        let namespace = match record.namespace() {
            Some(namespace) => Arc::clone(&self.cluster.namespaces.get(namespace)?.name),
            None => Arc::from(""),
        };
        let lines =
            target.as_ref().map(|target| self.lines(id, &target.hard, &target.used)).unwrap_or_default();
        let told = target.into_iter().flat_map(|target| {
            let unenforced = target.unenforced.map(|told| told.message);
            Some(target.uncounted).filter(|text| !text.is_empty()).into_iter().chain(unenforced)
        });
        Some(QuotaExplanation {
            namespace,
            within: None,
            quota: name,
            lines,
            held: self.accounts.queue().held(id),
            oldest: self.accounts.oldest(self.cluster, id).map(|(since, _, name)| (since, name)),
            takers: Vec::new(),
            others: None,
            invalid: record.compiled.is_err().then(|| self.cluster.invalid_message(id)),
            not_enforced: told.chain(self.accounts.unevaluated_told(self.cluster, id)).collect(),
        })
    }

    /// Names the pods of the namespace that take most of the key that is nearest to its limit; without one, the namespaces.
    pub(super) fn name_takers(
        &self,
        explanation: &mut QuotaExplanation,
        id: QuotaId,
        namespace: Option<NamespaceId>,
    ) {
        let fullest =
            explanation.fullest().map(|line| (Resource::from_quota_key(&line.key), line.limit.format()));
        let Some((resource, format)) = fullest else { return };
        (explanation.takers, explanation.others) = match namespace {
            Some(namespace) => self.takers(id, namespace, (&resource, format), NAMED),
            None => self.taking_namespaces(id, &resource, format),
        };
    }

    fn lines(&self, id: QuotaId, hard: &[(String, Quantity)], used: &[(String, Quantity)]) -> Vec<Line> {
        let Some(ledger) = self.accounts.queue().ledger(id) else { return Vec::new() };
        let lines = hard.iter().filter_map(|(key, limit)| {
            let (_, used) = used.iter().find(|(known, _)| known == key)?;
            let line = ledger.line(&Resource::from_quota_key(key));
            let claimed =
                |claim| line.map_or(Amount::ZERO, |line| line.claimed(claim)).quantity(used.format());
            Some(Line {
                key: key.as_str().into(),
                used: *used,
                limit: *limit,
                counted: claimed(Claim::Counted),
                assumed: claimed(Claim::Assumed),
                unseen: claimed(Claim::InFlight),
            })
        });
        lines.collect()
    }

    /// Who takes most of the first key of an obstacle, in a namespace.
    pub(super) fn takers_of(
        &self,
        obstacle: &Obstacle,
        namespace: NamespaceId,
        quotas: &BTreeSet<QuotaId>,
    ) -> Takers {
        let id = quotas.iter().find(|id| self.cluster.quota_name(**id).as_ref() == Some(&obstacle.quota));
        let Some((id, key)) = id.zip(obstacle.keys.first()) else { return Takers::default() };
        self.takers(*id, namespace, (&Resource::from_quota_key(&key.key), key.limit.format()), NAMED)
    }

    /// Who takes most of the fullest key of a quota of a namespace, so many of them; none of a quota that is not known.
    #[must_use]
    pub fn takers_of_quota(&self, namespace: &str, name: &str, most: usize) -> Takers {
        let found = self
            .cluster
            .namespaces
            .id(namespace)
            .and_then(|id| Some((id, self.cluster.quotas.find(id, name)?)));
        let Some((namespace, id)) = found else { return Takers::default() };
        let explanation = self.quota_explanation(id);
        let Some(line) = explanation.as_ref().and_then(QuotaExplanation::fullest) else {
            return Takers::default();
        };
        self.takers(id, namespace, (&Resource::from_quota_key(&line.key), line.limit.format()), most)
    }

    /// Pods of a namespace that take something of a quota, the largest so many by name; pods of a VM together.
    fn takers(
        &self,
        id: QuotaId,
        namespace: NamespaceId,
        (resource, format): (&Resource, Format),
        most: usize,
    ) -> Takers {
        let pods = self.cluster.namespaces.get(namespace).map_or(&[][..], |known| known.pods());
        let mut by_name: BTreeMap<String, Amount> = BTreeMap::new();
        for pod in pods {
            let (Stage::Counted { charge, quotas } | Stage::Assumed { charge, quotas, .. }) =
                self.accounts.stage(*pod)
            else {
                continue;
            };
            let amount = charge.get(resource).filter(|amount| *amount > Amount::ZERO && quotas.contains(&id));
            let Some((amount, record)) = amount.zip(self.cluster.pods.get(*pod)) else { continue };
            let owner = self.accounts.owner_of(*pod).and_then(|owner| self.cluster.machines.name(owner));
            match owner {
                Some(machine) => {
                    let known = by_name.entry(format!("vm {machine}")).or_default();
                    *known = amount.max(*known);
                }
                None => drop(by_name.insert(record.name.to_string(), amount)),
            }
        }
        largest(by_name, format, most)
    }

    /// Namespace and name of each pod that is counted by a quota, and what it takes of a key; pods of a VM alike.
    #[must_use]
    pub fn takers_of_key(&self, key: &str) -> Vec<(Arc<str>, Box<str>, Amount)> {
        let resource = Resource::from_quota_key(key);
        let taking = self.cluster.pods.iter().filter_map(|(id, record)| {
            let (Stage::Counted { charge, quotas } | Stage::Assumed { charge, quotas, .. }) =
                self.accounts.stage(id)
            else {
                return None;
            };
            let amount =
                charge.get(&resource).filter(|amount| *amount > Amount::ZERO && !quotas.is_empty())?;
            Some((
                Arc::clone(&self.cluster.namespaces.get(record.namespace)?.name),
                record.name.clone(),
                amount,
            ))
        });
        taking.collect()
    }

    fn taking_namespaces(&self, id: QuotaId, resource: &Resource, format: Format) -> Takers {
        let queue = self.accounts.queue();
        let (Some(quota), Some(shares), Some(ledger)) =
            (self.cluster.quotas.get(id), queue.shares(id), queue.ledger(id))
        else {
            return Takers::default();
        };
        let Some(at) = ledger.lines().iter().position(|line| line.resource == *resource) else {
            return Takers::default();
        };
        let by_name = quota.namespaces().filter_map(|namespace| {
            let amount =
                shares.get(namespace.share()).get(at).copied().filter(|amount| *amount > Amount::ZERO)?;
            Some((self.cluster.namespaces.get(namespace)?.name.to_string(), amount))
        });
        largest(by_name.collect(), format, NAMED)
    }
}

fn largest(by_name: BTreeMap<String, Amount>, format: Format, most: usize) -> Takers {
    let mut all: Vec<(String, Amount)> = by_name.into_iter().collect();
    all.sort_by_key(|(_, amount)| std::cmp::Reverse(*amount));
    let rest = all.split_off(all.len().min(most));
    let sum = rest.iter().fold(Amount::ZERO, |sum, (_, amount)| sum.saturating_add(*amount));
    let others = (!rest.is_empty()).then(|| (rest.len(), sum.quantity(format)));
    let takers = all.into_iter().map(|(name, amount)| Taker { name, amount: amount.quantity(format) });
    (takers.collect(), others)
}
