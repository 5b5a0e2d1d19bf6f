//! Several shares of one quota: none keeps another from its part.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sluice_engine::{
    Charge, Claim, Deadline, Decision, Patience, PodId, QuotaId, QuotaSet, ReleaseQueue, Resource,
};

use crate::{ALL, NOBODY, PATIENT, charge, key, ledger, released, share_of, units};

/// The shared quota; a share's own quota has the share's number.
const SHARED: u32 = 0;
const NEIGHBOUR: u32 = 1;
const FLOOD: u32 = 2;

/// A shared quota of 10 CPU, of which each share runs so much.
fn shared(runs: &[(u32, i128)]) -> ReleaseQueue {
    let mut queue = ReleaseQueue::default();
    queue.open_shared(QuotaId(SHARED), ledger(10, 100));
    for (share, cpu) in runs {
        queue.apply(Claim::Counted, &share_of(*share, [SHARED]), &charge(*cpu, 0));
    }
    queue
}

fn ends(queue: &mut ReleaseQueue, share: u32, cpu: i128) {
    queue.end(Claim::Counted, &share_of(share, [SHARED]), &charge(cpu, 0));
}

/// A pod of this share waits since a moment, with a priority.
fn waits(queue: &mut ReleaseQueue, pod: u32, share: u32, cpu: i128, waits: (u64, i32)) {
    hurries(queue, pod, share, cpu, waits, None);
}

/// A deadline of the pod may be near too.
fn hurries(
    queue: &mut ReleaseQueue,
    pod: u32,
    share: u32,
    cpu: i128,
    (since_ms, priority): (u64, i32),
    deadline: Option<i64>,
) {
    let (key, charge) = (key(pod, priority, i64::try_from(since_ms).unwrap()), Arc::new(charge(cpu, 0)));
    let class = queue.wait(PodId(pod), key.clone(), since_ms, charge, share_of(share, [SHARED]));
    queue.hasten(class, &key, deadline.map(Deadline));
}

#[test]
fn the_share_that_takes_least_goes_first_whatever_priority_the_others_claim() {
    let mut queue = shared(&[(FLOOD, 7), (NEIGHBOUR, 3)]);
    for pod in 10..20 {
        waits(&mut queue, pod, FLOOD, 1, (1, 1_000));
    }
    waits(&mut queue, 1, NEIGHBOUR, 1, (2, 0));
    waits(&mut queue, 2, NEIGHBOUR, 1, (2, 5));
    assert_eq!(released(queue.decide(PATIENT, ALL)), NOBODY);
    ends(&mut queue, FLOOD, 1);
    assert_eq!(released(queue.decide(PATIENT, ALL)), [2], "within a share by priority");
    ends(&mut queue, FLOOD, 3);
    assert_eq!(released(queue.decide(PATIENT, ALL)), [10, 1, 11], "3 of 10, then 4 of each, then 4 of 10");
    ends(&mut queue, NEIGHBOUR, 1);
    assert_eq!(released(queue.decide(PATIENT, ALL)), [12], "again both take as much");
}

/// In a quota for one pod no share takes anything when its pod has ended.
#[test]
fn of_shares_that_take_the_same_each_has_its_turn() {
    let mut queue = shared(&[(3, 9)]);
    for (pod, share) in [(10, NEIGHBOUR), (11, NEIGHBOUR), (20, FLOOD), (21, FLOOD)] {
        waits(&mut queue, pod, share, 1, (1, 0));
    }
    let mut went = Vec::new();
    for _ in 0..4 {
        let now = released(queue.decide(PATIENT, ALL));
        for pod in &now {
            queue.end(Claim::Assumed, &share_of(pod / 10, [SHARED]), &charge(1, 0));
        }
        went.extend(now.iter().map(|pod| pod / 10));
    }
    assert_eq!(went, [NEIGHBOUR, FLOOD, NEIGHBOUR, FLOOD]);
}

