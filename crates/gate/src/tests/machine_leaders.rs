//! VMs that are plugged in while leaders change: what one has admitted, its successor honours.

use proptest::prelude::*;
use serde_json::Value;
use sluice_engine::Quantity;
use sluice_engine::vm::Calculator;

use super::server::{Kind, key, uid};
use super::step::{Fault, Step, Trouble, answers, crashes, deliveries, waits};
use super::team::NAMESPACE;
use super::trace::Trace;
use super::vms::{Admitted, Committed, REQUEST_MS, Update, VMS, VmMove, Vms};
use super::world::{Request, TEAM, World};
use crate::{Action, Asked, Judgement, Ticket};

/// An update of a VM, and the process that was asked about it.
pub struct Plug {
    update: Update,
    replica: usize,
    life: u32,
}

#[derive(Clone, Debug)]
pub enum Move {
    Step(Step),
    Vm(VmMove),
    /// The VM is to have so many CPUs: this process is asked.
    Want(u8, u8, u32),
    /// A request that was allowed is done, or made again if the VM has changed meanwhile.
    Commit(u8),
}

/// What matters here.
const WATCHED: &[Kind] = &[Kind::Pod, Kind::Quota, Kind::Machine];

pub fn moves() -> impl Strategy<Value = Vec<Move>> {
    let step = prop_oneof![
        2 => (0..3u8, 1..30u64).prop_map(|(pod, size)| Step::Create((0, pod), size * 20, 0)),
        1 => (0..3u8).prop_map(|pod| Step::Finish((0, pod))),
        1 => (0..3u8).prop_map(|pod| Step::Delete((0, pod))),
        20 => deliveries(WATCHED),
        20 => answers(),
        1 => any::<u8>().prop_map(|replica| Step::Relist(replica, Kind::Pod)),
        3 => crashes(),
        5 => waits(),
    ];
    let one = prop_oneof![
        30 => step.prop_map(Move::Step),
        14 => super::vms::moves().prop_map(Move::Vm),
        6 => (any::<u8>(), 0..VMS, 1..4u32).prop_map(|(replica, vm, wanted)| Move::Want(replica, vm, wanted)),
        6 => any::<u8>().prop_map(Move::Commit),
    ];
    prop::collection::vec(one, 20..250)
}

impl World {
    fn counting(trouble: Trouble, calculator: Calculator) -> Self {
        let mut world = Self::new(&TEAM, trouble);
        let vms = Vms::counted_by(calculator);
        world.server.set_hard(5 * vms.of_a_cpu());
        world.highest = vec![5 * vms.of_a_cpu()];
        let now = world.moment();
        for replica in &mut world.replicas {
            vms.tell(&mut replica.state, now);
        }
        world.server.vms = Some(vms);
        world.deliver_all();
        world
    }

    /// The VMs and the server that they are in.
    fn with_vms<T>(&mut self, change: impl FnOnce(&mut Vms, &mut Self) -> T) -> T {
        let mut vms = self.server.vms.take().unwrap();
        let result = change(&mut vms, self);
        self.server.vms = Some(vms);
        result
    }

    fn go_on(&mut self, one: &Move) {
        self.say(one);
        match one {
            Move::Step(step) => return self.step(step),
            Move::Vm(step) => {
                let changed = self.with_vms(|vms, world| vms.step(*step, &mut world.server));
                if let Some((vmi, is_there)) = changed {
                    self.show(vmi, is_there);
                }
            }
            Move::Want(replica, vm, wanted) => {
                let update = self.server.vms.as_ref().unwrap().update(*vm, *wanted, self.now_ms);
                self.plug(usize::from(*replica) % self.replicas.len(), update);
            }
            Move::Commit(choice) => self.commit_plug(usize::from(*choice)),
        }
        self.plan();
    }

    fn show(&mut self, vmi: Value, is_there: bool) {
        let key = key(Kind::Machine, NAMESPACE, uid(&vmi));
        if is_there {
            self.server.show(&key, vmi);
        } else {
            self.server.delete(&key);
        }
    }

    /// What is refused, or not decided, ends here.
    fn plug(&mut self, replica: usize, update: Option<Update>) {
        let Some(update) = update.filter(|_| self.acts(replica)) else { return };
        let change = self.server.vms.as_ref().unwrap().change(&update);
        let now = self.moment();
        let ticket = match self.replicas[replica].state.ask_about_machine(&change, now) {
            Asked::Judged(Judgement::Allowed) => None,
            Asked::Recording(ticket) => Some(ticket),
            Asked::Judged(_) => return,
        };
        let life = self.lives[replica];
        self.say(&("asked", replica, update.vm, update.wanted, &ticket));
        self.plugs.push(Plug { update: Update { ticket, ..update }, replica, life });
    }

    pub fn judged_plug(&mut self, replica: usize, ticket: Ticket, judgement: &Judgement) {
        let life = self.lives[replica];
        let is_asked =
            |one: &Plug| (one.replica, one.life, one.update.ticket) == (replica, life, Some(ticket));
        let Some(found) = self.plugs.iter().position(is_asked) else { return };
        self.say(&("judged", replica, ticket, judgement));
        if *judgement == Judgement::Allowed {
            self.plugs[found].update.ticket = None;
        } else {
            self.plugs.remove(found);
        }
    }

