//! VMs that are charged in place of their pods: charged once, from the first pod that goes to the end of the last one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_engine::vm::KubeVirtFacts;
use sluice_engine::{Amount, Charge, Claim, Quantity, Resource, Uid};
use sluice_index::{Gates, PodRecord};

use super::server::{Kind, is_gated, is_running, pod_milli, uid};
use super::step::{Step, Trouble, answers, crashes, deliveries, waits};
use super::team::{self, NAMESPACE};
use super::trace::Trace;
use super::world::{TEAM, World};
use crate::cluster::machines::KubeVirt;
use crate::{Moment, State};

/// What each VM is charged, in thousandths of a CPU: known to all processes at once. A VM without a charge is none: its pods
/// are charged for themselves.
#[derive(Debug, Default)]
pub struct Machines {
    pub charges: BTreeMap<String, u64>,
    /// The largest charge that each has had.
    largest: BTreeMap<String, u64>,
}

impl Machines {
    /// What pods of these names and sizes take together.
    pub fn taken<'p>(&self, pods: impl Iterator<Item = (&'p str, u64)>) -> u64 {
        let (mut seen, mut sum) = (BTreeSet::new(), 0);
        for (name, milli_cpu) in pods {
            sum += match self.of(name) {
                Some((machine, charge)) => u64::from(seen.insert(machine)) * charge,
                None => milli_cpu,
            };
        }
        sum
    }

    /// The VM of a pod that is charged in its place, and the charge.
    fn of<'p>(&self, pod: &'p str) -> Option<(&'p str, u64)> {
        let machine = machine_of(pod)?;
        Some((machine, *self.charges.get(machine)?))
    }

    fn largest(&self, machine: &str) -> u64 {
        self.largest.get(machine).copied().unwrap_or_default()
    }

    pub fn tell(&self, state: &mut State, now: Moment) {
        for (machine, charge) in &self.charges {
            recharge(state, machine, Some(*charge), now);
        }
    }
}

/// A VM is charged so many thousandths of a CPU.
pub fn recharge(state: &mut State, machine: &str, charge: Option<u64>, now: Moment) {
    let milli = |charge: u64| Amount::from_nanos(i128::from(charge) * 1_000_000);
    let cpu = |charge| Charge::from_pairs([(Resource::Cpu, milli(charge))]);
    let charge = charge.map(|charge| Arc::new(cpu(charge)));
    state.set_kubevirt(Some(kubevirt()), now);
    state.recharge(NAMESPACE, Uid::parse(machine), charge, now);
}

/// The pod `v1-p2` is the second one of the VM `v1`.
fn machine_of(pod: &str) -> Option<&str> {
    pod.split_once("-p").map(|(machine, _)| machine)
}

/// `metadata.ownerReferences` of a pod.
pub fn references(pod: &str) -> Value {
    let reference = |machine| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "uid": machine, "controller": true,
        })
    };
    machine_of(pod).map(reference).into_iter().collect()
}

/// `metadata.annotations` of a pod: KubeVirt has created those that are called `v1-p2`, others `v1-px2`. Those called
/// `v1-pu2` are from before there was a stamp.
pub fn annotations(pod: &str) -> Value {
    let creator = match pod.split_once("-p") {
        Some((_, number)) if number.starts_with('u') => return json!({}),
        Some((_, number)) if number.starts_with('x') => "tenant",
        _ => CONTROLLER,
    };
    json!({ names::CREATED_BY_ANNOTATION: creator })
}

/// `metadata.labels` of a pod: one that is called `v1-pm2` is the target of the migration `m2`, and so says `v1-pxm2`.
pub fn labels(pod: &str) -> Value {
    let number = pod.split_once("-p").map(|(_, number)| number.trim_start_matches('x'));
    match number.filter(|number| number.starts_with('m')) {
        Some(migration) => json!({ names::MIGRATION_JOB_LABEL: migration }),
        None => json!({}),
    }
}

/// Who creates pods of VMs.
pub const CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

