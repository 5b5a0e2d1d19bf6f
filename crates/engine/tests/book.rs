//! Laws of the book of quotas: whatever happens in whatever order.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sluice_engine::{
    Amount, Book, Charge, Claim, ClassId, Decision, Ledger, PodId, QuotaId, Resource, Uid, WaitKey,
};

const QUOTAS: u32 = 3;
/// Nobody has waited long enough to have room kept.
const PATIENT: i64 = i64::MIN;
/// Everybody has.
const IMPATIENT: i64 = i64::MAX;

fn units(amount: i128) -> Amount {
    Amount::from_nanos(amount * 1_000_000_000)
}

fn charge(cpu: i128, memory: i128) -> Charge {
    Charge::from_pairs([(Resource::Cpu, units(cpu)), (Resource::Memory, units(memory))])
}

fn ledger(cpu: i128, memory: i128) -> Ledger {
    Ledger::new([(Resource::Cpu, units(cpu)), (Resource::Memory, units(memory))])
}

fn key(pod: u32, priority: i32, created: i64) -> WaitKey {
    WaitKey { priority: Reverse(priority), created, uid: Uid::parse(&format!("pod-{pod:04}")) }
}

#[derive(Clone, Debug)]
enum Step {
    Wait {
        priority: i32,
        created: i64,
        cpu: i128,
        memory: i128,
        quotas: u8,
    },
    Leave {
        at: usize,
    },
    End {
        at: usize,
    },
    Confirm {
        at: usize,
    },
    Hard {
        quota: u32,
        cpu: i128,
        memory: i128,
    },
    /// The moment since which nobody is patient any more comes so much nearer.
    Decide {
        later: i64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3, 0..50i64, 0..6i128, 0..4i128, 1..8u8).prop_map(|(priority, created, cpu, memory, quotas)| {
            Step::Wait { priority, created, cpu, memory, quotas }
        }),
        2 => any::<usize>().prop_map(|at| Step::Leave { at }),
        3 => any::<usize>().prop_map(|at| Step::End { at }),
        2 => any::<usize>().prop_map(|at| Step::Confirm { at }),
        1 => (0..QUOTAS, 0..12i128, 0..12i128)
            .prop_map(|(quota, cpu, memory)| Step::Hard { quota, cpu, memory }),
        4 => (0..20i64).prop_map(|later| Step::Decide { later }),
    ]
}

#[derive(Clone, Debug)]
struct Waiting {
    key: WaitKey,
    class: ClassId,
    charge: Arc<Charge>,
    quotas: Arc<[QuotaId]>,
}

#[derive(Clone, Debug)]
struct Released {
    claim: Claim,
    charge: Arc<Charge>,
    quotas: Arc<[QuotaId]>,
}

/// The book, and beside it everything that is true of it, kept the simple way.
struct World {
    book: Book,
    hard: Vec<(i128, i128)>,
    waiting: BTreeMap<PodId, Waiting>,
    released: BTreeMap<PodId, Released>,
    next: u32,
    patience_since: i64,
    /// Every decision so far.
    decided: Vec<Decision>,
}

impl World {
    fn new() -> Self {
        let mut book = Book::default();
        let hard = vec![(10, 10), (6, 12), (20, 3)];
        for (quota, (cpu, memory)) in hard.iter().enumerate() {
            book.open(QuotaId(u32::try_from(quota).unwrap()), ledger(*cpu, *memory));
        }
        Self {
            book,
            hard,
            waiting: BTreeMap::new(),
            released: BTreeMap::new(),
            next: 0,
            patience_since: -1,
            decided: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Wait { priority, created, cpu, memory, quotas } => {
                let pod = PodId(self.next);
                let key = key(self.next, *priority, *created);
                self.next += 1;
                let charge = Arc::new(charge(*cpu, *memory));
                let quotas: Arc<[QuotaId]> =
                    (0..QUOTAS).filter(|quota| quotas & (1 << quota) != 0).map(QuotaId).collect();
                let class = self.book.wait(pod, key.clone(), Arc::clone(&charge), Arc::clone(&quotas));
                self.waiting.insert(pod, Waiting { key, class, charge, quotas });
            }
            Step::Leave { at } => {
                if let Some(pod) = nth(&self.waiting, *at) {
                    let gone = self.waiting.remove(&pod).unwrap();
                    assert!(self.book.leave(gone.class, &gone.key));
                    assert!(!self.book.leave(gone.class, &gone.key), "it waits no more");
                }
            }
            Step::End { at } => {
                if let Some(pod) = nth(&self.released, *at) {
                    let gone = self.released.remove(&pod).unwrap();
                    self.book.end(gone.claim, &gone.quotas, &gone.charge);
                }
            }
            Step::Confirm { at } => {
                if let Some(pod) = nth(&self.released, *at) {
                    let seen = self.released.get_mut(&pod).unwrap();
                    if seen.claim == Claim::Assumed {
                        self.book.confirm(&seen.quotas, &seen.charge);
                        seen.claim = Claim::Counted;
                    }
                }
            }
            Step::Hard { quota, cpu, memory } => {
                let limits = [(Resource::Cpu, units(*cpu)), (Resource::Memory, units(*memory))];
                assert!(self.book.replace_hard(QuotaId(*quota), limits));
                self.hard[*quota as usize] = (*cpu, *memory);
            }
            Step::Decide { later } => {
                self.patience_since += later;
                self.decide();
            }
        }
        self.check_sums();
    }

