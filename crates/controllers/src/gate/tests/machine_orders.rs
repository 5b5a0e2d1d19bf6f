//! VMs that start, are plugged in and migrate, with their watch as late as can be: in every order no pod is let go for room that
//! is not free.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use sluice_engine::vm::Calculator;
use sluice_index::VmiWire;

use super::machines::sized_of;
use super::stories::{Story, at};

const VMS: u8 = 5;
/// CPUs of the quota.
const HARD: u64 = 5;

#[derive(Clone, Copy, Debug)]
enum Move {
    /// The VM is to have so many CPUs; the first time it comes into being.
    Want(u8, u32),
    /// KubeVirt's controller makes a pod of it.
    Pod(u8),
    /// It runs in its newest pod.
    Arrive(u8),
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
        3 => (0..VMS, 1..4u32).prop_map(|(vm, wanted)| Move::Want(vm, wanted)),
        4 => (0..VMS).prop_map(Move::Pod),
        3 => (0..VMS).prop_map(Move::Arrive),
        2 => (0..VMS).prop_map(Move::End),
        1 => (0..VMS).prop_map(Move::Delete),
        3 => (1..4u8).prop_map(Move::See),
        4 => Just(Move::Run),
    ]
}

/// A VM as it is.
#[derive(Debug, Default)]
struct Truth {
    has: u32,
    wanted: u32,
    /// Oldest first.
    pods: VecDeque<Launcher>,
}

#[derive(Debug)]
struct Launcher {
    name: String,
    /// What the VM was to have at the least since this was made for it. What is plugged in later comes with a later pod here.
    /// KubeVirt may give by this one what was taken off and plugged in again; that is charged when the VM's status says so.
    gives: u32,
    has_arrived: bool,
}

struct World {
    story: Story,
    vms: BTreeMap<u8, Truth>,
    /// Another VM has another uid.
    gone: BTreeSet<u8>,
    /// Changes that the watch has not shown yet; `None`: the VM is gone.
    unseen: VecDeque<(VmiWire, bool)>,
    made: u32,
    now: u64,
}

impl World {
    fn new() -> Self {
        let mut story = Story::counting(Calculator::VirtualResources, HARD * 1000);
        story.run(at(0));
        Self { story, vms: BTreeMap::new(), gone: BTreeSet::new(), unseen: VecDeque::new(), made: 0, now: 0 }
    }

    fn step(&mut self, step: Move) {
        match step {
            Move::Want(vm, _) if self.gone.contains(&vm) => {}
            Move::Want(vm, wanted) => {
                let truth = self.vms.entry(vm).or_default();
                truth.has = if truth.has == 0 { wanted } else { truth.has };
                truth.wanted = wanted;
                truth.pods.iter_mut().for_each(|pod| pod.gives = pod.gives.min(wanted));
                self.changed(vm);
            }
            Move::Pod(vm) => {
                self.made += 1;
                let Some(truth) = self.vms.get_mut(&vm).filter(|truth| truth.pods.len() < 3) else { return };
                let name = format!("v{vm}-p{}", self.made);
                truth.pods.push_back(Launcher {
                    name: name.clone(),
                    gives: truth.wanted,
                    has_arrived: false,
                });
                self.story.server.create_pod(&name, 100, 0);
            }
            Move::Arrive(vm) => {
                let Some(truth) = self.vms.get_mut(&vm) else { return };
                let Some(pod) = truth.pods.back_mut() else { return };
                if self.story.server.pods[&pod.name].gated {
                    return;
                }
                (truth.has, pod.has_arrived) = (pod.gives, true);
                self.changed(vm);
            }
            Move::End(vm) => {
                let Some(truth) = self.vms.get_mut(&vm).filter(|truth| truth.pods.len() > 1) else { return };
                // That it has left.
                if truth.pods.back().is_some_and(|pod| pod.has_arrived)
                    && let Some(pod) = truth.pods.pop_front()
                {
                    self.story.server.delete_pod(&pod.name);
                }
            }
            Move::Delete(vm) => {
                let Some(truth) = self.vms.remove(&vm) else { return };
                self.gone.insert(vm);
                truth.pods.iter().for_each(|pod| self.story.server.delete_pod(&pod.name));
                let gone = sized_of(&format!("v{vm}"), truth.has, truth.wanted);
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
        let truth = &self.vms[&vm];
        let mut vmi = sized_of(&format!("v{vm}"), truth.has, truth.wanted);
        self.made += 1;
        vmi.metadata.resource_version = Some(self.made.to_string());
        self.story.change_machine(&vmi);
        self.unseen.push_back((vmi, true));
    }

    /// The VMs that run.
    fn running(&self) -> impl Iterator<Item = &Truth> {
        let pods = &self.story.server.pods;
        self.vms.values().filter(|truth| truth.pods.iter().any(|pod| !pods[&pod.name].gated))
    }

    /// What they may be charged at most: what they have or are to have, each once.
    fn most(&self) -> u64 {
        self.running().map(|truth| u64::from(truth.has.max(truth.wanted))).sum()
    }

    /// What they take: what they have, or what a pod that was let go may give them.
    fn taken(&self) -> u64 {
        let pods = &self.story.server.pods;
        let of = |truth: &Truth| {
            let gone = truth.pods.iter().filter(|pod| !pods[&pod.name].gated);
            gone.map(|pod| u64::from(pod.gives.max(truth.has))).max().unwrap_or_default()
        };
        self.running().map(of).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_vms_take_stays_within_the_limit_in_every_order(steps in prop::collection::vec(moves(), 1..60)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            prop_assert!(world.taken() <= HARD, "{} CPUs after {step:?}: {:#?}", world.taken(), world.vms);
        }
        // What is not a charge is written a little later.
        for step in [Move::See(u8::MAX), Move::Run, Move::Run, Move::Run] {
            world.step(step);
        }
        prop_assert!(world.taken() <= HARD);
        let status = world.story.server.quota.as_ref().and_then(|quota| quota.status.clone());
        let used = status.unwrap().1.parse::<u64>().unwrap();
        prop_assert!(used >= world.taken(), "{used}: none goes for nothing: {:#?}", world.vms);
        prop_assert!(used <= world.most(), "{used}: none is charged twice: {:#?}", world.vms);
    }
}