pub fn kubevirt() -> KubeVirt {
    KubeVirt { controller: CONTROLLER.into(), facts: KubeVirtFacts::default() }
}

/// What a pod of a VM says that it takes, in thousandths of a CPU.
const SIZE: u64 = 700;

#[derive(Clone, Debug)]
pub enum Move {
    Step(Step),
    Create {
        machine: u8,
        pod: u8,
    },
    Finish {
        machine: u8,
        pod: u8,
    },
    Delete {
        machine: u8,
        pod: u8,
    },
    Resize {
        replica: u8,
        machine: u8,
        pod: u8,
        milli_cpu: u64,
    },
    Charge {
        machine: u8,
        charge: u64,
    },
    /// Its pods are charged for themselves.
    Forget {
        machine: u8,
    },
}

pub fn moves(trouble: Trouble) -> impl Strategy<Value = Vec<Move>> {
    let (machine, pod) = (0..4u8, 0..3u8);
    let of_machine = (machine.clone(), pod.clone());
    let plain = (0..4u8, 1..30u64);
    let special = match trouble {
        Trouble::BusyAdmin => {
            let hard = (0..6000u64).prop_map(|hard| Step::Hard(0, hard));
            prop_oneof![crashes(), hard, Just(Step::DeleteQuota(0))].boxed()
        }
        _ => crashes().boxed(),
    };
    let step = prop_oneof![
        3 => plain.prop_map(|(pod, size)| Step::Create((0, pod), size * 50, 0)),
        2 => (0..4u8).prop_map(|pod| Step::Finish((0, pod))),
        1 => (0..4u8).prop_map(|pod| Step::Delete((0, pod))),
        20 => deliveries(&[Kind::Pod, Kind::Quota]),
        20 => answers(),
        4 => any::<u8>().prop_map(Step::Commit),
        1 => any::<u8>().prop_map(|replica| Step::Relist(replica, Kind::Pod)),
        2 => special,
        5 => waits(),
    ];
    let one = prop_oneof![
        30 => step.prop_map(Move::Step),
        10 => of_machine.clone().prop_map(|(machine, pod)| Move::Create { machine, pod }),
        3 => of_machine.clone().prop_map(|(machine, pod)| Move::Finish { machine, pod }),
        3 => of_machine.prop_map(|(machine, pod)| Move::Delete { machine, pod }),
        2 => (any::<u8>(), machine.clone(), pod, 1..40u64).prop_map(|(replica, machine, pod, size)| {
            Move::Resize { replica, machine, pod, milli_cpu: size * 50 }
        }),
        4 => (machine.clone(), 0..40u64).prop_map(|(machine, size)| Move::Charge { machine, charge: size * 50 }),
        1 => machine.prop_map(|machine| Move::Forget { machine }),
    ];
    proptest::collection::vec(one, 20..250)
}

fn name(machine: u8, pod: u8) -> String {
    format!("v{machine}-p{pod}")
}

impl World {
    fn play(&mut self, one: &Move) {
        self.say(one);
        match one {
            Move::Step(step) => return self.step(step),
            // What such a pod says of itself is not what is charged.
            Move::Create { machine, pod } => self.server.create_pod(&name(*machine, *pod), SIZE, 0),
            Move::Finish { machine, pod } => self.server.finish_pod(&name(*machine, *pod)),
            Move::Delete { machine, pod } => self.server.delete_pod(&name(*machine, *pod)),
            Move::Resize { replica, machine, pod, milli_cpu } => {
                if self.server.machines.charges.contains_key(&format!("v{machine}")) {
                    let replica = usize::from(*replica) % self.replicas.len();
                    self.resize(replica, &team::pod(&name(*machine, *pod)), *milli_cpu);
                }
            }
            Move::Charge { machine, charge } => self.recharge(&format!("v{machine}"), Some(*charge)),
            Move::Forget { machine } => self.recharge(&format!("v{machine}"), None),
        }
        self.plan();
    }

