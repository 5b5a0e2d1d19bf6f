//! Laws of the book of quotas: whatever happens in whatever order.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod scenes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use sluice_engine::{
    Amount, Book, Charge, Claim, ClassId, Decision, Ledger, PodId, QuotaId, Resource, Uid, WaitKey,
};

const QUOTAS: u32 = 3;
/// As many looks as it takes.
const ALL: usize = usize::MAX;
/// None has waited long enough to have room kept.
const PATIENT: Option<u64> = None;
/// All have.
const IMPATIENT: Option<u64> = Some(u64::MAX);

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

fn quotas<const N: usize>(ids: [u32; N]) -> Arc<[QuotaId]> {
    ids.map(QuotaId).into()
}

fn released(decisions: Vec<Decision>) -> Vec<u32> {
    let pods = decisions.into_iter().filter_map(|decision| match decision {
        Decision::Release { pod, .. } => Some(pod.0),
        Decision::Held(_) => None,
    });
    pods.collect()
}

#[derive(Clone, Debug)]
enum Step {
    Wait {
        priority: i32,
        created: i64,
        since: u64,
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
    /// A pod that waits is seen released by another one.
    Arrive {
        at: usize,
    },
    Hard {
        quota: u32,
        cpu: i128,
        memory: i128,
    },
    /// The moment since which none is patient any more comes so much nearer.
    Decide {
        later: u64,
        looks: usize,
    },
    /// Once, however much is left to decide.
    DecideSome {
        looks: usize,
    },
    Pause {
        quota: u32,
    },
    Resume {
        quota: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3, 0..50i64, 1..50u64, 0..6i128, 0..4i128, 1..8u8)
            .prop_map(|(priority, created, since, cpu, memory, quotas)| {
                Step::Wait { priority, created, since, cpu, memory, quotas }
            }),
        2 => any::<usize>().prop_map(|at| Step::Leave { at }),
        3 => any::<usize>().prop_map(|at| Step::End { at }),
        2 => any::<usize>().prop_map(|at| Step::Confirm { at }),
        1 => any::<usize>().prop_map(|at| Step::Arrive { at }),
        1 => (0..QUOTAS, 0..12i128, 0..12i128)
            .prop_map(|(quota, cpu, memory)| Step::Hard { quota, cpu, memory }),
        4 => (0..20u64, 1..4usize).prop_map(|(later, looks)| Step::Decide { later, looks }),
        2 => (1..4usize).prop_map(|looks| Step::DecideSome { looks }),
        1 => (0..QUOTAS).prop_map(|quota| Step::Pause { quota }),
        1 => (0..QUOTAS).prop_map(|quota| Step::Resume { quota }),
    ]
}

