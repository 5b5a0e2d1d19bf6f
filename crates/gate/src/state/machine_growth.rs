//! Judges updates of VMs, and charges those that give a VM more (`docs/protocols.md`, *Charged at admission*).
//!
//! What a VM is charged does not wait for a pod: from the answer on it is the larger of what is known of the VM and what the
//! update asks for. A pod by which the VM gets that, the target of a migration, costs nothing more then. Where VMs are
//! charged by their pods, what that one is going to take is found from the VM and a launcher that there is.

use std::sync::Arc;

use sluice_engine::{Charge, Patience, PodId, QuotaId, Uid};
use sluice_index::{NamespaceId, Source, VmiRecord, VmiWire};

use super::State;
use super::machines::as_launcher;
use crate::action::{Answer, GateEvent, MachineRead, Regarding};
use crate::admission::{Asked, CHANGED, Judgement, MachineChange};
use crate::cluster::machines::Owner;
use crate::cluster::machines::Unknown;
use crate::config::Moment;
use crate::messages::reasons;
use crate::parts::growth::Want;
use crate::stage::Stage;

const ALLOWED: Asked = Asked::Judged(Judgement::Allowed);

/// A VM none of whose pods is known to run: what it is to take more could not be recorded, and a predecessor may be letting
/// a pod of it go for what it had. Where VMs are charged by their pods, what the next one takes is not known either.
const RUNS_NOT: Judgement = Judgement::Undecided("no pod of the VM runs yet");

impl State {
    /// Judges an update of a VM, and charges it if the VM is to take more.
    pub fn ask_about_machine(&mut self, change: &MachineChange, now: Moment) -> Asked {
        // A pod of a VM may just have changed.
        self.go_on_appraising(now);
        let judged = self.judge_machine(change, now);
        if let Err(Judgement::Refused(words)) = &judged
            && !change.dry_run
        {
            self.tell_machine(&change.before, words, now);
        }
        judged.unwrap_or_else(Asked::Judged)
    }

    fn judge_machine(&mut self, change: &MachineChange, now: Moment) -> Result<Asked, Judgement> {
        let Some((owner, namespace)) = self.concerns_machine(change)? else { return Ok(ALLOWED) };
        let known = self.stages.owners().charged(&owner).map(|(_, charge)| charge).unwrap_or_default();
        let Some(asked) = self.asked(&owner, change)? else { return Ok(ALLOWED) };
        let is_growing = change.after.size.as_ref().is_ok_and(|vm| vm.is_growing() == Ok(true));
        if (is_growing || !known.covers(&asked)) && !self.runs(&owner) {
            return Err(RUNS_NOT);
        }
        if known.covers(&asked) && self.machine_growth.wanted(&owner).is_none() {
            return Ok(ALLOWED);
        }
        let wanted = Arc::new(known.max(&asked));
        let more = self.missing(&owner, &wanted);
        let has_pause = self.has_pause(namespace);
        let invalid = self.cluster.invalid_quota(namespace).filter(|_| !has_pause && !known.covers(&asked));
        if let Some(invalid) = invalid {
            return Err(Judgement::Refused(self.cluster.invalid_message(invalid)));
        }
        if more.iter().any(|(quota, _, _)| self.stages.queue().rests(*quota)) {
            return Err(CHANGED);
        }
        let patience = Patience { now_ms: now.mono_ms, limit_ms: self.cluster.config.patience_ms };
        let charges: Vec<_> = more.iter().map(|(quota, charge, _)| (*quota, charge.clone())).collect();
        let fits = if has_pause { Ok(()) } else { self.stages.queue().can_grow(&charges, patience) };
        fits.map_err(|reason| self.refusal(namespace, &reason))?;
        if change.dry_run {
            return Ok(ALLOWED);
        }
        let until_ms = now.mono_ms + self.cluster.config.admission_life_ms;
        let want = Want { version: change.before.version, until_ms, wanted, known };
        let serial = self.stages.next_serial();
        let is_awaited = self.machine_growth.want(&owner, want, serial, more.len());
        self.appraise(&owner, now);
        for (quota, _, pod) in more {
            self.writes.charge(quota, pod, serial);
        }
        Ok(if is_awaited { Asked::Recording(serial) } else { ALLOWED })
    }

    /// What the VM is to be charged after the update; `None`: it could not be counted before either.
    fn asked(&self, owner: &Owner, change: &MachineChange) -> Result<Option<Charge>, Judgement> {
        let after = &change.after.size;
        let launchers = self.launchers(owner);
        match self.cluster.machines.charge_of(after, launchers.iter().filter_map(as_launcher)) {
            Ok(asked) => Ok(Some(self.with_answers(owner, asked.unwrap_or_default()))),
            Err(_) if change.before.size.is_err() => Ok(None),
            Err(unknown) => Err(Judgement::Refused(uncountable(&unknown))),
        }
    }