    /// A VM takes something else, if there is room for what it takes more, as admission sees to.
    fn recharge(&mut self, machine: &str, charge: Option<u64>) {
        let pods = || self.server.pods().filter(|(name, _)| machine_of(name) == Some(machine));
        let plain: u64 = pods().filter(|(_, pod)| is_running(pod)).map(|(_, pod)| pod_milli(pod)).sum();
        let is = self.server.machines.charges.get(machine).copied();
        let more = charge.unwrap_or(plain).saturating_sub(is.unwrap_or(plain));
        let is_resized = pods().any(|(_, pod)| pod_milli(pod) != SIZE) || !self.resizes.is_empty();
        let is_another = is.is_some() != charge.is_some();
        let goes_for_nothing = charge.is_none() || is == Some(0) && more > 0;
        if goes_for_nothing && pods().any(|(_, pod)| is_gated(pod)) {
            // What goes for nothing may be on its way, and would be charged from now on.
            return;
        }
        if is_another && is_resized || (more > 0 || is_another) && !self.lets_grow(machine, more) {
            return;
        }
        let now = self.moment();
        for replica in &mut self.replicas {
            recharge(&mut replica.state, machine, charge, now);
        }
        let machines = &mut self.server.machines;
        match charge {
            Some(charge) => {
                let largest = machines.largest.entry(machine.to_owned()).or_default();
                *largest = charge.max(*largest);
                machines.charges.insert(machine.to_owned(), charge);
            }
            None => drop(machines.charges.remove(machine)),
        }
    }

    /// Whether each process that decides sees the VM's pods as they are and has room, and none of the pods is on its way by
    /// a request that was made before. The growth is not recorded before it is there, as that of `machine_growth` is: it
    /// would hide from the next leader what is charged and has not gone yet, so there is no such pod.
    fn lets_grow(&self, machine: &str, more: u64) -> bool {
        use crate::Action::Release;
        let goes =
            |action: &_| matches!(action, Release(release) if machine_of(&release.name) == Some(machine));
        if self.requests.iter().any(|request| goes(&request.action)) {
            return false;
        }
        let pods = || self.server.pods().filter(|(name, _)| machine_of(name) == Some(machine));
        let sees = |state: &State| {
            let seen = state.index().0.iter().filter(|(_, record)| machine_of(&record.name) == Some(machine));
            let seen =
                seen.map(|(_, record)| (record.uid.to_string(), record.gates == Gates::None)).collect();
            let known: BTreeSet<_> = pods().map(|(_, pod)| (uid(pod).to_owned(), !is_gated(pod))).collect();
            known == seen
        };
        let more = Amount::from_nanos(i128::from(more) * 1_000_000);
        let mut deciding = (0..self.replicas.len())
            .filter(|at| self.acts(*at))
            .map(|at| &self.replicas[at].state)
            .peekable();
        deciding.peek().is_some()
            && deciding.all(|state| {
                let mut lines = state.index().2.iter().filter_map(|(id, _)| state.queue().ledger(id));
                let has_room = lines.all(|ledger| {
                    ledger.lines().iter().all(|line| {
                        let is_nothing_under_way = line.claimed(Claim::Counted) == line.used();
                        is_nothing_under_way && line.used().saturating_add(more) <= line.hard
                    })
                });
                state.is_leading() && has_room && sees(state)
            })
    }

