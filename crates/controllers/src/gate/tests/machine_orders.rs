//! VMs that start, are plugged in and migrate, with their watch as late as can be: in every order no more is let go or admitted
//! than fits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use sluice_engine::vm::Calculator;
use sluice_index::VmiWire;

use super::machine_growth::of_version;
use super::machines::sized_of;
use super::stories::{Story, at};
use crate::gate::{Asked, Judgement, MachineChange, Ticket};

const VMS: u8 = 5;
/// CPUs of the quota.
const HARD: u64 = 5;
/// An API server works on a request that changes something for so long at most.
const REQUEST_MS: u64 = 34_000;

#[derive(Clone, Copy, Debug)]
enum Move {
    /// The VM is to have so many CPUs: it comes into being, or the gate is asked.
    Want(u8, u32),
    /// A request that was allowed is done, or made again if the VM has changed meanwhile.
    Commit(u8),
    /// KubeVirt's controller makes a pod of it.
    Pod(u8),
    /// It has what it is to have.
    Settle(u8),
    /// Its oldest pod ends.
    End(u8),
    /// It is gone, with all its pods.
    Delete(u8),
    /// The watch of VMs shows so many more changes.
    See(u8),
    /// The gate sees pods and quotas, and does what it wants to.
    Run,
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        5 => (0..VMS, 1..4u32).prop_map(|(vm, wanted)| Move::Want(vm, wanted)),
        4 => any::<u8>().prop_map(Move::Commit),
        4 => (0..VMS).prop_map(Move::Pod),
        3 => (0..VMS).prop_map(Move::Settle),
        2 => (0..VMS).prop_map(Move::End),
        1 => (0..VMS).prop_map(Move::Delete),
        4 => (1..4u8).prop_map(Move::See),
        5 => Just(Move::Run),
    ]
}

/// A VM as it is.
#[derive(Debug)]
struct Truth {
    has: u32,
    wanted: u32,
    version: u64,
    /// Oldest first.
    pods: VecDeque<String>,
}

/// An update that the API server works on.
#[derive(Debug)]
struct Update {
    vm: u8,
    version: u64,
    wanted: u32,
    begun_ms: u64,
    /// The question that is open; none if it was allowed.
    ticket: Option<Ticket>,
}

struct World {
    story: Story,
    vms: BTreeMap<u8, Truth>,
    /// Another VM has another uid.
    gone: BTreeSet<u8>,
    /// Changes that the watch has not shown yet, and whether the VM is there then.
    unseen: VecDeque<(VmiWire, bool)>,
    updates: Vec<Update>,
    made: u64,
    now: u64,
}

impl World {
    fn new() -> Self {
        let mut story = Story::counting(Calculator::VirtualResources, HARD * 1000);
        story.run(at(0));
        let (vms, gone, unseen, updates) = Default::default();
        Self { story, vms, gone, unseen, updates, made: 0, now: 0 }
    }

    fn step(&mut self, step: Move) {
        match step {
            Move::Want(vm, _) if self.gone.contains(&vm) => {}
            Move::Want(vm, wanted) if self.vms.contains_key(&vm) => self.ask(vm, wanted, self.now),
            Move::Want(vm, wanted) => {
                let truth = Truth { has: wanted, wanted, version: 0, pods: VecDeque::new() };
                self.vms.insert(vm, truth);
                self.changed(vm);
            }
            Move::Commit(choice) => self.commit(usize::from(choice)),
            Move::Pod(vm) => {
                self.made += 1;
                let Some(truth) = self.vms.get_mut(&vm).filter(|truth| truth.pods.len() < 3) else { return };
                let name = format!("v{vm}-p{}", self.made);
                truth.pods.push_back(name.clone());
                self.story.server.create_pod(&name, 100, 0);
            }
            Move::Settle(vm) => {
                let Some(truth) = self.vms.get_mut(&vm) else { return };
                truth.has = truth.wanted;
                self.changed(vm);
            }
            Move::End(vm) => {
                let truth = self.vms.get_mut(&vm).filter(|truth| truth.pods.len() > 1);
                if let Some(pod) = truth.and_then(|truth| truth.pods.pop_front()) {
                    self.story.server.delete_pod(&pod);
                }
            }
            Move::Delete(vm) => {
                let Some(truth) = self.vms.remove(&vm) else { return };
                self.gone.insert(vm);
                truth.pods.iter().for_each(|pod| self.story.server.delete_pod(pod));
                self.made += 1;
                let gone = of_version(sized_of(&format!("v{vm}"), truth.has, truth.wanted), self.made);
                self.story.machines.get_or_insert_default().remove(&format!("v{vm}"));
                self.unseen.push_back((gone, false));
            }
            Move::See(count) => {
                for _ in 0..count {
                    match self.unseen.pop_front() {
                        Some((vmi, true)) => self.story.state.apply_machine(&vmi, at(self.now)),
                        Some((vmi, false)) => self.story.state.delete_machine(&vmi, at(self.now)),
                        None => return,
                    }
                }
            }
            Move::Run => {
                self.now += 1_000;
                self.story.run(at(self.now));
            }
        }
    }