    /// Who asks is KubeVirt's controller, and the VM's owner hears of it from that alone.
    fn tell_machine(&mut self, vmi: &VmiRecord, words: &str, now: Moment) {
        let owner = Owner { namespace: Arc::clone(&vmi.namespace), uid: vmi.uid.clone() };
        if self.cluster.machines.tell(&owner, now) {
            self.events.announce(GateEvent {
                regarding: Regarding::Machine,
                namespace: owner.namespace,
                name: Arc::clone(&vmi.name),
                uid: owner.uid,
                reason: reasons::EXCEEDED,
                message: format!("not given more CPUs or memory: {words}"),
            });
        }
    }

    /// The VM that is to be charged and its namespace; `None` if the update is not this controller's concern.
    fn concerns_machine(&self, change: &MachineChange) -> Result<Option<(Owner, NamespaceId)>, Judgement> {
        let before = &change.before;
        let is_charged = self.cluster.machines.are_charged();
        self.concerns_version(is_charged, &before.namespace, before.version, |_| {
            let owner = Owner { namespace: Arc::clone(&before.namespace), uid: before.uid.clone() };
            self.cluster.machines.version(&owner).map(|known| (owner, known))
        })
    }

    /// Whether a pod of the VM is charged, or needs none.
    fn runs(&self, owner: &Owner) -> bool {
        let runs =
            |pod: &PodId| matches!(self.stages.get(*pod), Stage::Counted { .. } | Stage::Assumed { .. });
        self.stages.owners().pods(owner).iter().any(runs)
    }

    /// What quotas lack if the VM is charged this, and on account of which of its pods;
    /// nothing while none of them is charged.
    fn missing(&self, owner: &Owner, charge: &Charge) -> Vec<(QuotaId, Charge, PodId)> {
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
    pub(super) fn end_all_growth(&mut self) {
        let tickets = self.machine_growth.end_all();
        self.admissions.answer(tickets, &CHANGED);
    }

    /// The decision will not be recorded.
    pub(super) fn revert_growth(&mut self, serial: u64, now: Moment) {
        let Some((owner, tickets)) = self.machine_growth.revert(serial) else { return };
        self.admissions.answer(tickets, &CHANGED);
        self.appraise(&owner, now);
        self.stats.reverted += 1;
    }

    /// The quotas of the namespace are changing: of its VMs only what was allowed is still wanted.
    pub(super) fn revert_growth_of(&mut self, namespace: NamespaceId) {
        let Some(known) = self.cluster.namespaces.get(namespace).filter(|_| !self.machine_growth.is_empty())
        else {
            return;
        };
        let (owners, tickets) = self.machine_growth.revert_all(|owner| owner.namespace == known.name);
        self.repricing.appraise_later(owners);
        self.admissions.answer(tickets, &CHANGED);
    }

    pub(super) fn plan_machine_reads(&mut self, now: Moment) -> Vec<MachineRead> {
        let mut reads = Vec::new();
        for owner in self.machine_growth.take_reads(now) {
            match self.cluster.machines.name(&owner).map(Arc::clone) {
                Some(name) => reads.push(MachineRead { namespace: owner.namespace, name, uid: owner.uid }),
                None => {
                    self.machine_growth.end(&owner);
                }
            }
        }
        reads
    }

    /// The VM was read after the last request about it could be done.
    pub(super) fn on_machine_read(
        &mut self,
        read: &MachineRead,
        answer: Answer<Option<VmiWire>>,
        now: Moment,
    ) {
        let owner = Owner { namespace: Arc::clone(&read.namespace), uid: read.uid.clone() };
        let Answer::Done(found) = answer else { return self.machine_growth.read_later(owner, now) };
        // The watch may have shown its end meanwhile and will not do so again.
        if self.cluster.machines.knows(&owner) {
            let is_it =
                |vmi: &VmiWire| vmi.metadata.uid.as_deref().map(Uid::parse).as_ref() == Some(&owner.uid);
            match found.filter(is_it) {
                Some(vmi) => self.see_machine(&vmi, Source::Answer, now),
                None => self.forget_machine(&owner, now),
            }
        }
        // There may have been more questions meanwhile.
        if self.machine_growth.has_expired(&owner, now) && self.end_growth(&owner, &CHANGED) {
            self.appraise(&owner, now);
        }
    }
}

fn uncountable(unknown: &Unknown) -> String {
    match unknown {
        Unknown::Unseen => "the VM is not known".to_owned(),
        Unknown::Unreadable(why) => format!("cannot be charged: {why}"),
    }
}