    /// What each process has counted is one charge for each VM of which it sees a pod without gates, and never more than one
    /// is assumed for a VM of which it sees none.
    fn check_owners(&self) {
        for state in self.replicas.iter().map(|replica| &replica.state) {
            let (pods, namespaces, quotas) = state.index();
            if namespaces.iter().any(|(id, _)| state.is_paused(id)) {
                continue;
            }
            let size = |record: &PodRecord| {
                let cpu = record.charge.get(&Resource::Cpu).unwrap_or(Amount::ZERO);
                u64::try_from(cpu.nanos() / 1_000_000).unwrap()
            };
            let alive = || pods.iter().map(|(_, record)| record).filter(|record| !record.is_over());
            let counted = || alive().filter(|record| record.gates == Gates::None);
            let machines = &self.server.machines;
            let expected = machines.taken(counted().map(|record| (&*record.name, size(record))));
            let running: BTreeSet<&str> = counted().filter_map(|record| machine_of(&record.name)).collect();
            let (mut waiting, mut assumed_at_most) = (BTreeSet::new(), 0);
            for record in alive().filter(|record| record.gates != Gates::None) {
                assumed_at_most += match machines.of(&record.name) {
                    Some((machine, _)) if !waiting.insert(machine) => 0,
                    // The larger of both while its charge changes.
                    Some((machine, charge)) if running.contains(machine) => {
                        machines.largest(machine).max(size(record)).saturating_sub(charge)
                    }
                    _ => machine_of(&record.name)
                        .map_or(0, |machine| machines.largest(machine))
                        .max(size(record)),
                };
            }
            for ledger in quotas.iter().filter_map(|(id, _)| state.queue().ledger(id)) {
                let line = ledger.line(&Resource::Cpu).unwrap();
                let milli = |claim| u64::try_from(line.claimed(claim).nanos() / 1_000_000).unwrap();
                assert_eq!(milli(Claim::Counted), expected, "not one charge for each VM that runs");
                assert!(milli(Claim::Assumed) <= assumed_at_most, "more than one charge is assumed for a VM");
            }
        }
    }

    fn check_owners_at_the_end(&self) {
        assert!(self.leader().state.is_quiet());
        let gated = || self.server.pods().filter(|(_, pod)| is_gated(pod));
        let Some(hard) = self.server.hard(&team::quota()) else {
            assert_eq!(gated().count(), 0, "held although there is no quota");
            return;
        };
        let taken = self.server.taken();
        let used = Quantity::parse(self.server.used()).unwrap();
        let expected = Quantity::parse(&format!("{taken}m")).unwrap();
        assert_eq!(used, expected, "the status does not say what is taken");
        let need = |name: &str, pod: &Value| match self.server.machines.of(name) {
            Some((machine, charge)) => {
                let mut others = self.server.pods().filter(|(other, _)| machine_of(other) == Some(machine));
                if others.any(|(_, other)| is_running(other)) { 0 } else { charge }
            }
            None => pod_milli(pod),
        };
        let needs: Vec<u64> = gated().map(|(name, pod)| need(name, pod)).collect();
        for (at, need) in needs.iter().enumerate() {
            assert!(*need > 0, "a further pod of a VM that runs is held");
            // Room may be kept for another one that has waited longer.
            let is_kept =
                |(other, more): (usize, &u64)| other != at && *more <= hard && taken + need + more > hard;
            assert!(
                taken + need > hard || needs.iter().enumerate().any(is_kept),
                "{taken}m of {hard}m taken, and {need}m is held"
            );
        }
    }
}

pub fn run(trouble: Trouble, moves: &[Move]) -> Trace {
    let mut world = World::new(&TEAM, trouble);
    for machine in 0..3 {
        world.recharge(&format!("v{machine}"), Some(1000));
    }
    for one in moves {
        world.play(one);
        world.check_owners();
    }
    world.calm_down();
    world.check_owners();
    world.check_owners_at_the_end();
    world.trace
}

proptest! {

    /// Whatever crashes, is late or ends meanwhile, a VM is charged once as long as any of its pods runs, and no more is
    /// released than fits: not even when two processes believe to lead.
    #[test]
    fn two_leaders_charge_each_vm_once(moves in moves(Trouble::TwoLeaders)) {
        run(Trouble::TwoLeaders, &moves);
    }

    /// The same when leases work as they should.
    #[test]
    fn successive_leaders_charge_each_vm_once(moves in moves(Trouble::Expiry)) {
        run(Trouble::Expiry, &moves);
    }

    /// With limits that change and quotas that come and go, everything settles.
    #[test]
    fn charges_of_vms_settle_whatever_the_admin_does(moves in moves(Trouble::BusyAdmin)) {
        run(Trouble::BusyAdmin, &moves);
    }
}
