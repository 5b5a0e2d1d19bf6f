//! Named cases: in which order pods are released, for which of them room is kept, how much one decision looks at.

use std::sync::Arc;

use sluice_engine::{
    Amount, Charge, Claim, Decision, Ledger, Patience, PodId, QuotaId, QuotaSet, ReleaseQueue, Resource,
    ShareId, WaitReason,
};

use crate::{ALL, IMPATIENT, NOBODY, PATIENT, charge, key, ledger, quotas, released, share_of, since, units};

/// A quota of 10 CPU, of which running pods use so much.
fn used(cpu: i128) -> (ReleaseQueue, Arc<QuotaSet>) {
    let (mut queue, quotas) = (ReleaseQueue::default(), quotas([0]));
    queue.open(QuotaId(0), ledger(10, 100));
    queue.apply(Claim::Counted, &quotas, &charge(cpu, 0));
    (queue, quotas)
}

#[test]
fn room_that_becomes_free_is_kept_for_the_pod_that_has_waited_long() {
    let (mut queue, quotas) = used(8);
    queue.wait(PodId(1), key(1, 0, 1), 1, Arc::new(charge(6, 0)), Arc::clone(&quotas));
    queue.wait(PodId(2), key(2, 0, 2), 2, Arc::new(charge(1, 0)), Arc::clone(&quotas));
    assert_eq!(released(queue.decide(IMPATIENT, ALL)), NOBODY, "2 are free, and kept for the first");
    queue.end(Claim::Counted, &quotas, &charge(3, 0));
    assert_eq!(released(queue.decide(IMPATIENT, ALL)), NOBODY, "5 are free, and kept");
    queue.end(Claim::Counted, &quotas, &charge(2, 0));
    assert_eq!(released(queue.decide(IMPATIENT, ALL)), [1, 2], "7 are free: enough for both");
}

/// One unit becomes free at a time, and each time a young pod of higher priority is there that would take it.
#[test]
fn younger_pods_of_higher_priority_do_not_starve_one_that_has_waited_long() {
    let (mut queue, quotas) = used(10);
    queue.wait(PodId(0), key(0, 0, 0), 0, Arc::new(charge(6, 0)), Arc::clone(&quotas));
    let mut took = Vec::new();
    for round in 1..=20 {
        queue.end(Claim::Counted, &quotas, &charge(1, 0));
        let young = key(round, 9, i64::from(round));
        queue.wait(PodId(round), young, u64::from(round), Arc::new(charge(1, 0)), Arc::clone(&quotas));
        took = released(queue.decide(since(0), ALL));
        if !took.is_empty() {
            break;
        }
    }
    assert_eq!(took.first(), Some(&0), "it goes as soon as 6 have become free");
    assert_eq!(queue.ledger(QuotaId(0)).unwrap().line(&Resource::Cpu).unwrap().used(), units(10));
}

/// Of the same charge, and so of the same class.
#[test]
fn among_equals_too_room_is_kept_for_the_pod_that_has_waited_long() {
    let (mut queue, quotas) = used(10);
    let same = Arc::new(charge(5, 0));
    queue.wait(PodId(1), key(1, 0, 1), 1, Arc::clone(&same), Arc::clone(&quotas));
    queue.wait(PodId(2), key(2, 9, 2), 2, Arc::clone(&same), Arc::clone(&quotas));
    assert_eq!(released(queue.decide(since(1), ALL)), NOBODY);
    queue.end(Claim::Counted, &quotas, &charge(5, 0));
    assert_eq!(released(queue.decide(since(1), ALL)), [1]);
}

/// Its namespace's own quota may be in the way of a pod for ever: others would wait for what is none of theirs.
#[test]
fn a_shared_quota_keeps_room_for_pods_only_that_their_own_let_in() {
    let mut queue = ReleaseQueue::default();
    let (own, both, shared) = (share_of(1, [0]), share_of(1, [0, 1]), share_of(2, [1]));
    queue.open(QuotaId(0), ledger(4, 100));
    queue.open_shared(QuotaId(1), ledger(10, 100));
    queue.apply(Claim::Counted, &own, &charge(4, 0));
    queue.apply(Claim::Counted, &shared, &charge(9, 0));
    queue.wait(PodId(1), key(1, 0, 1), 1, Arc::new(charge(2, 0)), Arc::clone(&both));
    queue.wait(PodId(2), key(2, 0, 2), 2, Arc::new(charge(1, 0)), Arc::clone(&shared));
    assert_eq!(released(queue.decide(IMPATIENT, ALL)), [2], "both are in the way of the first");
    queue.end(Claim::Counted, &own, &charge(2, 0));
    queue.end(Claim::Assumed, &shared, &charge(1, 0));
    queue.wait(PodId(3), key(3, 9, 3), 3, Arc::new(charge(1, 0)), Arc::clone(&shared));
    queue.wait(PodId(4), key(4, 9, 4), 4, Arc::new(charge(1, 0)), Arc::clone(&own));
    assert_eq!(released(queue.decide(IMPATIENT, ALL)), NOBODY, "now both keep room for it");
    queue.end(Claim::Counted, &shared, &charge(1, 0));
    assert_eq!(released(queue.decide(IMPATIENT, ALL)), [1]);
}