/// With one pod waiting at a time a share is not ahead of one with a queue.
#[test]
fn a_share_that_begins_to_wait_comes_after_those_that_wait() {
    let mut queue = shared(&[(3, 10)]);
    for pod in [20, 21, 22] {
        waits(&mut queue, pod, FLOOD, 1, (1, 0));
    }
    waits(&mut queue, 10, NEIGHBOUR, 1, (2, 0));
    assert_eq!(released(queue.decide(PATIENT, ALL)), NOBODY);
    ends(&mut queue, 3, 1);
    assert_eq!(released(queue.decide(PATIENT, ALL)), [20]);
    for (next, expected) in [(11, 10), (12, 21), (13, 11)] {
        let running = if expected == 21 { NEIGHBOUR } else { FLOOD };
        waits(&mut queue, next, NEIGHBOUR, 1, (3, 0));
        queue.end(Claim::Assumed, &share_of(running, [SHARED]), &charge(1, 0));
        assert_eq!(released(queue.decide(PATIENT, ALL)), [expected]);
    }
}

/// Of what counts is the resource of which a share takes most.
#[test]
fn the_dominant_resource_decides() {
    let mut queue = shared(&[(FLOOD, 4)]);
    let of = |memory| charge(1, memory);
    queue.apply(Claim::Counted, &share_of(NEIGHBOUR, [SHARED]), &charge(1, 50));
    queue.apply(Claim::Counted, &share_of(3, [SHARED]), &charge(5, 0));
    queue.wait(PodId(1), key(1, 0, 1), 1, Arc::new(of(1)), share_of(NEIGHBOUR, [SHARED]));
    waits(&mut queue, 2, FLOOD, 1, (2, 0));
    assert_eq!(released(queue.decide(PATIENT, ALL)), NOBODY);
    queue.end(Claim::Counted, &share_of(3, [SHARED]), &charge(1, 0));
    assert_eq!(released(queue.decide(PATIENT, ALL)), [2], "4 of 10 CPU is less than 50 of 100 memory");
}

#[test]
fn after_other_limits_shares_are_compared_by_those() {
    let mut queue = shared(&[(FLOOD, 4)]);
    queue.apply(Claim::Counted, &share_of(NEIGHBOUR, [SHARED]), &charge(1, 50));
    queue.apply(Claim::Counted, &share_of(3, [SHARED]), &charge(5, 0));
    waits(&mut queue, 1, NEIGHBOUR, 1, (1, 0));
    waits(&mut queue, 2, FLOOD, 1, (2, 0));
    assert_eq!(released(queue.decide(PATIENT, ALL)), NOBODY);
    let hard = [(Resource::Cpu, units(11)), (Resource::Memory, units(1_000))];
    assert!(queue.replace_hard(QuotaId(SHARED), hard));
    assert_eq!(released(queue.decide(PATIENT, ALL)), [1], "50 of 1,000 memory is less than 4 of 11 CPU");
    if let Err(wrong) = queue.audit_queue() {
        panic!("{wrong}");
    }
}

/// Older pods in any number, of any number of namespaces, that their own quotas are in the way of.
#[test]
fn room_is_kept_for_a_neighbour_behind_older_pods_that_cannot_go_anyway() {
    for namespaces in [1, 100] {
        let mut queue = shared(&[(3, 9), (NEIGHBOUR, 1)]);
        for share in (10..).take(namespaces) {
            queue.open(QuotaId(share), ledger(1_000, 100));
            queue.apply(Claim::Counted, &share_of(share, [share]), &charge(0, 100));
        }
        for (pod, share) in (1_000..1_400).zip((10..).take(namespaces).cycle()) {
            let needs = charge(1 + i128::from(pod % 9), 1 + i128::from(pod % 50));
            queue.wait(PodId(pod), key(pod, 9, 0), 0, Arc::new(needs), share_of(share, [SHARED, share]));
        }
        waits(&mut queue, 1, NEIGHBOUR, 5, (1, 0));
        let mut went = Vec::new();
        // One unit becomes free at a time, and a young pod of another namespace is there to take it.
        for now_ms in 10..=15 {
            ends(&mut queue, 3, 1);
            let young = 2_000 + u32::try_from(now_ms).unwrap();
            waits(&mut queue, young, young, 1, (now_ms, 9));
            while queue.has_news() {
                went.extend(released(queue.decide(Patience { now_ms, limit_ms: 9 }, 16)));
            }
        }
        assert!(went.contains(&1), "of {namespaces} namespaces: {went:?}");
        assert!(went.len() <= 2, "but for one that went while the older ones were looked through: {went:?}");
    }
}

