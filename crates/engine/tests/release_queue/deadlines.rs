//! Pods that a deadline is near of: they go before others of their share, and other shares are not the worse for it.

use std::sync::Arc;

use proptest::prelude::*;
use sluice_engine::{
    Charge, Claim, ClassId, Deadline, Decision, PodId, QuotaId, QuotaSet, ReleaseQueue, Resource, WaitKey,
};

use crate::{ALL, NOBODY, PATIENT, charge, key, ledger, quotas, released, share_of, since, units};

/// A quota of 10 CPU, of which running pods use so much.
fn used(cpu: i128) -> (ReleaseQueue, Arc<QuotaSet>) {
    let (mut queue, quotas) = (ReleaseQueue::default(), quotas([0]));
    queue.open(QuotaId(0), ledger(10, 100));
    queue.apply(Claim::Counted, &quotas, &charge(cpu, 0));
    (queue, quotas)
}

/// A pod waits; returns how it is named.
fn waits(
    queue: &mut ReleaseQueue,
    (pod, priority, since_ms): (u32, i32, u64),
    cpu: i128,
    quotas: &Arc<QuotaSet>,
) -> (ClassId, WaitKey) {
    let key = key(pod, priority, i64::from(pod));
    let class = queue.wait(PodId(pod), key.clone(), since_ms, Arc::new(charge(cpu, 0)), Arc::clone(quotas));
    (class, key)
}

#[test]
fn a_deadline_is_near_in_the_last_five_minutes_before_it() {
    let deadline = Deadline::after(1_000, 900);
    let near: Vec<i64> =
        [1_599, 1_600, 1_899, 1_900].into_iter().filter(|at| deadline.is_near(*at)).collect();
    assert_eq!(near, [1_600, 1_899]);
    for (created, timeout) in
        [(i64::MAX, i64::MAX), (0, i64::MAX), (i64::MIN, i64::MIN), (0, i64::MIN), (0, 0)]
    {
        assert!(!Deadline::after(created, timeout).is_near(0), "{created} {timeout}");
    }
}

#[test]
fn the_pod_with_the_nearest_deadline_goes_first_although_it_is_younger_and_of_lower_priority() {
    let (mut queue, quotas) = used(10);
    waits(&mut queue, (1, 9, 1), 4, &quotas);
    let second = waits(&mut queue, (2, 5, 2), 4, &quotas);
    let third = waits(&mut queue, (3, 0, 3), 5, &quotas);
    assert_eq!(released(queue.decide(PATIENT, ALL)), NOBODY);
    queue.hasten(second.0, &second.1, Some(Deadline(700)));
    queue.hasten(third.0, &third.1, Some(Deadline(600)));
    assert_eq!(released(queue.decide(PATIENT, ALL)), NOBODY);
    queue.end(Claim::Counted, &quotas, &charge(5, 0));
    assert_eq!(released(queue.decide(PATIENT, ALL)), [3]);
    queue.end(Claim::Counted, &quotas, &charge(4, 0));
    assert_eq!(released(queue.decide(PATIENT, ALL)), [2], "of the same charge as the first");
    if let Err(wrong) = queue.audit_queue() {
        panic!("{wrong}");
    }
}

/// If it fits: what is not enough for it goes to whom it is kept for.
#[test]
fn room_that_is_kept_for_a_pod_that_has_waited_long_goes_to_it() {
    for many in [false, true] {
        let (mut queue, quotas) = used(10);
        if many {
            // Of each a class of its own.
            for pod in 100..120 {
                let charge = Arc::new(charge(10, i128::from(pod - 100)));
                queue.wait(PodId(pod), key(pod, -1, 100), 100, charge, Arc::clone(&quotas));
            }
        }
        waits(&mut queue, (1, 9, 1), 7, &quotas);
        let young = waits(&mut queue, (2, 0, 90), 6, &quotas);
        waits(&mut queue, (3, 9, 95), 6, &quotas);
        queue.end(Claim::Counted, &quotas, &charge(6, 0));
        assert_eq!(released(queue.decide(since(50), ALL)), NOBODY, "6 are free, and kept");
        queue.hasten(young.0, &young.1, Some(Deadline(600)));
        queue.hasten(young.0, &young.1, None);
        assert_eq!(released(queue.decide(since(50), ALL)), NOBODY, "no deadline is near any more");
        queue.hasten(young.0, &young.1, Some(Deadline(600)));
        assert_eq!(released(queue.decide(since(50), ALL)), [2]);
        queue.end(Claim::Assumed, &quotas, &charge(6, 0));
        assert_eq!(released(queue.decide(since(50), ALL)), NOBODY, "and is kept again");
        if let Err(wrong) = queue.audit_queue() {
            panic!("{wrong}");
        }
    }
}

