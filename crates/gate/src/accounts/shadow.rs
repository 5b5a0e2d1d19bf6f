//! What evaluators in the shadow would charge. Reads what all pods are charged, and changes nothing of it.

use std::cmp::Reverse;
use std::sync::Arc;

use sluice_engine::status::keys_of;
use sluice_engine::{Amount, Charge, Format, PodId, QuotaId};
use sluice_index::{Gates, NamespaceId, PodRecord};

use super::Accounts;
use crate::accounts::parts::shadow::{Change, Standing, Sums};
use crate::action::Release;
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::evaluators::{Content, Price};
use crate::shadow::{
    AskInShadow, MOST_TOLD, Opinion, RuleFigures, SaidLater, SeenPod, ShadowAmount, ShadowConfig,
    ShadowFigures,
};
use crate::stage::Stage;

/// Most keys of the total that are told.
const MOST_KEYS: usize = 32;

impl Accounts {
    /// From now on these rules are in the shadow, or none. Returns the number of the configuration.
    pub fn follow_shadow(&mut self, config: Option<Arc<ShadowConfig>>) -> u32 {
        self.shadow.configure(config)
    }

    /// The number of the configuration.
    pub const fn shadow_revision(&self) -> u32 {
        self.shadow.revision()
    }

    /// The pod was seen with this content. Returns what Kubernetes counts of it, if its rules have to be evaluated.
    pub fn see_in_shadow(&mut self, cluster: &Cluster, id: PodId, content: Content) -> Option<Arc<Charge>> {
        let record = cluster.pods.get(id)?;
        self.shadow.see(id, content).then(|| Arc::clone(&record.charge))
    }

    /// The rules say this of the pod.
    pub fn on_opinions(&mut self, id: PodId, content: Content, opinions: Vec<(usize, Opinion)>) {
        self.shadow.take(id, content, opinions);
    }

    /// The pods of the namespace about which evaluators are to be asked now that are asked later, those behind the pod
    /// `after` first; `again`: these about all.
    pub fn plan_shadow_asks(
        &mut self,
        cluster: &Cluster,
        namespace: NamespaceId,
        (again, after): (u16, PodId),
        now: Moment,
    ) -> Vec<AskInShadow> {
        let Some(known) = cluster.namespaces.get(namespace) else { return Vec::new() };
        self.shadow.expire(known.pods(), again);
        let Some(config) = self.shadow.config() else { return Vec::new() };
        let in_namespace = config.evaluators.iter().enumerate().fold(0, |bits, (place, (_, it))| {
            if known.is_selected(&it.namespaces) { bits | 1 << place } else { bits }
        });
        let to_ask = known.pods().iter().filter_map(|id| {
            let (asked, hash) = self.shadow.to_ask(*id, now.mono_ms)?;
            let record = cluster.pods.get(*id)?;
            let selected = asked & in_namespace;
            if selected == 0 || !self.may_be_evaluated(cluster, *id, record) {
                return None;
            }
            let Release { namespace, name, uid, .. } = cluster.address(*id)?;
            let pod = SeenPod { namespace: (*namespace).into(), name, uid };
            Some(AskInShadow { id: *id, pod, hash, selected, counted: Arc::clone(&record.charge) })
        });
        let mut to_ask: Vec<AskInShadow> = to_ask.collect();
        to_ask.sort_by_key(|ask| (ask.id <= after, ask.id));
        to_ask
    }

    /// These evaluators can be asked again, a bit for each.
    pub fn retry_in_shadow(&mut self, places: u16) {
        self.shadow.retry(places);
    }

    /// Evaluators that were asked later say this of the pod.
    pub fn on_said_later(&mut self, id: PodId, hash: u64, said: Vec<SaidLater>, now: Moment) {
        self.shadow.take_later(id, hash, said, now.mono_ms);
    }

    /// Rules may select the namespace, or select it no more.
    pub fn look_at_shadows_of(&mut self, cluster: &Cluster, namespace: NamespaceId) {
        if self.shadow.is_on() {
            let pods = cluster.namespaces.get(namespace).map_or(&[][..], |known| known.pods());
            self.shadow.note_all_moved(pods);
        }
    }

    /// The other launchers of the pod's VM may be counted in its place.
    pub(super) fn look_at_shadows_beside(&mut self, cluster: &Cluster, id: PodId, record: &PodRecord) {
        if self.shadow.is_on() && record.ownership().is_some() {
            self.shadow.note_all_moved(&self.launchers_beside(cluster, id, record));
        }
    }

    /// Sums up what pods are that may be something else by now, some at a time.
    pub fn count_shadows(&mut self, cluster: &Cluster) {
        for _ in 0..cluster.config.reclassified_pods {
            let Some(id) = self.shadow.next_moved() else { return };
            let standings = self.standings(cluster, id);
            self.shadow.count(id, standings);
        }
    }

