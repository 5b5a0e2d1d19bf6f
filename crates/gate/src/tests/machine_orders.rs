//! VMs that start, are plugged in and migrate, with their watch as late as can be: in every order no more is let go or
//! admitted than fits.

use std::collections::VecDeque;

use proptest::prelude::*;
use serde_json::Value;
use sluice_engine::Quantity;
use sluice_engine::vm::Calculator;
use sluice_index::VmiWire;

use super::server::wire;
use super::stories::{Story, at};
use super::vms::{Committed, REQUEST_MS, Update, VMS, VmMove, Vms};
use crate::{Asked, Judgement};

/// CPUs of guests for which there is room.
const HARD: u64 = 5;

#[derive(Clone, Copy, Debug)]
enum Move {
    Vm(VmMove),
    /// The VM is to have so many CPUs: the gate is asked.
    Want(u8, u32),
    /// A request that was allowed is done, or made again if the VM has changed meanwhile.
    Commit(u8),
    /// The watch of VMs shows so many more changes.
    See(u8),
    /// The gate sees pods and quotas, and does what it wants to.
    Run,
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        16 => super::vms::moves().prop_map(Move::Vm),
        4 => (0..VMS, 1..4u32).prop_map(|(vm, wanted)| Move::Want(vm, wanted)),
        4 => any::<u8>().prop_map(Move::Commit),
        5 => (1..4u8).prop_map(Move::See),
        6 => Just(Move::Run),
    ]
}

struct World {
    story: Story,
    vms: Vms,
    /// Changes that the watch has not shown yet, and whether the VM is there then.
    unseen: VecDeque<(VmiWire, bool)>,
    updates: Vec<Update>,
    now: u64,
}

impl World {
    fn new(calculator: Calculator) -> Self {
        let vms = Vms::counted_by(calculator);
        let mut story = Story::counting(calculator, HARD * vms.of_a_cpu());
        story.run(at(0));
        Self { story, vms, unseen: VecDeque::new(), updates: Vec::new(), now: 0 }
    }

    fn step(&mut self, step: Move) {
        match step {
            Move::Vm(step) => {
                if let Some((vmi, is_there)) = self.vms.step(step, &mut self.story.server) {
                    self.changed(vmi, is_there);
                }
            }
            Move::Want(vm, wanted) => {
                let update = self.vms.update(vm, wanted, self.now);
                self.ask(update);
            }
            Move::Commit(choice) => self.commit(usize::from(choice)),
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

    fn changed(&mut self, vmi: Value, is_there: bool) {
        let vmi: VmiWire = wire(vmi);
        if is_there {
            self.story.change_machine(&vmi);
        } else {
            let uid = vmi.metadata.uid.as_deref().unwrap();
            self.story.machines.get_or_insert_default().remove(uid);
        }
        self.unseen.push_back((vmi, is_there));
    }

    /// What is refused, or not decided, ends here.
    fn ask(&mut self, update: Option<Update>) {
        let Some(update) = update else { return };
        let ticket = match self.story.state.ask_about_machine(&self.vms.change(&update), at(self.now)) {
            Asked::Judged(Judgement::Allowed) => None,
            Asked::Recording(ticket) => Some(ticket),
            Asked::Judged(_) => return,
        };
        self.updates.push(Update { ticket, ..update });
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
        match self.vms.commit(&update) {
            Committed::Done(vmi) => self.changed(vmi, true),
            Committed::Changed => self.ask(self.vms.again(&update)),
            Committed::Failed => {}
        }
    }

    fn taken(&self) -> u64 {
        self.vms.taken(&self.story.server)
    }
}

/// Whatever happens in whatever order, no more is taken than fits, and at the end exactly what VMs take is charged.
fn run(calculator: Calculator, steps: Vec<Move>) -> Result<(), TestCaseError> {
    let mut world = World::new(calculator);
    let hard = HARD * world.vms.of_a_cpu();
    for step in steps {
        world.step(step);
        prop_assert!(world.taken() <= hard, "{}m after {step:?}: {:#?}", world.taken(), world.vms);
    }
    world.updates.clear();
    world.step(Move::See(u8::MAX));
    // Updates that were never done cannot be any more, and what is not a charge is written a little later.
    for wait_ms in [0, 2 * REQUEST_MS, 0, 0] {
        world.now += wait_ms;
        world.step(Move::Run);
    }
    prop_assert!(world.taken() <= hard);
    let used = Quantity::parse(world.story.server.used()).unwrap().nanos() / 1_000_000;
    let charged = i128::from(world.vms.charged(&world.story.server));
    prop_assert_eq!(used, charged, "each is charged once, and none goes for nothing: {:#?}", world.vms);
    prop_assert!(world.story.is_audited(world.now));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]

    #[test]
    fn what_vms_take_stays_within_the_limit_in_every_order(steps in prop::collection::vec(moves(), 1..100)) {
        run(Calculator::VirtualResources, steps)?;
    }

    #[test]
    fn what_pods_of_vms_take_stays_within_the_limit_in_every_order(steps in prop::collection::vec(moves(), 1..100)) {
        run(Calculator::VmiPodUsage, steps)?;
    }

    #[test]
    fn what_guests_take_of_pods_stays_within_the_limit_in_every_order(steps in prop::collection::vec(moves(), 1..100)) {
        run(Calculator::GuestEffectiveResources, steps)?;
    }
}