    fn commit_plug(&mut self, choice: usize) {
        let now = self.now_ms;
        self.plugs.retain(|plug| now <= plug.update.begun_ms + REQUEST_MS);
        let allowed: Vec<usize> =
            (0..self.plugs.len()).filter(|at| self.plugs[*at].update.ticket.is_none()).collect();
        if allowed.is_empty() {
            return;
        }
        let Plug { update, replica, .. } = self.plugs.remove(allowed[choice % allowed.len()]);
        let before = self.taken();
        match self.with_vms(|vms, _| vms.commit(&update)) {
            Committed::Done(vmi) => {
                self.say(&("committed", update.vm, update.wanted, replica));
                self.show(vmi, true);
            }
            Committed::Changed => {
                let update = self.server.vms.as_ref().unwrap().again(&update);
                return self.plug(replica, update);
            }
            Committed::Failed => return,
        }
        self.check_room(&before);
    }

    /// What is charged at the end is what is taken and what is to come.
    fn check_vms_at_the_end(&self) {
        assert!(self.leader().state.is_quiet());
        let vms = self.server.vms.as_ref().unwrap();
        let expected = self.server.taken() - vms.taken(&self.server) + vms.charged(&self.server);
        let used = Quantity::parse(self.server.used()).unwrap().nanos() / 1_000_000;
        assert_eq!(used, i128::from(expected), "the status does not say what is charged: {vms:#?}");
    }
}

pub fn run(trouble: Trouble, calculator: Calculator, moves: &[Move]) -> Trace {
    let mut world = World::counting(trouble, calculator);
    for one in moves {
        world.go_on(one);
    }
    world.calm_down();
    world.check_vms_at_the_end();
    world.trace
}

pub fn calculators() -> impl Strategy<Value = Calculator> {
    prop::sample::select(
        &[Calculator::VirtualResources, Calculator::VmiPodUsage, Calculator::GuestEffectiveResources][..],
    )
}

proptest! {

    /// Whatever crashes or is late, VMs grow and pods go only where there is room, also when two processes believe to lead.
    #[test]
    fn two_leaders_admit_no_more_of_vms_than_fits(calculator in calculators(), moves in moves()) {
        run(Trouble::TwoLeaders, calculator, &moves);
    }

    /// The same when leases work as they should.
    #[test]
    fn successive_leaders_admit_no_more_of_vms_than_fits(calculator in calculators(), moves in moves()) {
        run(Trouble::Expiry, calculator, &moves);
    }
}

/// A predecessor's release of the VM's pod is under way, and the successor has not seen it.
#[test]
fn a_vm_whose_pod_is_being_let_go_by_a_predecessor_is_not_plugged_in_for_nothing() {
    for calculator in [Calculator::VirtualResources, Calculator::VmiPodUsage] {
        let mut world = World::counting(Trouble::Expiry, calculator);
        // Until it is over that a leader before the first one may have released something, what that one takes back stays
        // taken.
        (0..60).for_each(|_| world.quiet_second());
        let size = world.server.vms.as_ref().unwrap().of_a_cpu();
        world.server.create_pod("p0", 3 * size - 1, 0);
        world.go_on(&Move::Vm(VmMove::Start(4, 2)));
        world.go_on(&Move::Vm(VmMove::Pod(4, false, Admitted::Gated)));
        for _ in 0..40 {
            world.deliver_to(0);
            world.plan();
            let is_release = |request: &Request| matches!(request.action, Action::Release(_));
            if let Some(at) = world.requests.iter().position(|request| !is_release(request)) {
                world.answer(at, Fault::None);
            }
        }
        assert_eq!(world.requests.len(), 2, "both are to go");
        world.step(&Step::Lead(1));
        world.deliver_to(1);
        world.plan();
        world.go_on(&Move::Want(1, 4, 3));
        while !world.requests.is_empty() {
            world.answer(0, Fault::None);
            world.go_on(&Move::Commit(0));
        }
        world.go_on(&Move::Vm(VmMove::Pod(4, false, Admitted::Gated)));
        world.calm_down();
        world.check_vms_at_the_end();
        assert_eq!(world.server.taken(), 5 * size - 1, "{calculator:?}");
    }
}

/// The answer to a release is lost. The VM migrates, and the second attempt finds that its first pod is gone, before the
/// watch shows the pod in which the VM runs now.
#[test]
fn a_vm_stays_charged_whose_pod_an_answer_says_is_gone() {
    let mut world = World::counting(Trouble::Expiry, Calculator::VmiPodUsage);
    (0..60).for_each(|_| world.quiet_second());
    world.server.create_pod("p0", 220, 0);
    world.go_on(&Move::Vm(VmMove::Start(0, 2)));
    world.go_on(&Move::Vm(VmMove::Pod(0, false, Admitted::Ungated)));
    let is_of_vm =
        |request: &Request| matches!(&request.action, Action::Release(it) if it.name.starts_with("v0"));
    for _ in 0..40 {
        world.deliver_to(0);
        world.plan();
        let Some(at) = world.requests.iter().position(|request| !is_of_vm(request)) else { continue };
        world.answer(at, Fault::None);
    }
    assert_eq!(world.requests.len(), 1, "the VM is charged, and its pod is to go");
    world.server.create_pod("p1", 100, 0);
    world.deliver_to(0);
    world.plan();
    let at = world.requests.iter().position(is_of_vm).unwrap();
    world.answer(at, Fault::AnswerLost);
    world.go_on(&Move::Vm(VmMove::Pod(0, false, Admitted::Ungated)));
    world.go_on(&Move::Vm(VmMove::End(0)));
    world.pass(1_100);
    world.plan();
    let at = world.requests.iter().position(is_of_vm).unwrap();
    world.answer(at, Fault::None);
    for _ in 0..20 {
        world.plan();
        world.deliver(0, Kind::Quota, 10);
        if !world.requests.is_empty() {
            world.answer(0, Fault::None);
        }
    }
    assert_eq!(
        world.server.taken(),
        420,
        "p1 waits, and the watch has not shown the pod that the VM runs in"
    );
    world.calm_down();
    world.check_vms_at_the_end();
    assert_eq!(world.server.taken(), 420);
}