    fn standings(&self, cluster: &Cluster, id: PodId) -> Vec<(usize, Standing)> {
        let opinions = self.shadow.opinions(id);
        let Some((record, config)) = cluster.pods.get(id).zip(self.shadow.config()) else {
            return Vec::new();
        };
        if opinions.is_empty() || !self.may_be_evaluated(cluster, id, record) {
            return Vec::new();
        }
        let Some(namespace) = cluster.namespaces.get(record.namespace) else { return Vec::new() };
        let is_selected = |place: usize| {
            config.evaluators.get(place).is_some_and(|(_, it)| namespace.is_selected(&it.namespaces))
        };
        let selecting = opinions.iter().filter(|(place, _)| is_selected(*place));
        let standings = selecting.filter_map(|(place, opinion)| {
            let standing = match (opinion, self.stages.get(id)) {
                (Opinion::NoMatch, _) => None,
                (Opinion::None, _) => (record.gates == Gates::Ours).then_some(Standing::Held),
                (Opinion::Charge { charge, retains }, Stage::Counted { quotas, .. }) => {
                    let change = self.change_by(cluster, id, record, (charge, *retains));
                    Some(Standing::Changed(Arc::clone(quotas), change))
                }
                (Opinion::Charge { .. }, _) => Some(Standing::Matched),
            };
            Some((*place, standing?))
        });
        standings.collect()
    }

    /// How much more would be charged for a pod that runs, or less, if this were charged for it: what it is charged now is
    /// what Kubernetes counts, what evaluators say in its place, or both (`sluice_engine::evaluation::combine`).
    fn change_by(
        &self,
        cluster: &Cluster,
        id: PodId,
        record: &PodRecord,
        (charge, retains): (&Charge, bool),
    ) -> Change {
        let is_asked = self.asked_of(cluster, id, record) != 0;
        let last = self.evaluations.last(id).filter(|_| is_asked);
        let is_answered = matches!(last, Some(Price::Charge(_)));
        let has_native = !is_answered || self.evaluations.retains(id);
        let is_launcher = cluster.machines.are_charged() && cluster.is_launcher(record);
        let native = match (retains, has_native) {
            // The answer about a launcher is charged beside its VM, whatever Kubernetes counts for the pod.
            _ if is_launcher => {
                if is_answered || self.paying_owner(cluster, record).is_some() {
                    0
                } else {
                    -1
                }
            }
            (true, false) => 1,
            (false, true) if !is_answered => -1,
            _ => 0,
        };
        let mut change = Change::new();
        for (resource, amount) in charge {
            *change.entry(resource.clone()).or_default() += amount.nanos();
        }
        for (resource, amount) in record.charge.iter().filter(|_| native != 0) {
            *change.entry(resource.clone()).or_default() += native * amount.nanos();
        }
        change.retain(|_, amount| *amount != 0);
        change
    }

    /// What is told of each rule in the shadow, by its name.
    pub fn shadow_figures(&self, cluster: &Cluster) -> Vec<(Arc<str>, RuleFigures)> {
        let figures = self.shadow.sums().map(|(name, sums)| {
            let total = sums.total.iter().take(MOST_KEYS).map(|(resource, nanos)| {
                let amount = Amount::from_nanos(*nanos).quantity(Format::DecimalSi);
                (resource.key().to_owned(), amount)
            });
            let total = total.collect();
            let shadow = ShadowFigures { held: sums.held, total, ..self.amounts_by(cluster, sums) };
            (Arc::clone(name), RuleFigures { matched: sums.matched, held: 0, shadow: Some(shadow) })
        });
        figures.collect()
    }

    /// The amounts of quotas that would be others.
    fn amounts_by(&self, cluster: &Cluster, sums: &Sums) -> ShadowFigures {
        let mut all: Vec<(Reverse<u128>, ShadowAmount)> = Vec::new();
        let mut differences = 0;
        for (id, change) in &sums.quotas {
            let amounts = self.amounts_of_quota(cluster, *id, change);
            differences += amounts.len();
            all.extend(amounts);
            all.sort_by(|(one, a), (other, b)| (one, a.place()).cmp(&(other, b.place())));
            all.truncate(MOST_TOLD);
        }
        let largest = all.into_iter().map(|(_, amount)| amount).collect();
        ShadowFigures { differences, largest, ..ShadowFigures::default() }
    }

    /// Each with its part of the limit, in millionths.
    fn amounts_of_quota(
        &self,
        cluster: &Cluster,
        id: QuotaId,
        change: &Change,
    ) -> Vec<(Reverse<u128>, ShadowAmount)> {
        let found = self.complete(cluster, id).zip(self.stages.queue().ledger(id));
        let Some(((compiled, ledger), quota)) = found.zip(cluster.quota_name(id)) else { return Vec::new() };
        let namespace = cluster.quota_ref(id).map(|name| name.namespace()).unwrap_or_default();
        let amounts = ledger.lines().iter().filter_map(|line| {
            let nanos = *change.get(&line.resource)?;
            let entry = keys_of(compiled, &line.resource).next()?;
            let (used, format) = (line.used(), entry.hard.format());
            let enforced = used.saturating_add(Amount::from_nanos(nanos));
            let part =
                nanos.unsigned_abs().saturating_mul(1_000_000) / line.hard.nanos().unsigned_abs().max(1);
            let amount = ShadowAmount {
                namespace: Arc::clone(&namespace),
                quota: quota.clone(),
                key: entry.key.to_string(),
                hard: entry.hard,
                used: used.quantity(format),
                enforced: enforced.quantity(format),
            };
            Some((Reverse(part), amount))
        });
        amounts.collect()
    }
}
