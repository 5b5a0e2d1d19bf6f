use super::{MOST_WAITING, Turn, Turns};

fn turn(id: u64, namespace: &str, is_waiting: bool) -> Turn {
    Turn { id, uid: format!("pod-{id}").into(), namespace: namespace.into(), is_waiting }
}

fn of_pod(id: u64, uid: &str, namespace: &str) -> Turn {
    Turn { id, uid: uid.into(), namespace: namespace.into(), is_waiting: true }
}

/// Asks one after the other until nobody is left.
fn drain(turns: &mut Turns) -> Vec<u64> {
    let mut order = Vec::new();
    while let Some(id) = turns.next() {
        turns.answered(id, true);
        order.push(id);
    }
    order
}

#[test]
fn namespaces_take_turns_and_pods_that_wait_come_first() {
    let mut turns = Turns::new(4);
    for (id, namespace, is_waiting) in
        [(1, "a", false), (2, "a", true), (3, "a", true), (4, "a", true), (5, "b", true), (6, "b", false)]
    {
        assert_eq!(turns.push(turn(id, namespace, is_waiting)), None);
    }
    assert_eq!(drain(&mut turns), [2, 5, 3, 4, 1, 6]);
}

#[test]
fn pods_that_run_have_their_turn_however_many_wait() {
    let mut turns = Turns::new(1);
    turns.push(turn(100, "a", false));
    for id in 0..20 {
        turns.push(turn(id, "a", true));
    }
    let order = drain(&mut turns);
    assert_eq!(order.iter().position(|id| *id == 100), Some(8), "{order:?}");
}

#[test]
fn a_call_without_a_turn_needs_a_free_slot_that_no_question_waits_for() {
    let mut turns = Turns::new(2);
    turns.push(turn(1, "a", true));
    turns.push(turn(2, "a", true));
    assert_eq!([turns.next(), turns.next()], [Some(1), Some(2)]);
    turns.allow(1);
    turns.answered(1, true);
    assert!(!turns.take_slot(turn(3, "", false)), "one of one is taken");
    turns.answered(2, true);
    assert!(turns.take_slot(turn(3, "", false)));
    turns.push(turn(4, "a", true));
    assert_eq!(turns.next(), None);
    turns.withdrawn(3);
    assert!(!turns.take_slot(turn(3, "", false)), "another question waits");
    assert_eq!(turns.next(), Some(4));
}

#[test]
fn there_are_never_more_calls_than_slots() {
    let mut turns = Turns::new(3);
    for id in 0..10 {
        turns.push(turn(id, "a", true));
    }
    assert_eq!([turns.next(), turns.next(), turns.next(), turns.next()], [Some(0), Some(1), Some(2), None]);
    turns.abandon(0);
    assert_eq!(turns.next(), None, "a call that missed its deadline keeps its slot");
    turns.answered(1, true);
    assert_eq!(turns.next(), None, "and its namespace has had its half");
    turns.push(turn(10, "b", true));
    assert_eq!((turns.next(), turns.next()), (Some(10), None), "others have the rest");
    turns.answered(0, true);
    turns.answered(2, true);
    assert_eq!(turns.next(), Some(3), "a late answer frees the slot");
}

#[test]
fn pods_that_failed_share_one_slot() {
    let mut turns = Turns::new(4);
    for id in 0..4 {
        turns.push(of_pod(id, &format!("bad-{id}"), "a"));
        let asked = turns.next().expect("a slot");
        turns.answered(asked, false);
    }
    for id in 0..4 {
        turns.push(of_pod(10 + id, &format!("bad-{id}"), "a"));
        turns.push(of_pod(20 + id, &format!("good-{id}"), "b"));
    }
    let asked: Vec<u64> = std::iter::from_fn(|| turns.next()).collect();
    assert_eq!(asked, [10, 20, 21, 22]);
    turns.answered(20, true);
    assert_eq!(turns.next(), Some(23), "the one slot is taken");
    turns.answered(10, true);
    assert_eq!(turns.next(), Some(11), "the next of them");
    turns.push(of_pod(30, "bad-0", "a"));
    turns.answered(21, true);
    assert_eq!(turns.next(), Some(30), "with a good answer it is as all others");
}

#[test]
fn with_one_slot_failed_pods_and_others_alternate() {
    let mut turns = Turns::new(1);
    for id in 0..3 {
        turns.push(of_pod(id, &format!("bad-{id}"), "a"));
        let asked = turns.next().expect("a slot");
        turns.answered(asked, false);
    }
    for id in 0..3 {
        turns.push(of_pod(10 + id, &format!("bad-{id}"), "a"));
        turns.push(of_pod(20 + id, &format!("good-{id}"), "b"));
    }
    let mut order = Vec::new();
    while let Some(id) = turns.next() {
        turns.answered(id, id >= 20);
        order.push(id);
    }
    assert_eq!(order, [10, 20, 11, 21, 12, 22]);
}

#[test]
fn a_tenant_that_hangs_leaves_slots_to_others() {
    let mut turns = Turns::new(4);
    for id in 0..100 {
        turns.push(turn(id, "hangs", true));
    }
    let first: Vec<u64> = std::iter::from_fn(|| turns.next()).collect();
    assert_eq!(first.len(), 4, "nothing is known of it yet");
    first.iter().for_each(|id| turns.abandon(*id));
    turns.push(turn(200, "works", true));
    assert!(turns.next().is_none() && turns.is_stuck() && turns.live_flights() == 0);
    // The connection is ended.
    first.iter().for_each(|id| turns.answered(*id, false));
    assert_eq!(turns.next(), Some(4), "it was its turn");
    assert_eq!(turns.next(), Some(200));
    turns.abandon(4);
    for id in 201..300 {
        turns.answered(id - 1, true);
        turns.push(turn(id, "works", true));
        let asked: Vec<u64> = std::iter::from_fn(|| turns.next()).collect();
        assert!(asked.contains(&id), "asked at once, whatever hangs: {asked:?}");
        asked.iter().filter(|it| **it != id).for_each(|it| turns.abandon(*it));
    }
}

#[test]
fn the_namespace_with_the_most_gives_way() {
    let mut turns = Turns::new(4);
    let most = MOST_WAITING as u64;
    for id in 0..most {
        assert_eq!(turns.push(turn(id, "flood", true)), None);
    }
    assert_eq!(turns.push(turn(most, "other", false)), Some(most - 1));
    assert_eq!(turns.push(turn(most + 1, "flood", true)), Some(most + 1), "its own newest");
    assert_eq!(turns.len(), MOST_WAITING);
    assert_eq!(turns.take(|namespace| namespace == "flood").len(), MOST_WAITING - 1);
    assert_eq!((turns.len(), turns.next()), (1, Some(most)));
}
