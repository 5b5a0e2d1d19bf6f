//! Everything the gate knows and has decided; changed by events only, without any I/O.
//!
//! [`super::observe`] feeds it, [`super::plan`] asks it what to do, [`super::settle`] tells it what became of
//! that.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use sluice_engine::{Charge, ChargeRules, Claim, PodId, QuotaId, ReleaseQueue, ScopeFacts, Uid};
use sluice_index::{Gates, NamespaceId, Namespaces, PodRecord, Pods, Quotas, Targeting, push_tightly};
use smallvec::SmallVec;

use super::admitted::Admissions;
use super::config::{GateConfig, Moment};
use super::confirm::Confirmations;
use super::contest::Contest;
use super::honour::{Stamp, Unseen};
use super::restaging::Restaging;
use super::stage::{Stage, Stuck, Trouble};
use super::stats::Stats;
use super::telling::Telling;

/// Writing the status of one quota.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// Decisions (pod and serial) whose charge has to be recorded before the gate is removed.
    pub pending: Vec<(PodId, u64)>,
    /// A write that was not answered yet.
    pub in_flight: Option<InFlight>,
    /// Not before this moment (milliseconds).
    pub not_before_ms: u64,
    /// Failures in a row.
    pub failures: u32,
    /// Until when usage found in the status is honoured (milliseconds).
    pub honoured_until_ms: Option<u64>,
    /// When the last write was begun (milliseconds).
    pub last_ms: Option<u64>,
    /// Others that write it too.
    pub contest: Contest,
    /// Others that let pods go which wait for it.
    pub gates: Contest,
}

/// A write that was not answered yet.
#[derive(Debug)]
pub(super) struct InFlight {
    /// The decisions (pod and serial) it charges.
    pub charged: Vec<(PodId, u64)>,
    /// They were made before something was seen that speaks against them.
    pub overtaken: bool,
}

/// The state of the gate.
#[derive(Debug)]
pub struct State {
    pub(super) config: GateConfig,
    pub(super) pods: Pods,
    pub(super) namespaces: Namespaces,
    pub(super) quotas: Quotas,
    pub(super) queue: ReleaseQueue,
    /// By the number of the pod's handle.
    pub(super) stages: Vec<Stage>,
    pub(super) troubles: HashMap<PodId, Trouble>,
    pub(super) seen_ms: HashMap<PodId, u64>,
    pub(super) writings: HashMap<QuotaId, Writing>,
    /// Usage of other leaders that may have been released and not be seen.
    pub(super) unseen: Unseen,
    /// Charges that count when the watch of quotas has come to their records.
    pub(super) confirmations: Confirmations,
    /// Quotas whose status may have to be written.
    pub(super) dirty: BTreeSet<QuotaId>,
    /// The last of them that was looked at.
    pub(super) looked_at: QuotaId,
    /// Writes of statuses that were not answered yet.
    pub(super) recording: usize,
    /// Quotas to look at again at a moment (milliseconds).
    pub(super) quota_later: BTreeSet<(u64, QuotaId)>,
    /// Pods to look at again at a moment (milliseconds).
    pub(super) pod_later: BTreeSet<(u64, PodId)>,
    /// Pods whose gate is to be removed now.
    pub(super) to_release: VecDeque<PodId>,
    /// Pods whose gate is being removed.
    pub(super) releasing: HashSet<PodId>,
    /// Namespaces whose quotas have to be read before pods may go without a charge.
    pub(super) to_check: BTreeSet<NamespaceId>,
    pub(super) checking: HashMap<NamespaceId, Vec<(PodId, Uid)>>,
    /// Where that failed: how often in a row, and until when (milliseconds) it is not tried again.
    pub(super) check_failures: HashMap<NamespaceId, (u32, u64)>,
    pub(super) check_later: BTreeSet<(u64, NamespaceId)>,
    /// What pods were told, and who has news.
    pub(super) telling: Telling,
    /// Updates of pods that are being admitted.
    pub(super) admissions: Admissions,
    /// Namespaces whose pods are finding their stages anew.
    pub(super) restaging: Restaging,
    /// The lists of quotas that pods share: most pods of a namespace have the same.
    pub(super) quota_lists: HashSet<Arc<[QuotaId]>>,
    pub(super) next_serial: u64,
    /// Marks the charges that this process records.
    pub(super) stamp: Stamp,
    pub(super) leading: bool,
    /// What happened, for metrics.
    pub stats: Stats,
}