    fn decide(&mut self) {
        let patience_since = self.patience_since;
        let decisions = self.book.decide(patience_since);
        for decision in &decisions {
            let Decision::Release { pod, charge, quotas } = decision else { continue };
            let was = self.waiting.remove(pod).expect("only who waits is released");
            assert_eq!((&was.charge, &was.quotas), (charge, quotas));
            let (charge, quotas) = (Arc::clone(charge), Arc::clone(quotas));
            self.released.insert(*pod, Released { claim: Claim::Assumed, charge, quotas });
            for quota in was.quotas.iter() {
                let sums = self.recount(*quota);
                for (resource, hard) in [
                    (Resource::Cpu, self.hard[quota.0 as usize].0),
                    (Resource::Memory, self.hard[quota.0 as usize].1),
                ] {
                    let asked = was.charge.get(&resource).unwrap();
                    let line = sums.line(&resource).unwrap();
                    assert!(asked.is_zero() || line.used() <= units(hard), "more than hard was given away");
                }
            }
        }
        self.check_all_was_decided();
        self.decided.extend(decisions);
        assert!(!self.book.has_news());
        assert_eq!(self.book.decide(patience_since), [], "deciding again changes nothing");
    }

    /// Who fits is held only behind somebody of the same quota who comes before and has waited long.
    fn check_all_was_decided(&self) {
        for held in self.waiting.values() {
            let fits = held
                .quotas
                .iter()
                .all(|quota| self.book.ledger(*quota).unwrap().excess(&held.charge, None).is_empty());
            let behind = self.waiting.values().any(|first| {
                first.key < held.key
                    && first.key.created <= self.patience_since
                    && first.quotas.iter().filter(|quota| held.quotas.contains(quota)).any(|quota| {
                        let sums = self.book.ledger(*quota).unwrap();
                        sums.could_fit(&first.charge)
                            && !sums.excess(&held.charge, Some(&first.charge)).is_empty()
                    })
            });
            assert!(!fits || behind, "{held:?} fits and is held");
        }
    }

    fn recount(&self, quota: QuotaId) -> Ledger {
        let (cpu, memory) = self.hard[quota.0 as usize];
        let mut sums = ledger(cpu, memory);
        for pod in self.released.values().filter(|pod| pod.quotas.contains(&quota)) {
            sums.apply(pod.claim, &pod.charge);
        }
        sums
    }

    /// The incremental sums and lists are what one would make anew.
    fn check_sums(&self) {
        for quota in (0..QUOTAS).map(QuotaId) {
            assert_eq!(self.book.ledger(quota), Some(&self.recount(quota)));
            let held = self.waiting.values().filter(|pod| pod.quotas.contains(&quota)).count();
            assert_eq!(self.book.held(quota), held);
        }
        for (pod, waiting) in &self.waiting {
            let class = self.book.class(waiting.class).expect("its class exists");
            assert_eq!((class.charge(), class.quotas()), (&waiting.charge, &waiting.quotas));
            assert!(class.pods().any(|other| other == *pod));
        }
        if let Err(wrong) = self.book.audit_queue() {
            panic!("{wrong}");
        }
    }
}

