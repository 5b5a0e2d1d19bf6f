//! Laws of the queue of quotas: whatever happens in whatever order.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod deadlines;
mod fairness;
mod scenes;
mod turns;
mod world;

use std::cmp::Reverse;
use std::sync::Arc;

use proptest::prelude::*;
use sluice_engine::{
    Amount, Charge, Claim, Decision, Ledger, Patience, PodId, QuotaId, QuotaSet, ReleaseQueue, Resource,
    ShareId, Uid, WaitKey,
};

use world::{Step, World, step};

const QUOTAS: u32 = 3;
/// More looks than it takes.
const ALL: usize = 20_000;
/// None has waited long enough to have room kept.
const PATIENT: Patience = Patience { now_ms: 0, limit_ms: 1 };
/// All have.
const IMPATIENT: Patience = since(1 << 60);

/// Those that have waited since this moment or before.
const fn since(now_ms: u64) -> Patience {
    Patience { now_ms, limit_ms: 0 }
}

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

fn quotas<const N: usize>(ids: [u32; N]) -> Arc<QuotaSet> {
    share_of(0, ids)
}

fn share_of(share: u32, quotas: impl IntoIterator<Item = u32>) -> Arc<QuotaSet> {
    Arc::new(QuotaSet::new(ShareId(share), quotas.into_iter().map(QuotaId)))
}

/// What [`released`] returns when the queue releases no pod.
const NOBODY: [u32; 0] = [];

fn released(decisions: Vec<Decision>) -> Vec<u32> {
    let pods = decisions.into_iter().filter_map(|decision| match decision {
        Decision::Release { pod, .. } => Some(pod.0),
        Decision::Held(_) => None,
    });
    pods.collect()
}

proptest! {

    #[test]
    fn the_queue_is_always_right(shared in 0..8u8, steps in proptest::collection::vec(step(), 1..160)) {
        let mut world = World::new(shared);
        for step in &steps {
            world.step(step);
        }
        for quota in 0..QUOTAS {
            world.step(&Step::Resume { quota });
        }
        world.decide(ALL);
    }

    #[test]
    fn the_same_input_gives_the_same_order(shared in 0..8u8, steps in proptest::collection::vec(step(), 1..60)) {
        let (mut one, mut other) = (World::new(shared), World::new(shared));
        for step in &steps {
            one.step(step);
            other.step(step);
        }
        prop_assert_eq!(one.decided, other.decided);
    }

    /// Who came first to the queue does not matter, only who comes first in the order; in whatever slices.
    #[test]
    fn arrival_does_not_matter_but_the_order_does(
        pods in proptest::collection::vec((0..3, 0..9i64, 1..6i128, 1..8u8), 1..30),
        shuffle in any::<u64>(),
        looks in 1..6usize,
    ) {
        let key_of = |at: usize| key(u32::try_from(at).unwrap(), pods[at].0, pods[at].1);
        let quotas_of = |at: usize| -> Vec<u32> { (0..QUOTAS).filter(|quota| pods[at].3 & (1 << quota) != 0).collect() };
        let release = |order: &[usize]| {
            let mut queue = ReleaseQueue::default();
            for quota in (0..QUOTAS).map(QuotaId) {
                queue.open(quota, ledger(20, 100));
            }
            for at in order {
                let id = PodId(u32::try_from(*at).unwrap());
                let takes = Arc::new(charge(pods[*at].2, 1));
                queue.wait(id, key_of(*at), 1, takes, share_of(u32::from(pods[*at].3 % 2), quotas_of(*at)));
            }
            let mut all = Vec::new();
            while queue.has_news() {
                all.extend(released(queue.decide(PATIENT, looks)).into_iter().map(|pod| pod as usize));
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