impl State {
    /// A state that knows nothing yet.
    #[must_use]
    pub fn new(config: GateConfig, targeting: Targeting) -> Self {
        Self {
            config,
            pods: Pods::default(),
            namespaces: Namespaces::new(targeting),
            quotas: Quotas::default(),
            queue: ReleaseQueue::default(),
            stages: Vec::new(),
            troubles: HashMap::new(),
            seen_ms: HashMap::new(),
            writings: HashMap::new(),
            unseen: Unseen::default(),
            confirmations: Confirmations::default(),
            dirty: BTreeSet::new(),
            looked_at: QuotaId(0),
            recording: 0,
            quota_later: BTreeSet::new(),
            pod_later: BTreeSet::new(),
            to_release: VecDeque::new(),
            releasing: HashSet::new(),
            to_check: BTreeSet::new(),
            checking: HashMap::new(),
            check_failures: HashMap::new(),
            check_later: BTreeSet::new(),
            telling: Telling::default(),
            admissions: Admissions::default(),
            restaging: Restaging::default(),
            quota_lists: HashSet::new(),
            next_serial: 0,
            stamp: Stamp::random(),
            leading: false,
            stats: Stats::default(),
        }
    }

    /// From now on decisions are made. What quotas have recorded above what the pods take may be releases of
    /// a predecessor that have not arrived yet: it is honoured for a while.
    pub fn lead(&mut self, now: Moment) {
        self.leading = true;
        let ids: Vec<QuotaId> = self.quotas.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.honour_recorded(id, now);
            self.queue.wake(id);
            self.dirty.insert(id);
        }
        self.to_release =
            self.pods.iter().map(|(id, _)| id).filter(|id| self.is_to_be_released(*id)).collect();
        self.to_check.extend(self.namespaces.iter().map(|(id, _)| id));
        let unreadable = self.pods.iter().filter(|(_, record)| record.unreadable.is_some()).map(|(id, _)| id);
        for id in self.seen_ms.keys().copied().chain(unreadable) {
            self.telling.news(id, now);
        }
    }

    /// From now on pods are read by these rules; those that are known have to be seen again.
    pub fn charge_by(&mut self, rules: ChargeRules) {
        self.config.rules = rules;
    }

    /// Whether everything that was started is answered and done.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.releasing.is_empty()
            && self.confirmations.is_empty()
            && self.checking.is_empty()
            && self.restaging.is_over()
            && self.writings.values().all(|writing| writing.in_flight.is_none())
    }

    /// How many pods are held, by whatever.
    #[must_use]
    pub fn held(&self) -> usize {
        self.seen_ms.len()
    }

    /// All pods, namespaces and quotas.
    #[must_use]
    pub fn index(&self) -> (&Pods, &Namespaces, &Quotas) {
        (&self.pods, &self.namespaces, &self.quotas)
    }

    /// All ledgers.
    #[must_use]
    pub fn queue(&self) -> &ReleaseQueue {
        &self.queue
    }

    pub(super) fn stage(&self, id: PodId) -> &Stage {
        const FOREIGN: &Stage = &Stage::Foreign;
        self.stages.get(id.0 as usize).unwrap_or(FOREIGN)
    }

    pub(super) fn set_stage(&mut self, id: PodId, stage: Stage) {
        let at = id.0 as usize;
        while self.stages.len() <= at {
            push_tightly(&mut self.stages, Stage::default());
        }
        if let Some(slot) = self.stages.get_mut(at) {
            *slot = stage;
        }
    }

    /// The pod has ended or changed: ends whatever it has claimed so far. `record` is the pod as it was when it
    /// claimed it, as far as its place in the order goes.
    pub(super) fn unstage(&mut self, id: PodId, record: &PodRecord) {
        self.leave_stage(id, record, ReleaseQueue::end);
    }

    /// Takes back whatever the pod has claimed so far, for it was certainly not released on account of it or
    /// will claim it again at once.
    pub(super) fn lift(&mut self, id: PodId, record: &PodRecord) {
        self.leave_stage(id, record, ReleaseQueue::revert);
    }

    fn leave_stage(
        &mut self,
        id: PodId,
        record: &PodRecord,
        mut drop_claim: impl FnMut(&mut ReleaseQueue, Claim, &[QuotaId], &Charge),
    ) {
        match std::mem::take(self.stages.get_mut(id.0 as usize).unwrap_or(&mut Stage::Foreign)) {
            Stage::Waiting(class) => {
                self.dirty_class(class);
                self.queue.leave(class, &record.wait_key());
            }
            Stage::Assumed { charge, quotas, .. } => {
                drop_claim(&mut self.queue, Claim::Assumed, &quotas, &charge);
                self.dirty.extend(quotas.iter());
            }
            Stage::Counted { charge, quotas } => {
                drop_claim(&mut self.queue, Claim::Counted, &quotas, &charge);
                self.dirty.extend(quotas.iter());
            }
            Stage::Foreign | Stage::Free { .. } | Stage::Stuck(_) => {}
        }
    }

    /// Finds the stage of a pod that has claimed nothing.
    pub(super) fn restage(&mut self, id: PodId, now: Moment) {
        let Some(record) = self.pods.get(id) else { return };
        let is_unreadable = record.unreadable.is_some();
        let stage = match record.gates {
            Gates::None => self.counted_stage(&record.clone()),
            Gates::Foreign => Stage::Foreign,
            Gates::Ours => self.gated_stage(id, &record.clone(), now),
        };
        if matches!(stage, Stage::Counted { .. }) {
            self.troubles.remove(&id);
        }
        if matches!(stage, Stage::Counted { .. } | Stage::Foreign) {
            self.seen_ms.remove(&id);
        } else {
            self.seen_ms.entry(id).or_insert(now.mono_ms);
        }
        let may_be_told = match &stage {
            Stage::Foreign => false,
            Stage::Counted { quotas, .. } => is_unreadable && !quotas.is_empty(),
            Stage::Waiting(_) | Stage::Free { .. } | Stage::Assumed { .. } | Stage::Stuck(_) => true,
        };
        match (may_be_told, self.leading) {
            (true, true) => self.telling.news(id, now),
            (true, false) => {}
            (false, _) => self.telling.forget(id),
        }
        self.set_stage(id, stage);
    }

    fn counted_stage(&mut self, record: &PodRecord) -> Stage {
        let charge = Arc::clone(&record.charge);
        let quotas = self.matching_quotas(record.namespace, &record.scope_facts);
        self.queue.apply(Claim::Counted, &quotas, &charge);
        self.dirty.extend(quotas.iter());
        Stage::Counted { charge, quotas }
    }

    fn gated_stage(&mut self, id: PodId, record: &PodRecord, now: Moment) -> Stage {
        let Some(is_targeted) = self.namespaces.is_targeted(record.namespace) else {
            return Stage::Stuck(Stuck::UnknownNamespace);
        };
        if self.troubles.get(&id).is_some_and(|trouble| trouble.until_ms > now.mono_ms) {
            return Stage::Stuck(Stuck::BackingOff);
        }
        if !is_targeted {
            self.to_release.push_back(id);
            return Stage::Free { cleared: true };
        }
        if self.namespaces.get(record.namespace).is_some_and(|namespace| namespace.terminating) {
            return Stage::Stuck(Stuck::Terminating);
        }
        if let Some(invalid) = self.invalid_quota(record.namespace) {
            return Stage::Stuck(Stuck::InvalidQuota(invalid));
        }
        if let Some(field) = &record.unreadable {
            return Stage::Stuck(Stuck::Unreadable(Arc::clone(field)));
        }
        let quotas = self.matching_quotas(record.namespace, &record.scope_facts);
        if quotas.is_empty() {
            self.to_check.insert(record.namespace);
            return Stage::Free { cleared: false };
        }
        self.dirty.extend(quotas.iter());
        let since_ms = *self.seen_ms.entry(id).or_insert(now.mono_ms);
        let class = self.queue.wait(id, record.wait_key(), since_ms, Arc::clone(&record.charge), quotas);
        Stage::Waiting(class)
    }

    /// The quotas of a namespace that are about such a pod, in the order of ids.
    pub(super) fn matching_quotas(&mut self, namespace: NamespaceId, facts: &ScopeFacts) -> Arc<[QuotaId]> {
        let Some(namespace) = self.namespaces.get(namespace) else { return Arc::from([]) };
        let matching: SmallVec<[QuotaId; 8]> = namespace
            .quotas()
            .iter()
            .copied()
            .filter(|id| {
                self.quotas
                    .get(*id)
                    .and_then(|quota| quota.compiled.as_ref().ok())
                    .is_some_and(|compiled| compiled.scopes.matches(facts))
            })
            .collect();
        if let Some(known) = self.quota_lists.get(&*matching) {
            return Arc::clone(known);
        }
        let list: Arc<[QuotaId]> = Arc::from(&*matching);
        self.quota_lists.insert(Arc::clone(&list));
        list
    }

    pub(super) fn invalid_quota(&self, namespace: NamespaceId) -> Option<QuotaId> {
        self.namespaces
            .get(namespace)?
            .quotas()
            .iter()
            .copied()
            .find(|id| self.quotas.get(*id).is_some_and(|quota| quota.compiled.is_err()))
    }

    pub(super) fn dirty_class(&mut self, class: sluice_engine::ClassId) {
        if let Some(class) = self.queue.class(class) {
            self.dirty.extend(class.quotas().iter());
        }
    }

    pub(super) fn invalid_message(&self, quota: QuotaId) -> String {
        let invalid =
            self.quotas.get(quota).and_then(|quota| Some((&quota.name, quota.compiled.as_ref().err()?)));
        let Some((name, error)) = invalid else { return String::new() };
        format!("quota {name} cannot be enforced: {error}; correct or delete it")
    }
}