/// What runs may run for ever, and then no room is ever enough.
#[test]
fn a_turn_in_which_nothing_is_freed_is_over_and_the_next_one_begins() {
    let (mut queue, quotas) = used(7);
    let at = |now_ms| Patience { now_ms, limit_ms: 100 };
    queue.wait(PodId(1), key(1, 0, 1), 1, Arc::new(charge(10, 0)), Arc::clone(&quotas));
    let second = queue.wait(PodId(2), key(2, 0, 2), 2, Arc::new(charge(9, 0)), Arc::clone(&quotas));
    assert_eq!(released(queue.decide(at(200), ALL)), NOBODY);
    queue.wait(PodId(3), key(3, 9, 3), 200, Arc::new(charge(1, 0)), Arc::clone(&quotas));
    let behind = |queue: &mut ReleaseQueue, now_ms| {
        assert_eq!(released(queue.decide(at(now_ms), ALL)), NOBODY);
        let class = queue.wait(PodId(4), key(4, 9, 4), 200, Arc::new(charge(2, 0)), Arc::clone(&quotas));
        assert_eq!(released(queue.decide(at(now_ms), ALL)), NOBODY);
        let behind = queue.class(class).and_then(|class| class.reason()?.behind);
        assert!(queue.leave(class, &key(4, 9, 4)));
        behind
    };
    assert_eq!(behind(&mut queue, 200), Some(PodId(1)));
    queue.end(Claim::Counted, &quotas, &charge(1, 0));
    assert_eq!(queue.next_due_ms(), Some(301));
    assert_eq!(behind(&mut queue, 301), Some(PodId(1)), "one was freed for it");
    assert_eq!(queue.next_due_ms(), Some(504), "in twice the time since it began there is to be more");
    assert_eq!(behind(&mut queue, 504), Some(PodId(2)), "the next one's turn");
    assert!(queue.leave(second, &key(2, 0, 2)));
    assert_eq!(released(queue.decide(at(505), ALL)), [3], "the first one had its turn");
    queue.end(Claim::Assumed, &quotas, &charge(1, 0));
    assert_eq!(behind(&mut queue, 604), Some(PodId(1)), "when room is freed, the first has another one");
    assert_eq!(queue.next_due_ms(), Some(805), "twice as long without anything freed");
}

/// What runs cannot wait for its end.
#[test]
fn growth_is_refused_only_in_the_beginning_of_a_turn() {
    let (mut queue, quotas) = used(7);
    let at = |now_ms| Patience { now_ms, limit_ms: 100 };
    queue.wait(PodId(1), key(1, 0, 1), 1, Arc::new(charge(6, 0)), Arc::clone(&quotas));
    assert_eq!(released(queue.decide(at(200), ALL)), NOBODY);
    queue.end(Claim::Counted, &quotas, &charge(1, 0));
    assert_eq!(released(queue.decide(at(301), ALL)), NOBODY, "its turn goes on");
    let more = [(QuotaId(0), charge(1, 0))];
    let behind = queue.can_grow(&more, at(300)).map_err(|reason| reason.behind);
    assert_eq!(behind, Err(Some(PodId(1))));
    assert_eq!(queue.grow(ShareId(0), &more, at(301)), Ok(()));
}

