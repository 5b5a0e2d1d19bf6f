//! Judges updates of VMs, and charges those that give a VM more (`docs/protocols.md`, *Charged at admission*).
//!
//! What a VM is charged does not wait for a pod: from the answer on it is the larger of what is known of the VM and what the
//! update asks for. A pod by which the VM gets that, the target of a migration, costs nothing more then. Where VMs are
//! charged by their pods, what that one is going to take is found from the VM and a launcher that there is.

use std::borrow::Cow;
use std::sync::Arc;

use sluice_engine::{Charge, Patience, PodId, QuotaId};
use sluice_index::NamespaceId;

use super::Accounts;
use super::machines::as_launcher;
use crate::accounts::parts::growth::Want;
use crate::action::MachineRead;
use crate::admission::{Asked, CHANGED, Judgement, MachineChange};
use crate::cluster::Cluster;
use crate::cluster::machines::{Owner, Unknown};
use crate::config::Moment;
use crate::orders::{News, Order};
use crate::stage::Stage;

const ALLOWED: Asked = Asked::Judged(Judgement::Allowed);

/// A VM none of whose pods is known to run: what it is to take more could not be recorded, and a predecessor may be letting
/// a pod of it go for what it had. Where VMs are charged by their pods, what the next one takes is not known either.
const RUNS_NOT: Judgement = Judgement::Undecided(Cow::Borrowed("no pod of the VM runs yet"));

impl Accounts {
    pub fn judge_machine(
        &mut self,
        cluster: &Cluster,
        change: &MachineChange,
        now: Moment,
    ) -> Result<Asked, Judgement> {
        let Some((owner, namespace)) = self.concerns_machine(cluster, change)? else { return Ok(ALLOWED) };
        let known = self.stages.owners().charged(&owner).map(|(_, charge)| charge).unwrap_or_default();
        let Some(asked) = self.asked(cluster, &owner, change)? else { return Ok(ALLOWED) };
        let is_growing = change.after.size.as_ref().is_ok_and(|vm| vm.is_growing() == Ok(true));
        if (is_growing || !known.covers(&asked)) && !self.runs(&owner) {
            return Err(RUNS_NOT);
        }
        if known.covers(&asked) && self.machine_growth.wanted(&owner).is_none() {
            return Ok(ALLOWED);
        }
        let wanted = Arc::new(known.max(&asked));
        let more = self.missing(&owner, &wanted);
        if self.is_unrecorded(&owner, &asked.above(&known), &more) {
            // A pod of it was decided on with as much, as by an update that has ended since: no record says so yet.
            return Err(CHANGED);
        }
        let has_pause = self.has_pause(namespace);
        let invalid = cluster.invalid_quota(namespace).filter(|_| !has_pause && !known.covers(&asked));
        if let Some(invalid) = invalid {
            return Err(Judgement::Refused(cluster.invalid_message(invalid)));
        }
        if more.iter().any(|(quota, _, _)| self.stages.queue().rests(*quota)) {
            return Err(CHANGED);
        }
        let patience = Patience { now_ms: now.mono_ms, limit_ms: cluster.config.patience_ms };
        let charges: Vec<_> = more.iter().map(|(quota, charge, _)| (*quota, charge.clone())).collect();
        let fits = if has_pause { Ok(()) } else { self.stages.queue().can_grow(&charges, patience) };
        fits.map_err(|reason| self.refusal(cluster, namespace, &reason))?;
        if change.dry_run {
            return Ok(ALLOWED);
        }
        let until_ms = now.mono_ms + cluster.config.admission_life_ms;
        let want = Want { version: change.before.version, until_ms, wanted, known };
        let serial = self.stages.next_serial();
        let is_awaited = self.machine_growth.want(&owner, want, serial, more.len());
        self.appraise(cluster, &owner, now);
        for (quota, _, pod) in more {
            self.orders.give(Order::Record(quota, (pod, serial)));
        }
        Ok(if is_awaited { Asked::Recording(serial) } else { ALLOWED })
    }

    /// What the VM is to be charged after the update; `None`: it could not be counted before either.
    pub fn asked(
        &self,
        cluster: &Cluster,
        owner: &Owner,
        change: &MachineChange,
    ) -> Result<Option<Charge>, Judgement> {
        let after = &change.after.size;
        let launchers = self.launchers(cluster, owner);
        match cluster.machines.charge_of(after, launchers.iter().filter_map(as_launcher)) {
            Ok(asked) => Ok(Some(self.with_answers(cluster, owner, asked.unwrap_or_default()))),
            Err(_) if change.before.size.is_err() => Ok(None),
            Err(unknown) => Err(Judgement::Refused(uncountable(&unknown))),
        }
    }

    /// The VM that is to be charged and its namespace; `None` if the update is not this controller's concern.
    fn concerns_machine(
        &self,
        cluster: &Cluster,
        change: &MachineChange,
    ) -> Result<Option<(Owner, NamespaceId)>, Judgement> {
        let before = &change.before;
        let is_charged = cluster.machines.are_charged();
        self.concerns_version(cluster, is_charged, &before.namespace, before.version, |_| {
            let owner = Owner { namespace: Arc::clone(&before.namespace), uid: before.uid.clone() };
            cluster.machines.version(&owner).map(|known| (owner, known))
        })
    }

