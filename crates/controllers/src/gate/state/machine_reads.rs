//! Reads of VMs before pods of theirs go.
//!
//! KubeVirt's controller changes a VM and creates a pod for it, and the watches may show the pod first. So a pod that is charged
//! for a VM goes only when the VM was read after the decision, and is charged what it was decided on for.

use std::sync::Arc;

use sluice_engine::{PodId, Uid};
use sluice_index::VmiWire;

use super::State;
use crate::gate::action::{Answer, MachineRead};
use crate::gate::config::Moment;
use crate::gate::parts::owners::Owner;
use crate::gate::parts::quota_checks::Listed;

impl State {
    pub(super) fn is_charged_for_a_machine(&self, pod: PodId) -> bool {
        self.stages.owners().owner_of(pod).is_some_and(|owner| self.machines.knows(owner))
    }

    /// How to read the VM of the pod; `None` if either is gone.
    pub(super) fn read_of_machine(&self, pod: PodId) -> Option<MachineRead> {
        let owner = self.stages.owners().owner_of(pod)?;
        let name = Arc::clone(self.machines.name(owner)?);
        Some(MachineRead { pod, namespace: Arc::clone(&owner.namespace), name, uid: owner.uid.clone() })
    }

    pub(super) fn on_machine_read(
        &mut self,
        read: &MachineRead,
        answer: Answer<Option<VmiWire>>,
        now: Moment,
    ) {
        let listed = Listed::Machine(read.pod);
        let Some(found) = self.take_list(&[listed], answer, now) else { return };
        let owner = Owner { namespace: Arc::clone(&read.namespace), uid: read.uid.clone() };
        // The watch may have shown its end meanwhile and will not do so again.
        if self.machines.knows(&owner) {
            let is_it =
                |vmi: &VmiWire| vmi.metadata.uid.as_deref().map(Uid::parse).as_ref() == Some(&owner.uid);
            match found.filter(is_it) {
                Some(vmi) => self.apply_machine(&vmi, now),
                None => self.forget_machine(&owner, now),
            }
        }
        let confirmed = self.checks.succeeded(listed);
        if self.is_known(&owner) {
            self.on_charges_confirmed(confirmed);
        } else {
            self.revert_decisions(&confirmed, now);
        }
    }
}
