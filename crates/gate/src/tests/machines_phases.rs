//! The life of a VM, and what it takes of `requests.cpu` in each phase by each calculator.

use sluice_engine::Quantity;
use sluice_engine::vm::Calculator;

use super::machines::sized_of;
use super::stories::{Story, at};

/// What happens next.
enum Event {
    /// The VM has so many CPUs and is to have so many.
    Sized(&'static str, u32, u32),
    /// A pod is created that asks for so many thousandths of a CPU.
    Pod(&'static str, u64),
    /// A pod has run.
    Finished(&'static str),
    /// A pod is deleted.
    Deleted(&'static str),
    /// The VM is deleted.
    Stopped(&'static str, u32),
}

/// Thousandths of a CPU by the calculators of [`CALCULATORS`] after an event.
type Taken = [u64; 5];

const CALCULATORS: [Calculator; 5] = [
    Calculator::VirtualResources,
    Calculator::DedicatedVirtualResources,
    Calculator::VmiPodUsage,
    Calculator::GuestEffectiveResources,
    Calculator::IgnoreVmiCalculator,
];

const LIFE: [(&str, Event, Taken); 24] = [
    ("a VM without a pod", Event::Sized("v1", 2, 2), [0, 0, 0, 0, 0]),
    ("boot", Event::Pod("v1-p1", 200), [2000, 0, 200, 200, 200]),
    ("idle", Event::Sized("v1", 2, 2), [2000, 0, 200, 200, 200]),
    (
        "migration: target, of a KubeVirt that asks for more",
        Event::Pod("v1-p2", 300),
        [2000, 0, 300, 300, 500],
    ),
    ("migration: source ends", Event::Finished("v1-p1"), [2000, 0, 300, 300, 300]),
    ("migration: source is deleted", Event::Deleted("v1-p1"), [2000, 0, 300, 300, 300]),
    ("migration: target", Event::Pod("v1-p3", 300), [2000, 0, 300, 300, 600]),
    ("abort: target is deleted", Event::Deleted("v1-p3"), [2000, 0, 300, 300, 300]),
    ("plugged in", Event::Sized("v1", 2, 4), [4000, 0, 400, 400, 300]),
    ("plugged in: target", Event::Pod("v1-p4", 400), [4000, 0, 400, 400, 700]),
    ("plugged in: failure", Event::Finished("v1-p4"), [4000, 0, 400, 400, 300]),
    ("plugged in: target again", Event::Pod("v1-p5", 400), [4000, 0, 400, 400, 700]),
    ("plugged in: the source ends first", Event::Finished("v1-p2"), [4000, 0, 400, 400, 400]),
    ("plugged in: the status says so", Event::Sized("v1", 4, 4), [4000, 0, 400, 400, 400]),
    ("plugged out", Event::Sized("v1", 4, 1), [4000, 0, 400, 400, 400]),
    ("plugged out: target", Event::Pod("v1-p6", 100), [4000, 0, 400, 400, 500]),
    ("plugged out: the status says so first", Event::Sized("v1", 1, 1), [1000, 0, 400, 400, 500]),
    ("plugged out: the source ends", Event::Finished("v1-p5"), [1000, 0, 100, 100, 100]),
    ("shutdown", Event::Finished("v1-p6"), [0, 0, 0, 0, 0]),
    ("stop", Event::Stopped("v1", 1), [0, 0, 0, 0, 0]),
    ("restart", Event::Sized("v2", 1, 1), [0, 0, 0, 0, 0]),
    ("restart: boot", Event::Pod("v2-p1", 100), [1000, 0, 100, 100, 100]),
    ("the VM goes before its pod", Event::Stopped("v2", 1), [1000, 0, 100, 100, 100]),
    ("crash", Event::Finished("v2-p1"), [0, 0, 0, 0, 0]),
];

#[test]
fn each_phase_takes_what_the_calculator_says() {
    for (place, calculator) in CALCULATORS.into_iter().enumerate() {
        let mut story = Story::counting(calculator, 10_000);
        for (step, (phase, event, taken)) in LIFE.iter().enumerate() {
            let now = 100 * (step as u64 + 1);
            match event {
                Event::Sized(uid, current, wanted) => {
                    story.see_machine(&sized_of(uid, *current, *wanted), now);
                }
                Event::Pod(name, milli_cpu) => story.server.create_pod(name, *milli_cpu, 0),
                Event::Finished(name) => story.server.finish_pod(name),
                Event::Deleted(name) => story.server.delete_pod(name),
                Event::Stopped(uid, cpus) => {
                    story.state.delete_machine(&sized_of(uid, *cpus, *cpus), at(now));
                }
            }
            let used = Quantity::parse(&story.used_after(now)).unwrap().nanos() / 1_000_000;
            assert_eq!(used, i128::from(taken[place]), "{calculator:?}: {phase}");
            assert!(story.held().is_empty(), "{calculator:?}: {phase}: {:?} held", story.held());
        }
    }
}
