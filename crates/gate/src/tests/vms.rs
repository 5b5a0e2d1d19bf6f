//! VMs as they are, of which the gate sees what a watch shows:
//! they start, are plugged in, migrate and end as KubeVirt has it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_engine::vm::Calculator;

use super::machines::sized_object;
use super::owners::kubevirt;
use super::server::{Server, wire};
use crate::{MachineChange, Moment, State, Ticket};

/// As many VMs there are.
pub const VMS: u8 = 5;
/// What KubeVirt has a pod ask for, for each CPU of the guest (thousandths of a CPU).
const OF_A_CPU: u64 = 100;
/// An API server works on a request that changes something for so long at most.
pub const REQUEST_MS: u64 = 34_000;

/// What happens to a VM without the gate being asked.
#[derive(Clone, Copy, Debug)]
pub enum VmMove {
    /// It comes into being with so many CPUs.
    Start(u8, u32),
    /// KubeVirt's controller makes a pod of it, perhaps of what it was to have before.
    Pod(u8, bool, Admitted),
    /// It has what it is to have.
    Settle(u8),
    /// Its oldest pod ends.
    End(u8),
    /// Its newest pod ends: the migration is given up.
    Abort(u8),
    /// It is gone, with all its pods.
    Delete(u8),
}

/// What admission does with a pod of a VM of which another pod runs; all others it gates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admitted {
    /// It is let in without a gate.
    Ungated,
    /// The policy that says so is not in force yet, or the affinity of the VM looks like that of one that is received.
    Gated,
}

fn admitted() -> impl Strategy<Value = Admitted> {
    prop_oneof![3 => Just(Admitted::Ungated), 1 => Just(Admitted::Gated)]
}

pub fn moves() -> impl Strategy<Value = VmMove> {
    let vm = || 0..VMS;
    prop_oneof![
        4 => (vm(), 1..4u32).prop_map(|(vm, cpus)| VmMove::Start(vm, cpus)),
        6 => (vm(), any::<bool>(), admitted()).prop_map(|(vm, is_late, by)| VmMove::Pod(vm, is_late, by)),
        4 => vm().prop_map(VmMove::Settle),
        3 => vm().prop_map(VmMove::End),
        1 => vm().prop_map(VmMove::Abort),
        1 => vm().prop_map(VmMove::Delete),
    ]
}

/// A VM as it is.
#[derive(Debug)]
struct Vm {
    has: u32,
    wanted: u32,
    version: u64,
    /// Oldest first.
    pods: VecDeque<String>,
    /// The guest is in its newest pod.
    moved: bool,
}

/// An update of a VM that the API server works on.
#[derive(Clone, Debug)]
pub struct Update {
    pub vm: u8,
    pub wanted: u32,
    pub begun_ms: u64,
    pub version: u64,
    /// What the VM was to have before.
    pub before: u32,
    /// The question that is open; none if it was allowed.
    pub ticket: Option<Ticket>,
}

/// What comes of an update that was allowed.
pub enum Committed {
    /// It is done.
    Done(Value),
    /// The VM has changed: the gate is asked again.
    Changed,
    /// It fails.
    Failed,
}

/// All of them. Another VM has another uid, so none comes into being twice.
#[derive(Debug)]
pub struct Vms {
    calculator: Calculator,
    known: BTreeMap<u8, Vm>,
    gone: BTreeSet<u8>,
    made: u64,
}

impl Vms {
    pub fn counted_by(calculator: Calculator) -> Self {
        Self { calculator, known: BTreeMap::new(), gone: BTreeSet::new(), made: 0 }
    }

    /// What one CPU of a guest takes, in thousandths.
    pub fn of_a_cpu(&self) -> u64 {
        if self.by_pods() { OF_A_CPU } else { 1000 }
    }

    fn by_pods(&self) -> bool {
        self.calculator.is_of_pods()
    }

    /// A new process is told how they are counted.
    pub fn tell(&self, state: &mut State, now: Moment) {
        state.set_kubevirt(Some(kubevirt()), now);
        state.count_machines_by(self.calculator, now);
    }

    fn vmi(&self, vm: u8, wanted: u32) -> Value {
        let known = &self.known[&vm];
        let mut object = sized_object(&format!("v{vm}"), known.has, wanted);
        object["metadata"]["resourceVersion"] = json!(known.version.to_string());
        object
    }

    /// Does it if it can be. Returns what the watch of VMs is to show, and whether the VM is there then.
    pub fn step(&mut self, step: VmMove, server: &mut Server) -> Option<(Value, bool)> {
        match step {
            VmMove::Start(vm, _) if self.known.contains_key(&vm) || self.gone.contains(&vm) => None,
            VmMove::Start(vm, wanted) => {
                let pods = VecDeque::new();
                self.known.insert(vm, Vm { has: wanted, wanted, version: 0, pods, moved: false });
                Some((self.changed(vm), true))
            }
            VmMove::Pod(vm, is_late, admitted) => {
                self.make_pod(vm, is_late, admitted, server);
                None
            }
            VmMove::Settle(vm) => {
                let known = self.known.get(&vm)?;
                if !self.may_settle(known, server) {
                    return None;
                }
                let known = self.known.get_mut(&vm)?;
                known.has = known.wanted;
                known.moved = known.pods.len() > 1;
                Some((self.changed(vm), true))
            }
            VmMove::End(vm) => {
                let known = self.known.get_mut(&vm).filter(|known| known.pods.len() > 1)?;
                server.delete_pod(&known.pods.pop_front()?);
                None
            }
            VmMove::Abort(vm) => {
                let known = self.known.get_mut(&vm).filter(|known| known.pods.len() > 1 && !known.moved)?;
                server.delete_pod(&known.pods.pop_back()?);
                None
            }
            VmMove::Delete(vm) => {
                let gone = self.known.contains_key(&vm).then(|| self.changed(vm))?;
                self.known.remove(&vm)?.pods.iter().for_each(|pod| server.delete_pod(pod));
                self.gone.insert(vm);
                Some((gone, false))
            }
        }
    }