const NEIGHBOUR: u32 = 1;
const HASTY: u32 = 2;

/// A shared quota of so much CPU.
fn shared(cpu: i128) -> ReleaseQueue {
    let mut queue = ReleaseQueue::default();
    queue.open_shared(QuotaId(0), ledger(cpu, 100));
    queue
}

#[test]
fn a_share_that_takes_less_or_has_waited_longer_is_not_overtaken() {
    for patience in [PATIENT, since(50)] {
        let mut queue = shared(10);
        let of = |share| share_of(share, [0]);
        queue.apply(Claim::Counted, &of(NEIGHBOUR), &charge(4, 0));
        queue.apply(Claim::Counted, &of(HASTY), &charge(6, 0));
        waits(&mut queue, (1, 0, 1), 1, &of(NEIGHBOUR));
        waits(&mut queue, (2, 9, 2), 1, &of(HASTY));
        let near = waits(&mut queue, (3, 0, 3), 1, &of(HASTY));
        queue.hasten(near.0, &near.1, Some(Deadline(1)));
        assert_eq!(released(queue.decide(patience, ALL)), NOBODY);
        queue.end(Claim::Counted, &of(HASTY), &charge(1, 0));
        assert_eq!(released(queue.decide(patience, ALL)), [1]);
        queue.end(Claim::Counted, &of(HASTY), &charge(1, 0));
        assert_eq!(released(queue.decide(patience, ALL)), [3]);
    }
}

/// What one share has so far, each second.
struct Run {
    queue: ReleaseQueue,
    running: Vec<(u64, u32)>,
    went: [usize; 3],
}

impl Run {
    fn new(cpu: i128) -> Self {
        Self { queue: shared(cpu), running: Vec::new(), went: [0; 3] }
    }

    fn second(&mut self, now_ms: u64, lives: u64) {
        for (_, share) in self.running.extract_if(.., |(until, _)| *until <= now_ms) {
            self.queue.end(Claim::Assumed, &share_of(share, [0]), &charge(1, 0));
        }
        while self.queue.has_news() {
            for decision in self.queue.decide(PATIENT, 16) {
                let Decision::Release { quotas, .. } = decision else { continue };
                self.running.push((now_ms + lives, quotas.share().0));
                self.went[quotas.share().0 as usize] += 1;
            }
        }
        if let Err(wrong) = self.queue.audit_queue() {
            panic!("{wrong}");
        }
    }
}

/// One CPU, and of each kind another charge: what it takes beside that is not limited.
fn of_kind(kind: u8) -> Charge {
    Charge::from_pairs([(Resource::Cpu, units(1)), (Resource::CountPods, units(kind.into()))])
}

proptest! {

    /// The same pods, with deadlines of one share and without. All take the same, and none has waited long.
    #[test]
    fn which_share_goes_when_does_not_depend_on_deadlines(
        pods in proptest::collection::vec((0..3u32, 0..3, 0..4u8, proptest::option::of(0..9i64)), 20..120),
        cpu in 1..5i128,
        lives in 1..6u64,
        each in 1..4usize,
    ) {
        let (mut plain, mut hasty) = (Run::new(cpu), Run::new(cpu));
        let mut coming = (0..).zip(&pods);
        for now_ms in 0..pods.len() as u64 * 3 {
            for (pod, (share, priority, kind, deadline)) in coming.by_ref().take(each) {
                let key = key(pod, *priority, i64::try_from(now_ms).unwrap());
                let wait = |run: &mut Run| {
                    let (charge, quotas) = (Arc::new(of_kind(*kind)), share_of(*share, [0]));
                    run.queue.wait(PodId(pod), key.clone(), now_ms, charge, quotas)
                };
                wait(&mut plain);
                let class = wait(&mut hasty);
                hasty.queue.hasten(class, &key, deadline.filter(|_| *share == HASTY).map(Deadline));
            }
            plain.second(now_ms, lives);
            hasty.second(now_ms, lives);
            prop_assert_eq!(plain.went, hasty.went, "after {}", now_ms);
        }
    }
}
