//! Judges updates of VMs, and reads VMs about which a request was not seen to end.

use std::sync::Arc;

use sluice_engine::Uid;
use sluice_index::{Source, VmiRecord, VmiWire};

use super::State;
use crate::action::{Answer, MachineRead};
use crate::admission::{Asked, Judgement, MachineChange};
use crate::cluster::machines::Owner;
use crate::config::Moment;

impl State {
    /// Judges an update of a VM, and charges it if the VM is to take more.
    pub fn ask_about_machine(&mut self, change: &MachineChange, now: Moment) -> Asked {
        // The VM's pods may have changed since it was charged.
        self.accounts.go_on_appraising(&self.cluster, now);
        let judged = self.accounts.judge_machine(&self.cluster, change, now);
        if let Err(Judgement::Refused(words)) = &judged
            && !change.dry_run
        {
            self.tell_machine(&change.before, words, now);
        }
        self.carry_out();
        judged.unwrap_or_else(Asked::Judged)
    }

    /// KubeVirt's controller gets the refusal. Only an event tells the owner of the VM.
    fn tell_machine(&mut self, vmi: &VmiRecord, words: &str, now: Moment) {
        let owner = Owner { namespace: Arc::clone(&vmi.namespace), uid: vmi.uid.clone() };
        if self.cluster.machines.tell(&owner, now) {
            self.reporter.tell_machine(vmi, words);
        }
    }

    /// The VM was read when no update of it that was admitted could be in flight any more.
    pub(super) fn on_machine_read(
        &mut self,
        read: &MachineRead,
        answer: Answer<Option<VmiWire>>,
        now: Moment,
    ) {
        let owner = Owner { namespace: Arc::clone(&read.namespace), uid: read.uid.clone() };
        let Answer::Done(found) = answer else { return self.accounts.read_machine_later(owner, now) };
        // The watch may have shown its end meanwhile and will not do so again.
        if self.cluster.machines.knows(&owner) {
            let is_it =
                |vmi: &VmiWire| vmi.metadata.uid.as_deref().map(Uid::parse).as_ref() == Some(&owner.uid);
            match found.filter(is_it) {
                Some(vmi) => self.see_machine(&vmi, Source::Answer, now),
                None => self.forget_machine(&owner, now),
            }
        }
        self.accounts.on_machine_read(&self.cluster, &owner, now);
    }
}