#[derive(Clone, Debug)]
struct Waiting {
    key: WaitKey,
    since: u64,
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
    impatient_since: u64,
    paused: BTreeSet<QuotaId>,
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
            impatient_since: 0,
            paused: BTreeSet::new(),
            decided: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Wait { priority, created, since, cpu, memory, quotas } => {
                let pod = PodId(self.next);
                let key = key(self.next, *priority, *created);
                self.next += 1;
                let charge = Arc::new(charge(*cpu, *memory));
                let quotas: Arc<[QuotaId]> =
                    (0..QUOTAS).filter(|quota| quotas & (1 << quota) != 0).map(QuotaId).collect();
                let class =
                    self.book.wait(pod, key.clone(), *since, Arc::clone(&charge), Arc::clone(&quotas));
                self.waiting.insert(pod, Waiting { key, since: *since, class, charge, quotas });
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
            Step::Arrive { at } => {
                if let Some(pod) = nth(&self.waiting, *at) {
                    let Waiting { key, class, charge, quotas, .. } = self.waiting.remove(&pod).unwrap();
                    assert!(self.book.leave(class, &key));
                    self.book.arrive(&quotas, &charge);
                    self.released.insert(pod, Released { claim: Claim::Counted, charge, quotas });
                }
            }
            Step::Hard { quota, cpu, memory } => {
                let limits = [(Resource::Cpu, units(*cpu)), (Resource::Memory, units(*memory))];
                assert!(self.book.replace_hard(QuotaId(*quota), limits));
                self.hard[*quota as usize] = (*cpu, *memory);
            }
            Step::Decide { later, looks } => {
                self.impatient_since += later;
                self.decide(*looks);
            }
            Step::DecideSome { looks } => {
                let decisions = self.book.decide(Some(self.impatient_since), *looks);
                self.heed(&decisions);
                self.decided.extend(decisions);
            }
            Step::Pause { quota } => {
                self.book.pause(QuotaId(*quota));
                self.paused.insert(QuotaId(*quota));
            }
            Step::Resume { quota } => {
                self.book.resume(QuotaId(*quota));
                self.paused.remove(&QuotaId(*quota));
            }
        }
        self.check_sums();
    }

    /// In slices of so many looks, until all is decided.
    fn decide(&mut self, looks: usize) {
        loop {
            let decisions = self.book.decide(Some(self.impatient_since), looks);
            self.heed(&decisions);
            self.decided.extend(decisions);
            if !self.book.has_news() {
                break;
            }
        }
        self.check_all_was_decided();
        assert_eq!(self.book.decide(Some(self.impatient_since), ALL), [], "deciding again changes nothing");
    }

    fn heed(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            let Decision::Release { pod, charge, quotas } = decision else { continue };
            let was = self.waiting.remove(pod).expect("only who waits is released");
            assert_eq!((&was.charge, &was.quotas), (charge, quotas));
            let (charge, quotas) = (Arc::clone(charge), Arc::clone(quotas));
            self.released.insert(*pod, Released { claim: Claim::Assumed, charge, quotas });
            for quota in was.quotas.iter() {
                assert!(!self.paused.contains(quota), "released while its quota is paused");
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
    }

    fn fits(&self, pod: &Waiting, quota: QuotaId) -> bool {
        self.book.ledger(quota).unwrap().excess(&pod.charge, None).is_empty()
    }

    /// For whom room of a quota is kept: of those that are impatient and that no other quota is in the way of, the one
    /// that has waited longest.
    fn kept_for(&self, quota: QuotaId) -> Option<&Waiting> {
        let waiting = self.waiting.values().filter(|pod| pod.quotas.contains(&quota));
        let could = |pod: &&Waiting| {
            pod.quotas.iter().all(|quota| self.book.ledger(*quota).unwrap().could_fit(&pod.charge))
                && pod.quotas.iter().all(|other| *other == quota || self.fits(pod, *other))
        };
        let impatient = waiting.filter(|pod| pod.since <= self.impatient_since).filter(could);
        impatient.min_by_key(|pod| (pod.since, pod.key.clone()))
    }

    /// A pod that fits is held only where room is kept for another one.
    fn check_all_was_decided(&self) {
        for held in self.waiting.values() {
            if held.quotas.iter().any(|quota| self.paused.contains(quota)) {
                continue;
            }
            let fits = held.quotas.iter().all(|quota| self.fits(held, *quota));
            let is_kept = held.quotas.iter().any(|quota| {
                self.kept_for(*quota).filter(|first| first.class != held.class).is_some_and(|first| {
                    let sums = self.book.ledger(*quota).unwrap();
                    !sums.excess(&held.charge, Some(&first.charge)).is_empty()
                })
            });
            assert!(!fits || is_kept, "{held:?} fits and is held");
            assert!(self.book.class(held.class).unwrap().reason().is_some(), "{held:?} was not looked at");
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
        for quota in 0..QUOTAS {
            world.step(&Step::Resume { quota });
        }
        world.decide(ALL);
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

    /// Who came first to the book does not matter, only who comes first in the order; in whatever slices.
    #[test]
    fn arrival_does_not_matter_but_the_order_does(
        pods in proptest::collection::vec((0..3, 0..9i64, 1..6i128, 1..8u8), 1..30),
        shuffle in any::<u64>(),
        looks in 1..6usize,
    ) {
        let key_of = |at: usize| key(u32::try_from(at).unwrap(), pods[at].0, pods[at].1);
        let quotas_of = |at: usize| -> Vec<u32> { (0..QUOTAS).filter(|quota| pods[at].3 & (1 << quota) != 0).collect() };
        let release = |order: &[usize]| {
            let mut book = Book::default();
            for quota in (0..QUOTAS).map(QuotaId) {
                book.open(quota, ledger(20, 100));
            }
            for at in order {
                let id = PodId(u32::try_from(*at).unwrap());
                let takes = Arc::new(charge(pods[*at].2, 1));
                book.wait(id, key_of(*at), 1, takes, quotas_of(*at).into_iter().map(QuotaId).collect());
            }
            let mut all = Vec::new();
            while book.has_news() {
                all.extend(released(book.decide(PATIENT, looks)).into_iter().map(|pod| pod as usize));
            }
            all.sort_unstable();
            all
        };
        let forward: Vec<usize> = (0..pods.len()).collect();
        let mut shuffled = forward.clone();
        shuffled.sort_by_key(|at| (*at as u64 + 1).wrapping_mul(shuffle | 1).rotate_left(17));
        let released = release(&forward);
        prop_assert_eq!(&released, &release(&shuffled));
        // Back-fill is exactly this: in the order, each that still fits.
        let mut order = forward;
        order.sort_by_key(|at| key_of(*at));
        let mut room = [20; QUOTAS as usize];
        order.retain(|at| {
            let fits = quotas_of(*at).iter().all(|quota| pods[*at].2 <= room[*quota as usize]);
            quotas_of(*at).iter().filter(|_| fits).for_each(|quota| room[*quota as usize] -= pods[*at].2);
            fits
        });
        order.sort_unstable();
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