/// Pods that have waited long have their turn one by one of each share, not all of one share before those of the next.
#[test]
fn a_long_queue_of_old_pods_does_not_keep_a_neighbour_waiting() {
    let mut queue = shared(&[(FLOOD, 10)]);
    for pod in 100..300 {
        waits(&mut queue, pod, FLOOD, 1, (0, 1_000));
    }
    let at = |now_ms| Patience { now_ms, limit_ms: 60 };
    assert_eq!(released(queue.decide(at(90), ALL)), NOBODY);
    for (pod, cpu) in [(1, 1), (2, 1), (3, 1)] {
        waits(&mut queue, pod, NEIGHBOUR, cpu, (90, 0));
    }
    let mut next = |now| {
        ends(&mut queue, FLOOD, 1);
        released(queue.decide(at(now), ALL))
    };
    assert_eq!(next(100), [100], "it has waited long, and its share was not served that way before");
    assert_eq!(next(101), [1], "then the share decides");
    assert_eq!(next(102), [2]);
    assert_eq!(next(161), [3], "3 has waited long too, and 101 only since its share was served");
    assert_eq!(next(162), [101]);
}

/// As in a quota of one namespace: one after the other, each as soon as there is room.
#[test]
fn where_one_share_waits_room_is_kept_for_each_of_its_pods() {
    for open in [ReleaseQueue::open, ReleaseQueue::open_shared] {
        let mut queue = ReleaseQueue::default();
        open(&mut queue, QuotaId(SHARED), ledger(10, 100));
        queue.apply(Claim::Counted, &share_of(FLOOD, [SHARED]), &charge(10, 0));
        for pod in 0..40 {
            waits(&mut queue, pod, FLOOD, 2 + i128::from(pod % 9), (u64::from(pod), 0));
        }
        let patience = Patience { now_ms: 100, limit_ms: 60 };
        let mut went = Vec::new();
        for young in 100..109 {
            ends(&mut queue, FLOOD, 1);
            waits(&mut queue, young, FLOOD, 1, (100, 9));
            went.extend(released(queue.decide(patience, ALL)));
        }
        assert_eq!(went, [0, 1, 2], "2, 3 and 4 CPU");
    }
}

/// How a quota releases when none has waited long, the slow way.
fn by_share(pods: &[(u32, i32, i64, i128, i128)], (cpu, memory): (i128, i128)) -> Vec<u32> {
    let mut lanes = BTreeMap::<u32, Vec<usize>>::new();
    let key_of = |at: usize| key(u32::try_from(at).unwrap(), pods[at].1, pods[at].2);
    let mut since = BTreeMap::<u32, usize>::new();
    for (at, (share, ..)) in pods.iter().enumerate() {
        lanes.entry(*share).or_default().push(at);
        since.entry(*share).or_insert(at);
    }
    lanes.values_mut().for_each(|lane| lane.sort_by_key(|at| key_of(*at)));
    let mut used = BTreeMap::<u32, (i128, i128)>::new();
    let (mut free, mut held, mut order) = ((cpu, memory), BTreeMap::<u32, usize>::new(), Vec::new());
    loop {
        let place = |(share, lane): (&u32, &Vec<usize>)| {
            let looked = held.get(share).copied().unwrap_or(0);
            let (of_cpu, of_memory) = used.get(share).copied().unwrap_or_default();
            let dominant = (of_cpu * memory).max(of_memory * cpu);
            (looked < lane.len()).then(|| (dominant, since[share], *share))
        };
        let Some((.., share)) = lanes.iter().filter_map(place).min() else { return order };
        let looked = held.entry(share).or_default();
        let lane = lanes.get_mut(&share).unwrap();
        let (.., of_cpu, of_memory) = pods[lane[*looked]];
        if of_cpu > free.0 || of_memory > free.1 {
            *looked += 1;
            continue;
        }
        order.push(u32::try_from(lane.remove(*looked)).unwrap());
        since.insert(share, pods.len() + order.len());
        free = (free.0 - of_cpu, free.1 - of_memory);
        let sums = used.entry(share).or_default();
        *sums = (sums.0 + of_cpu, sums.1 + of_memory);
    }
}