    fn changed(&mut self, vm: u8) {
        self.made += 1;
        let Some(truth) = self.vms.get_mut(&vm) else { return };
        truth.version = self.made;
        let vmi = of_version(sized_of(&format!("v{vm}"), truth.has, truth.wanted), self.made);
        self.story.change_machine(&vmi);
        self.unseen.push_back((vmi, true));
    }

    /// What is refused, or not decided, ends here.
    fn ask(&mut self, vm: u8, wanted: u32, begun_ms: u64) {
        let truth = &self.vms[&vm];
        let of = |wanted| of_version(sized_of(&format!("v{vm}"), truth.has, wanted), truth.version);
        let change = MachineChange::read(&of(truth.wanted), &of(wanted), false);
        let version = truth.version;
        let ticket = match self.story.state.ask_about_machine(&change, at(self.now)) {
            Asked::Judged(Judgement::Allowed) => None,
            Asked::Recording(ticket) => Some(ticket),
            Asked::Judged(_) => return,
        };
        self.updates.push(Update { vm, version, wanted, begun_ms, ticket });
    }

    fn commit(&mut self, choice: usize) {
        let (now, answered) = (self.now, std::mem::take(&mut self.story.answered));
        for (ticket, judgement) in answered {
            let Some(at) = self.updates.iter().position(|update| update.ticket == Some(ticket)) else {
                continue;
            };
            if judgement == Judgement::Allowed {
                self.updates[at].ticket = None;
            } else {
                self.updates.remove(at);
            }
        }
        self.updates.retain(|update| now <= update.begun_ms + REQUEST_MS);
        let allowed = self.updates.iter().enumerate().filter(|(_, update)| update.ticket.is_none());
        let allowed: Vec<usize> = allowed.map(|(at, _)| at).collect();
        if allowed.is_empty() {
            return;
        }
        let update = self.updates.remove(allowed[choice % allowed.len()]);
        let Some(truth) = self.vms.get_mut(&update.vm) else { return };
        if truth.version != update.version {
            return self.ask(update.vm, update.wanted, update.begun_ms);
        }
        truth.wanted = update.wanted;
        self.changed(update.vm);
    }

    /// What the VMs that run take: what they have, and what they are to have.
    fn taken(&self) -> u64 {
        let pods = &self.story.server.pods;
        let runs = |truth: &&Truth| truth.pods.iter().any(|pod| !pods[pod].gated);
        self.vms.values().filter(runs).map(|truth| u64::from(truth.has.max(truth.wanted))).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_vms_take_stays_within_the_limit_in_every_order(steps in prop::collection::vec(moves(), 1..80)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            prop_assert!(world.taken() <= HARD, "{} CPUs after {step:?}: {:#?}", world.taken(), world.vms);
        }
        world.updates.clear();
        world.step(Move::See(u8::MAX));
        // Updates that were never done cannot be any more, and what is not a charge is written a little later.
        for wait_ms in [0, 2 * REQUEST_MS, 0, 0] {
            world.now += wait_ms;
            world.step(Move::Run);
        }
        let taken = world.taken();
        prop_assert!(taken <= HARD);
        let status = world.story.server.quota.as_ref().and_then(|quota| quota.status.clone());
        let used = status.unwrap().1.parse::<u64>().unwrap();
        prop_assert_eq!(used, taken, "each is charged once, and none goes for nothing: {:#?}", world.vms);
        prop_assert!(world.story.is_audited(world.now));
    }
}