    fn changed(&mut self, vm: u8) -> Value {
        self.made += 1;
        let known = self.known.get_mut(&vm).unwrap();
        known.version = self.made;
        let wanted = known.wanted;
        self.vmi(vm, wanted)
    }

    /// A VM has what it is to have when it runs in a pod that was made for that.
    fn may_settle(&self, vm: &Vm, server: &Server) -> bool {
        let newest = vm.pods.back();
        let is_for = |cpus: u32, size: u64| size == u64::from(cpus) * OF_A_CPU;
        !self.by_pods()
            || newest.is_some_and(|pod| !server.is_held(pod) && is_for(vm.wanted, server.size(pod)))
    }

    fn make_pod(&mut self, vm: u8, is_late: bool, admitted: Admitted, server: &mut Server) {
        let by_pods = self.by_pods();
        // A target is made for a VM that runs.
        let may_migrate =
            |vm: &Vm| !by_pods || vm.pods.len() < 2 && vm.pods.iter().all(|pod| !server.is_held(pod));
        self.made += 1;
        let known = self.known.get_mut(&vm).filter(|known| known.pods.len() < 3);
        let Some(known) = known.filter(|known| may_migrate(known)) else { return };
        let name = format!("v{vm}-p{}", self.made);
        // What a controller has seen once it does not forget.
        let newest = known.pods.back().map(|pod| server.size(pod));
        let is_late = is_late && newest.is_none_or(|size| size == u64::from(known.has) * OF_A_CPU);
        let cpus = if is_late { known.has } else { known.wanted };
        let is_target = known.pods.iter().any(|pod| !server.is_held(pod));
        known.pods.push_back(name.clone());
        known.moved = false;
        let size = u64::from(cpus) * OF_A_CPU;
        match admitted {
            Admitted::Ungated if is_target => server.create_ungated(&name, size),
            _ => server.create_pod(&name, size, 0),
        }
    }

    /// An update by which the VM is to have so many CPUs, if there is one. KubeVirt changes a VM once at a time, and none
    /// that migrates (`pkg/virt-controller/watch/vm/vm.go`, `handleCPUChangeRequest`); where pods do not matter nothing
    /// depends on that.
    pub fn update(&self, vm: u8, wanted: u32, begun_ms: u64) -> Option<Update> {
        let known = self.known.get(&vm)?;
        let may_be = !self.by_pods() || known.has == known.wanted && known.pods.len() < 2;
        may_be.then(|| self.update_of(known, vm, wanted, begun_ms))
    }

    fn update_of(&self, known: &Vm, vm: u8, wanted: u32, begun_ms: u64) -> Update {
        Update { vm, wanted, begun_ms, version: known.version, before: known.wanted, ticket: None }
    }

    /// As [`Self::update`], once more about the VM as it is now.
    pub fn again(&self, update: &Update) -> Option<Update> {
        let known = self.known.get(&update.vm)?;
        Some(self.update_of(known, update.vm, update.wanted, update.begun_ms))
    }

    /// What the gate is asked about.
    pub fn change(&self, update: &Update) -> MachineChange {
        let before = self.vmi(update.vm, update.before);
        MachineChange::read(&wire(before), &wire(self.vmi(update.vm, update.wanted)), false)
    }

    /// An update that was allowed is done, or not.
    pub fn commit(&mut self, update: &Update) -> Committed {
        let by_pods = self.by_pods();
        let Some(known) = self.known.get_mut(&update.vm) else { return Committed::Failed };
        if by_pods && known.wanted != update.before {
            // The patch tests for what there was.
            return Committed::Failed;
        }
        if known.version != update.version {
            return Committed::Changed;
        }
        known.wanted = update.wanted;
        Committed::Done(self.changed(update.vm))
    }

    /// What the VMs that run take, in thousandths of a CPU: what they have and what they are to have, or what the largest of
    /// their pods does.
    pub fn taken(&self, server: &Server) -> u64 {
        let taken = |vm: &Vm| match self.by_pods() {
            true => largest(vm, server),
            false => u64::from(vm.has.max(vm.wanted)) * 1000,
        };
        self.known.values().filter(|vm| largest(vm, server) > 0).map(taken).sum()
    }

    /// What they are charged when all is seen: as much, and where pods matter what a pod is going to take that is not there.
    pub fn charged(&self, server: &Server) -> u64 {
        if !self.by_pods() {
            return self.taken(server);
        }
        let to_come = |vm: &Vm| u64::from(vm.wanted) * OF_A_CPU * u64::from(vm.wanted > vm.has);
        let vms = self.known.values().filter(|vm| largest(vm, server) > 0);
        vms.map(|vm| largest(vm, server).max(to_come(vm))).sum()
    }
}

/// What the largest pod takes that runs.
fn largest(vm: &Vm, server: &Server) -> u64 {
    let pods = vm.pods.iter().filter(|pod| !server.is_held(pod));
    pods.map(|pod| server.size(pod)).max().unwrap_or_default()
}