    /// Whether a pod of the VM is charged, or needs none.
    pub fn runs(&self, owner: &Owner) -> bool {
        let runs =
            |pod: &PodId| matches!(self.stages.get(*pod), Stage::Counted { .. } | Stage::Assumed { .. });
        self.stages.owners().pods(owner).iter().any(runs)
    }

    /// Whether a quota that counts some of this growth has no `more` to record, and may not have recorded yet what a pod of
    /// the VM is decided on with.
    fn is_unrecorded(&self, owner: &Owner, growth: &Charge, more: &[(QuotaId, Charge, PodId)]) -> bool {
        let rests_on_decision = |quota: &QuotaId| {
            let ledger = self.stages.queue().ledger(*quota);
            ledger.is_some_and(|ledger| growth.iter().any(|(resource, _)| ledger.line(resource).is_some()))
                && more.iter().all(|(other, ..)| other != quota)
        };
        self.stages.owners().pods(owner).iter().any(|pod| match self.stages.get(*pod) {
            Stage::Assumed { awaited: 1.., quotas, .. } => quotas.iter().any(rests_on_decision),
            _ => false,
        })
    }

    /// What quotas lack if the VM is charged this, and on account of which of its pods;
    /// nothing while none of them is charged.
    pub fn missing(&self, owner: &Owner, charge: &Charge) -> Vec<(QuotaId, Charge, PodId)> {
        let mut missing: Vec<(QuotaId, Charge, PodId)> = Vec::new();
        for pod in self.stages.owners().pods(owner) {
            let (Stage::Counted { quotas, .. } | Stage::Assumed { quotas, .. }) = self.stages.get(*pod)
            else {
                continue;
            };
            for quota in quotas.iter() {
                let Some(ledger) = self.stages.queue().ledger(*quota) else { continue };
                let more = charge.above(&self.stages.taken(owner, *quota).total());
                let limited = more.iter().filter(|(resource, _)| ledger.line(resource).is_some()).cloned();
                let more = Charge::from_pairs(limited);
                if !more.is_empty() && missing.iter().all(|(other, ..)| other != quota) {
                    missing.push((*quota, more, *pod));
                }
            }
        }
        missing
    }

    /// The VM is charged for no update any more. Returns whether it was.
    pub(super) fn end_growth(&mut self, owner: &Owner, judgement: &Judgement) -> bool {
        let tickets = self.machine_growth.end(owner);
        let has_ended = tickets.is_some();
        self.admissions.answer(tickets.unwrap_or_default(), judgement);
        has_ended
    }

    /// VMs are counted otherwise from now on: what was asked for says nothing any more.
    pub fn end_all_growth(&mut self) {
        let tickets = self.machine_growth.end_all();
        self.admissions.answer(tickets, &CHANGED);
    }

    /// The decision will not be recorded.
    pub(super) fn revert_growth(&mut self, cluster: &Cluster, serial: u64, now: Moment) {
        let Some((owner, tickets)) = self.machine_growth.revert(serial) else { return };
        self.admissions.answer(tickets, &CHANGED);
        self.appraise_after_growth(cluster, &owner, now);
        self.orders.tell(News::Reverted(1));
    }

    /// The quotas of the namespace are changing: of its VMs only what was allowed is still wanted.
    pub(super) fn revert_growth_of(&mut self, cluster: &Cluster, namespace: NamespaceId) {
        let Some(known) = cluster.namespaces.get(namespace).filter(|_| !self.machine_growth.is_empty())
        else {
            return;
        };
        let (owners, tickets) = self.machine_growth.revert_all(|owner| owner.namespace == known.name);
        self.repricing.appraise_later(owners);
        self.admissions.answer(tickets, &CHANGED);
    }

    pub fn plan_machine_reads(&mut self, cluster: &Cluster, now: Moment) -> Vec<MachineRead> {
        let mut reads = Vec::new();
        for owner in self.machine_growth.take_reads(now) {
            match cluster.machines.name(&owner).map(Arc::clone) {
                Some(name) => reads.push(MachineRead { namespace: owner.namespace, name, uid: owner.uid }),
                None => {
                    self.machine_growth.end(&owner);
                }
            }
        }
        reads
    }

    /// The VM could not be read.
    pub fn read_machine_later(&mut self, owner: Owner, now: Moment) {
        self.machine_growth.read_later(owner, now);
    }

    /// The VM was read after the last request about it could be done.
    pub fn on_machine_read(&mut self, cluster: &Cluster, owner: &Owner, now: Moment) {
        // There may have been more questions meanwhile.
        if self.machine_growth.has_expired(owner, now) && self.end_growth(owner, &CHANGED) {
            self.appraise_after_growth(cluster, owner, now);
        }
    }
}

fn uncountable(unknown: &Unknown) -> String {
    match unknown {
        Unknown::Unseen => "the VM is not known".to_owned(),
        Unknown::Unreadable(why) => format!("cannot be charged: {why}"),
    }
}
