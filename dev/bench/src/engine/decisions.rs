//! A full quota with many waiting pods: one pod ends, and the decision gives its room to another.

use std::cmp::Reverse;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use sluice_engine::{
    Amount, Charge, Claim, Decision, Ledger, Patience, PodId, QuotaId, QuotaSet, ReleaseQueue, Resource,
    ShareId, Uid, WaitKey,
};

use crate::report::{median, quantile, say};

/// Different charges that wait, where only the number of pods is to vary.
const CLASSES: u32 = 10;

/// What was measured for one length of the queue.
#[derive(Serialize)]
pub(super) struct Row {
    waiting: u32,
    different_charges: u32,
    /// Of an event.
    ns: f64,
    p99_ns: f64,
    /// To queue a pod.
    queue_ns: f64,
}

/// No pod has waited long enough to have room kept.
const NO_RESERVATION: Patience = Patience { now_ms: 0, limit_ms: u64::MAX };

/// How many classes a controller looks at before others get at its state.
const LOOKS: usize = 256;

/// Queues of 10, 1,000 and 100,000 pods with as many different charges in each; then two with more charges.
pub(super) fn measure(quick: bool) -> Vec<Row> {
    let events = if quick { 2_000 } else { 20_000 };
    let shapes = [(10, CLASSES), (1_000, CLASSES), (100_000, CLASSES), (100_000, 1_000), (50_000, 50_000)];
    shapes
        .into_iter()
        .map(|(waiting, classes)| {
            say(&format!("engine: decisions with {waiting} waiting pods, {classes} different charges"));
            Queue::new(waiting, classes).measure(events)
        })
        .collect()
}

/// How much more an event costs with the most pods than with the fewest, at equal numbers of charges.
pub(super) fn growth(rows: &[Row]) -> Option<f64> {
    let of = |waiting| {
        rows.iter().find(|row| row.different_charges == CLASSES && row.waiting == waiting).map(|row| row.ns)
    };
    Some(of(100_000)? / of(10)?)
}

/// What the worst queue costs.
#[derive(Serialize)]
pub(super) struct Sweep {
    different_charges: u32,
    slice_p99_ns: f64,
    whole_ns: f64,
}

/// The worst queue that a tenant can make: all charges differ, and none of them fits although of each resource there is
/// enough for some of them; so all have to be looked at, in slices, after each pod that ends.
pub(super) fn measure_sweep(quick: bool) -> Sweep {
    const HALF: i128 = 1 << 20;
    let waiting = 50_000;
    say(&format!("engine: sweeps of {waiting} different charges that all have to be looked at"));
    let quota = QuotaId(1);
    let quotas: Arc<QuotaSet> = Arc::new(QuotaSet::new(ShareId(0), [quota]));
    let of = |cpu, memory| {
        let amounts = [(Resource::Cpu, cpu), (Resource::Memory, memory)];
        Charge::from_pairs(amounts.map(|(resource, amount)| (resource, Amount::from_nanos(amount))))
    };
    let mut queue = ReleaseQueue::default();
    let hard = [Resource::Cpu, Resource::Memory].map(|resource| (resource, Amount::from_nanos(2 * HALF)));
    queue.open(quota, Ledger::new(hard));
    queue.apply(Claim::Counted, &quotas, &of(HALF, HALF));
    for pod in 0..waiting {
        let much = HALF + 1 + i128::from(pod / 2);
        let charge = if pod % 2 == 0 { of(much, 1) } else { of(1, much) };
        let key =
            WaitKey { priority: Reverse(0), created: i64::from(pod), uid: Uid::from_number(u128::from(pod)) };
        queue.wait(PodId(pod), key, 0, Arc::new(charge), Arc::clone(&quotas));
    }
    while queue.has_news() {
        queue.decide(NO_RESERVATION, usize::MAX);
    }
    let (mut slices, mut sweeps) = (Vec::new(), Vec::new());
    for _ in 0..if quick { 5 } else { 50 } {
        queue.wake(quota);
        let mut whole = 0.0;
        while queue.has_news() {
            let begin = Instant::now();
            black_box(queue.decide(NO_RESERVATION, LOOKS));
            let took = begin.elapsed().as_secs_f64() * 1e9;
            slices.push(took);
            whole += took;
        }
        sweeps.push(whole);
    }
    Sweep {
        different_charges: waiting,
        slice_p99_ns: quantile(&mut slices, 0.99),
        whole_ns: median(&mut sweeps),
    }
}