/// What runs, by when it ends.
type Running = Vec<(u64, Arc<QuotaSet>, Arc<Charge>)>;

/// One second of a quota: what is over ends, and what fits goes and runs for so long.
fn second(queue: &mut ReleaseQueue, running: &mut Running, patience: Patience, lives: u64) -> Vec<u32> {
    for (_, quotas, charge) in running.extract_if(.., |(until, ..)| *until <= patience.now_ms) {
        queue.end(Claim::Assumed, &quotas, &charge);
    }
    let mut went = Vec::new();
    while queue.has_news() {
        let decisions = queue.decide(patience, 16);
        for decision in &decisions {
            if let Decision::Release { charge, quotas, .. } = decision {
                running.push((patience.now_ms + lives, Arc::clone(quotas), Arc::clone(charge)));
            }
        }
        went.extend(released(decisions));
    }
    went
}

proptest! {

    /// In whatever slices, and in whatever order they came.
    #[test]
    fn pods_go_in_the_order_of_what_their_shares_take(
        pods in proptest::collection::vec((0..4u32, 0..3, 0..9i64, 1..6i128, 1..40i128), 1..60),
        looks in 1..6usize,
    ) {
        let mut queue = shared(&[]);
        for (id, (share, priority, created, cpu, memory)) in (0..).zip(&pods) {
            let charge = Arc::new(charge(*cpu, *memory));
            queue.wait(PodId(id), key(id, *priority, *created), 1, charge, share_of(*share, [SHARED]));
        }
        let mut order = Vec::new();
        while queue.has_news() {
            order.extend(released(queue.decide(PATIENT, looks)));
        }
        prop_assert_eq!(order, by_share(&pods, (10, 100)));
    }

    /// Namespaces that are there, and new ones each second, want more than there is, in pods of all sizes and priorities,
    /// some of which a deadline is near of. A pod that has waited long goes when what runs has ended,
    /// once for each namespace that waited before.
    #[test]
    fn no_flood_starves_a_neighbour(
        flood in proptest::collection::vec((0..3u32, 0..9, 1..6i128, proptest::option::of(0..9i64)), 40..120),
        own in (1..11i128, 0..9u64),
        runs in 0..5i128,
        lives in 1..6u64,
        multiplies in any::<bool>(),
    ) {
        const LIMIT: u64 = 10;
        let (mut queue, mut running) = (shared(&[]), Running::new());
        let steady = Arc::new(charge(runs, 0));
        queue.apply(Claim::Counted, &share_of(NEIGHBOUR, [SHARED]), &steady);
        let size = own.0.min(10 - runs);
        let came = 20 + own.1;
        let mut pods = 1_000..;
        for now_ms in 0.. {
            // The queue of the flood is never empty; some of it has waited for long when the neighbour's pod comes.
            for (share, priority, cpu, deadline) in flood.iter().skip(now_ms as usize % 40).take(4) {
                let share = if multiplies { 1_000 + now_ms as u32 } else { 10 + share };
                hurries(&mut queue, pods.next().unwrap(), share, *cpu, (now_ms, *priority), *deadline);
            }
            if now_ms == came {
                waits(&mut queue, 1, NEIGHBOUR, size, (now_ms, 0));
            }
            let went = second(&mut queue, &mut running, Patience { now_ms, limit_ms: LIMIT }, lives);
            prop_assert!(queue.audit_queue().is_ok());
            if went.contains(&1) {
                break;
            }
            // Of each namespace that waits already one may go before it, each after all that run.
            let before = if multiplies { came + 1 } else { 3 };
            prop_assert!(now_ms <= came + LIMIT + (before + 1) * lives, "waits still at {now_ms}, since {came}");
        }
    }
}