/// As many different pods as a tenant likes: each decision looks at so many, and the pods of others are not behind them.
#[test]
fn a_long_queue_is_worked_off_in_slices_and_delays_no_other() {
    const SLICE: usize = 64;
    let mut queue = ReleaseQueue::default();
    let (long, short) = (quotas([0]), quotas([1]));
    queue.open(QuotaId(0), ledger(10_000, 10_000));
    queue.open(QuotaId(1), ledger(10, 10));
    queue.apply(Claim::Counted, &long, &charge(5_000, 5_000));
    // Each asks for too much of one of the two, and there is enough of either for another one.
    for pod in 0..5_000 {
        let much = 5_001 + i128::from(pod / 2);
        let needs = if pod % 2 == 0 { charge(much, 1) } else { charge(1, much) };
        queue.wait(PodId(pod), key(pod, 0, i64::from(pod)), 1, Arc::new(needs), Arc::clone(&long));
    }
    while queue.has_news() {
        assert_eq!(released(queue.decide(PATIENT, SLICE)), NOBODY);
    }
    queue.wait(PodId(9_998), key(9_998, 0, 9_998), 1, Arc::new(charge(40, 40)), Arc::clone(&long));
    assert_eq!(released(queue.decide(PATIENT, SLICE)), [9_998]);
    queue.end(Claim::Assumed, &long, &charge(40, 40));
    queue.wait(PodId(9_999), key(9_999, 0, 9_999), 1, Arc::new(charge(1, 1)), Arc::clone(&short));
    assert_eq!(released(queue.decide(PATIENT, SLICE)), [9_999], "while the other queue is swept");
    assert!(queue.has_news(), "which one decision has not done");
}

/// All ask for a place, and there is none: that is one look, not 5,000.
#[test]
fn a_queue_in_which_none_can_fit_is_not_searched() {
    let mut queue = ReleaseQueue::default();
    let quotas = quotas([0]);
    let of = |cpu| Charge::from_pairs([(Resource::Pods, Amount::ONE), (Resource::Cpu, units(cpu))]);
    queue.open(QuotaId(0), Ledger::new([(Resource::Pods, Amount::ONE), (Resource::Cpu, units(1_000_000))]));
    queue.apply(Claim::Counted, &quotas, &of(1));
    for pod in 0..5_000 {
        let charge = Arc::new(of(i128::from(pod) + 1));
        queue.wait(PodId(pod), key(pod, 0, i64::from(pod)), 1, charge, Arc::clone(&quotas));
    }
    while queue.has_news() {
        assert_eq!(released(queue.decide(PATIENT, ALL)), NOBODY);
    }
    queue.end(Claim::Counted, &quotas, &of(1));
    assert_eq!(released(queue.decide(PATIENT, 4)), [0]);
    assert!(!queue.has_news());
}

#[test]
fn what_ends_in_a_frozen_account_makes_no_room_until_it_thaws() {
    let mut queue = ReleaseQueue::default();
    queue.open(QuotaId(0), ledger(10, 100));
    let quotas = quotas([0]);
    queue.apply(Claim::Assumed, &quotas, &charge(8, 0));
    queue.freeze(QuotaId(0));
    queue.wait(PodId(1), key(1, 0, 1), 1, Arc::new(charge(6, 0)), Arc::clone(&quotas));
    queue.end(Claim::Assumed, &quotas, &charge(8, 0));
    assert!(queue.decide(PATIENT, ALL).iter().all(|decision| matches!(decision, Decision::Held(_))));
    assert!(queue.forget_in_flight(QuotaId(0)));
    assert!(matches!(queue.decide(PATIENT, ALL).as_slice(), [Decision::Release { .. }]));
    queue.revert(Claim::Assumed, &quotas, &charge(6, 0));
    assert_eq!(queue.ledger(QuotaId(0)), Some(&ledger(10, 100)), "an exact inverse, frozen or not");
}

/// What is recorded by another leader and not seen here is in flight on account of a share that is not known.
#[test]
fn shares_take_what_is_counted_and_assumed_and_nothing_that_is_in_flight() {
    let mut queue = ReleaseQueue::default();
    queue.open_shared(QuotaId(0), ledger(10, 100));
    let (one, other) = (share_of(1, [0]), share_of(2, [0]));
    queue.apply(Claim::Counted, &one, &charge(2, 0));
    queue.apply(Claim::Assumed, &other, &charge(3, 1));
    queue.confirm(&other, &charge(3, 1));
    queue.freeze(QuotaId(0));
    queue.end(Claim::Counted, &one, &charge(2, 0));
    let of = |queue: &ReleaseQueue, share| queue.shares(QuotaId(0)).unwrap().get(ShareId(share)).to_vec();
    assert_eq!(of(&queue, 1), []);
    assert_eq!(of(&queue, 2), [units(3), units(1)]);
    assert_eq!(queue.ledger(QuotaId(0)).unwrap().line(&Resource::Cpu).unwrap().used(), units(5));
    queue.arrive(&one, &charge(2, 0));
    assert_eq!(of(&queue, 1), [units(2), units(0)]);
    assert_eq!(queue.ledger(QuotaId(0)).unwrap().line(&Resource::Cpu).unwrap().used(), units(5));
    assert!(queue.shares(QuotaId(1)).is_none());
}