struct Queue {
    queue: ReleaseQueue,
    quotas: Arc<QuotaSet>,
    charges: Vec<Arc<Charge>>,
    classes: u32,
    waiting: u32,
    /// Moment of creation of the next pod that comes.
    clock: i64,
    /// The pod that runs and will end next, with what it takes.
    runs: (PodId, Arc<Charge>),
}

impl Queue {
    fn new(waiting: u32, classes: u32) -> Self {
        let quota = QuotaId(1);
        let mut queue = ReleaseQueue::default();
        // One place, and plenty of everything else: the pod that is released fills the quota.
        queue.open(
            quota,
            Ledger::new([
                (Resource::Pods, Amount::ONE),
                (Resource::Cpu, Amount::from_nanos(1 << 80)),
                (Resource::Memory, Amount::from_nanos(1 << 100)),
            ]),
        );
        let charges: Vec<Arc<Charge>> = (0..classes).map(|class| Arc::new(charge(class))).collect();
        let first = charges.first().cloned().unwrap_or_default();
        let quotas: Arc<QuotaSet> = Arc::new(QuotaSet::new(ShareId(0), [quota]));
        queue.apply(Claim::Assumed, &quotas, &first);
        let runs = (PodId(waiting), first);
        let mut queue = Self { queue, quotas, charges, classes, waiting, clock: 0, runs };
        for pod in 0..waiting {
            queue.join(PodId(pod));
        }
        queue.queue.decide(NO_RESERVATION, usize::MAX);
        queue
    }

    /// A pod comes and waits at the end. Returns how long that took, in nanoseconds.
    fn join(&mut self, pod: PodId) -> f64 {
        self.clock += 1;
        let uid = Uid::from_number(u128::from(pod.0).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let key = WaitKey { priority: Reverse(0), created: self.clock, uid };
        let charge = self.charges.get((pod.0 % self.classes) as usize).cloned().unwrap_or_default();
        let quotas = Arc::clone(&self.quotas);
        let begin = Instant::now();
        self.queue.wait(pod, key, 0, charge, quotas);
        let took = begin.elapsed();
        took.as_secs_f64() * 1e9
    }

    fn measure(mut self, events: u32) -> Row {
        let (mut event_ns, mut queue_ns) = (Vec::new(), Vec::new());
        for event in 0..events {
            let (ended, charge) = self.runs.clone();
            let begin = Instant::now();
            self.queue.revert(Claim::Assumed, &self.quotas, &charge);
            let decisions = black_box(self.queue.decide(NO_RESERVATION, usize::MAX));
            let took = begin.elapsed();
            let released = decisions.into_iter().find_map(|decision| match decision {
                Decision::Release { pod, charge, .. } => Some((pod, charge)),
                Decision::Held(_) => None,
            });
            let Some(released) = released else { break };
            self.runs = released;
            let queued = self.join(ended);
            // The reasons of classes that have just come are not part of the next event.
            self.queue.decide(NO_RESERVATION, usize::MAX);
            if event >= events / 10 {
                event_ns.push(took.as_secs_f64() * 1e9);
                queue_ns.push(queued);
            }
        }
        Row {
            waiting: self.waiting,
            different_charges: self.classes,
            p99_ns: quantile(&mut event_ns, 0.99),
            ns: median(&mut event_ns),
            queue_ns: median(&mut queue_ns),
        }
    }
}

fn charge(class: u32) -> Charge {
    Charge::from_pairs([
        (Resource::Pods, Amount::ONE),
        (Resource::Cpu, Amount::from_nanos(100_000_000 + i128::from(class) * 1_000_000)),
        (Resource::Memory, Amount::from_nanos((1 << 60) + i128::from(class))),
    ])
}
