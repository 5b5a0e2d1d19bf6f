//! Applies what is seen of VMs and of how they are counted.

use sluice_engine::vm::Calculator;
use sluice_index::{Source, VmiRecord, VmiWire};

use super::State;
use crate::accounts::parts::repricing::Walk;
use crate::cluster::machines::{KubeVirt, Owner};
use crate::config::Moment;

impl State {
    /// From now on VMs are counted so. No pod is decided on until all are.
    pub fn count_machines_by(&mut self, calculator: Calculator, now: Moment) {
        if self.cluster.machines.set_calculator(calculator) {
            self.accounts.end_all_growth();
            self.restate_quotas();
            self.accounts.reprice_from(&self.cluster, Walk::Claimed(None), now);
            self.carry_out();
        }
    }

    /// From now on this KubeVirt runs; pods that another account has created are no launchers.
    pub fn set_kubevirt(&mut self, kubevirt: Option<KubeVirt>, now: Moment) {
        let former: Option<Box<str>> = self.cluster.machines.controller().map(Into::into);
        if self.cluster.machines.set_kubevirt(kubevirt) {
            self.restate_quotas();
            self.accounts.release_pods_of(&self.cluster, former);
            let are_charged = self.cluster.machines.are_charged();
            let place = if are_charged { Walk::Claimed(None) } else { Walk::Platform(None) };
            self.accounts.reprice_from(&self.cluster, place, now);
            self.carry_out();
        }
    }

    /// A list of VirtualMachineInstances begins.
    pub fn begin_machines(&mut self) {
        self.cluster.machines.begin_list();
    }

    /// The list of VirtualMachineInstances is complete.
    pub fn end_machines(&mut self, now: Moment) {
        for owner in self.cluster.machines.end_list() {
            self.accounts.on_machine_gone(&self.cluster, &owner, true, now);
        }
        self.carry_out();
    }

    /// A VirtualMachineInstance was added or modified.
    pub fn apply_machine(&mut self, wire: &VmiWire, now: Moment) {
        self.see_machine(wire, Source::Watch, now);
    }

    /// A VirtualMachineInstance is this, by the watch or an answer.
    pub(super) fn see_machine(&mut self, wire: &VmiWire, by: Source, now: Moment) {
        let record = VmiRecord::read(wire);
        let is_news = self.cluster.machines.see(&record, by);
        let owner = Owner { namespace: record.namespace, uid: record.uid };
        self.accounts.on_machine_seen(&self.cluster, &owner, record.version, is_news, now);
        self.carry_out();
    }

    /// A VirtualMachineInstance was deleted.
    pub fn delete_machine(&mut self, wire: &VmiWire, now: Moment) {
        let record = VmiRecord::read(wire);
        self.forget_machine(&Owner { namespace: record.namespace, uid: record.uid }, now);
    }

    pub(super) fn forget_machine(&mut self, owner: &Owner, now: Moment) {
        let was_known = self.cluster.machines.forget(owner);
        self.accounts.on_machine_gone(&self.cluster, owner, was_known, now);
        self.carry_out();
    }
}