/// They are held for the same reason and are not told of each other.
#[test]
fn equal_pods_of_two_shares_are_of_two_classes() {
    let mut queue = ReleaseQueue::default();
    queue.open_shared(QuotaId(0), ledger(1, 100));
    let same = Arc::new(charge(2, 0));
    let classes = [1, 2]
        .map(|share| queue.wait(PodId(share), key(share, 0, 1), 1, Arc::clone(&same), share_of(share, [0])));
    assert_ne!(classes[0], classes[1]);
}

#[test]
fn who_is_let_go_is_charged_beyond_the_limit_and_nobody_else_goes_for_it() {
    let (mut queue, quotas) = used(9);
    let class = queue.wait(PodId(1), key(1, 0, 1), 1, Arc::new(charge(20, 0)), Arc::clone(&quotas));
    queue.wait(PodId(2), key(2, 0, 2), 2, Arc::new(charge(2, 0)), Arc::clone(&quotas));
    assert_eq!(released(queue.decide(PATIENT, ALL)), NOBODY);
    queue.pause(QuotaId(0));
    assert_eq!(queue.let_go(class, &key(1, 0, 1)), None, "its sums are incomplete");
    queue.resume(QuotaId(0));
    let decision = queue.let_go(class, &key(1, 0, 1));
    assert_eq!(released(decision.into_iter().collect()), [1]);
    queue.let_grow(ShareId::default(), &[(QuotaId(0), charge(1, 0))]);
    let used = |queue: &ReleaseQueue| queue.ledger(QuotaId(0)).unwrap().line(&Resource::Cpu).unwrap().used();
    assert_eq!((used(&queue), queue.held(QuotaId(0))), (units(30), 1));
    assert_eq!(released(queue.decide(PATIENT, ALL)), NOBODY, "there is less room than before");
    queue.audit_queue().unwrap();
}

#[test]
fn who_waits_is_counted_by_reason_and_the_oldest_is_known() {
    const ALL_REASONS: [WaitReason; 4] =
        [WaitReason::NotLookedAt, WaitReason::Full, WaitReason::RoomKept, WaitReason::NeverFits];
    let (mut queue, quotas) = used(8);
    let counts = |queue: &ReleaseQueue| ALL_REASONS.map(|reason| queue.waiting_for(reason));
    let wait = |queue: &mut ReleaseQueue, pod, created, cpu| {
        queue.wait(PodId(pod), key(pod, 0, created), 1, Arc::new(charge(cpu, 0)), Arc::clone(&quotas))
    };
    let eldest = wait(&mut queue, 1, 70, 6);
    let never = wait(&mut queue, 2, 50, 20);
    wait(&mut queue, 3, 60, 3);
    assert_eq!(counts(&queue), [3, 0, 0, 0]);
    assert!(released(queue.decide(PATIENT, ALL)).is_empty());
    assert_eq!((counts(&queue), queue.oldest(QuotaId(0))), ([0, 2, 0, 1], Some((50, PodId(2)))));
    assert!(queue.leave(never, &key(2, 0, 50)));
    assert_eq!((counts(&queue), queue.oldest(QuotaId(0))), ([0, 2, 0, 0], Some((60, PodId(3)))));
    queue.end(Claim::Counted, &quotas, &charge(8, 0));
    assert_eq!(released(queue.decide(PATIENT, ALL)).len(), 2);
    assert_eq!((counts(&queue), queue.oldest(QuotaId(0))), ([0; 4], None));
    assert!(!queue.leave(eldest, &key(1, 0, 70)));
    queue.audit_queue().unwrap();

    let (mut queue, quotas) = used(8);
    for (pod, cpu) in [(1, 6), (2, 1)] {
        queue.wait(
            PodId(pod),
            key(pod, 0, i64::from(pod)),
            u64::from(pod),
            Arc::new(charge(cpu, 0)),
            Arc::clone(&quotas),
        );
    }
    assert!(released(queue.decide(IMPATIENT, ALL)).is_empty(), "2 are free, and kept for the first");
    assert_eq!(counts(&queue), [0, 1, 1, 0]);
    queue.audit_queue().unwrap();
}