fn nth<T>(pods: &BTreeMap<PodId, T>, at: usize) -> Option<PodId> {
    (!pods.is_empty()).then(|| *pods.keys().nth(at % pods.len()).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_book_is_always_right(steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.decide();
    }

    #[test]
    fn the_same_input_gives_the_same_order(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut one, mut other) = (World::new(), World::new());
        for step in &steps {
            one.step(step);
            other.step(step);
        }
        prop_assert_eq!(one.decided, other.decided);
    }

    /// Who came first to the book does not matter, only who comes first in the order.
    #[test]
    fn arrival_does_not_matter_but_the_order_does(
        pods in proptest::collection::vec((0..3, 0..9i64, 1..6i128), 1..30),
        shuffle in any::<u64>(),
    ) {
        let release = |order: &[usize]| {
            let mut book = Book::default();
            book.open(QuotaId(0), ledger(20, 100));
            for at in order {
                let (priority, created, cpu) = pods[*at];
                let id = u32::try_from(*at).unwrap();
                let quotas = Arc::from([QuotaId(0)]);
                book.wait(PodId(id), key(id, priority, created), Arc::new(charge(cpu, 1)), quotas);
            }
            let released = book.decide(PATIENT).into_iter().filter_map(|decision| match decision {
                Decision::Release { pod, .. } => Some(pod.0 as usize),
                Decision::Held { .. } => None,
            });
            released.collect::<Vec<_>>()
        };
        let forward: Vec<usize> = (0..pods.len()).collect();
        let mut shuffled = forward.clone();
        shuffled.sort_by_key(|at| (*at as u64 + 1).wrapping_mul(shuffle | 1).rotate_left(17));
        let released = release(&forward);
        prop_assert_eq!(&released, &release(&shuffled));
        // Back-fill is exactly this: in the order, each that still fits.
        let mut order = forward;
        order.sort_by_key(|at| key(u32::try_from(*at).unwrap(), pods[*at].0, pods[*at].1));
        let mut room = 20;
        order.retain(|at| {
            let fits = pods[*at].2 <= room;
            if fits {
                room -= pods[*at].2;
            }
            fits
        });
        prop_assert_eq!(released, order);
    }

    #[test]
    fn revert_undoes_apply_in_any_order(
        charges in proptest::collection::vec((0..1000i128, -5..1000i128, 0..3usize), 1..20),
        shuffle in any::<u64>(),
    ) {
        const CLAIMS: [Claim; 3] = [Claim::Counted, Claim::Assumed, Claim::InFlight];
        let empty = ledger(100, 100);
        let mut sums = empty.clone();
        for (cpu, memory, claim) in &charges {
            sums.apply(CLAIMS[*claim], &charge(*cpu, *memory));
        }
        let total: i128 = charges.iter().map(|(cpu, ..)| cpu).sum();
        prop_assert_eq!(sums.line(&Resource::Cpu).unwrap().used(), units(total));
        let mut back: Vec<_> = charges.iter().enumerate().collect();
        back.sort_by_key(|(at, _)| (*at as u64 + 1).wrapping_mul(shuffle | 1).rotate_left(17));
        for (_, (cpu, memory, claim)) in back {
            sums.revert(CLAIMS[*claim], &charge(*cpu, *memory));
        }
        prop_assert_eq!(sums, empty);
    }
}

#[test]
fn a_patient_head_keeps_the_room_that_becomes_free() {
    let mut book = Book::default();
    book.open(QuotaId(0), ledger(10, 100));
    let quotas: Arc<[QuotaId]> = Arc::from([QuotaId(0)]);
    book.apply(Claim::Counted, &quotas, &charge(8, 0));
    book.wait(PodId(1), key(1, 0, 1), Arc::new(charge(6, 0)), Arc::clone(&quotas));
    book.wait(PodId(2), key(2, 0, 2), Arc::new(charge(1, 0)), Arc::clone(&quotas));
    let released = |decisions: Vec<Decision>| -> Vec<u32> {
        let pods = decisions.into_iter().filter_map(|decision| match decision {
            Decision::Release { pod, .. } => Some(pod.0),
            Decision::Held { .. } => None,
        });
        pods.collect()
    };
    assert_eq!(released(book.decide(IMPATIENT)), [], "2 are free, and kept for the first");
    book.end(Claim::Counted, &quotas, &charge(3, 0));
    assert_eq!(released(book.decide(IMPATIENT)), [], "5 are free, and kept");
    book.end(Claim::Counted, &quotas, &charge(2, 0));
    assert_eq!(released(book.decide(IMPATIENT)), [1, 2], "7 are free: enough for both");
}

#[test]
fn what_ends_in_a_frozen_account_makes_no_room_until_it_thaws() {
    let mut book = Book::default();
    book.open(QuotaId(0), ledger(10, 100));
    let quotas: Arc<[QuotaId]> = Arc::from([QuotaId(0)]);
    book.apply(Claim::Assumed, &quotas, &charge(8, 0));
    book.freeze(QuotaId(0));
    book.wait(PodId(1), key(1, 0, 1), Arc::new(charge(6, 0)), Arc::clone(&quotas));
    book.end(Claim::Assumed, &quotas, &charge(8, 0));
    assert!(book.decide(PATIENT).iter().all(|decision| matches!(decision, Decision::Held { .. })));
    assert!(book.forget_in_flight(QuotaId(0)));
    assert!(matches!(book.decide(PATIENT).as_slice(), [Decision::Release { .. }]));
    book.revert(Claim::Assumed, &quotas, &charge(6, 0));
    assert_eq!(book.ledger(QuotaId(0)), Some(&ledger(10, 100)), "an exact inverse, frozen or not");
}
