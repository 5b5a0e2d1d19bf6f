//! Whose turn it is.

use sluice_engine::ShareId;

use super::*;

fn namespace(number: u32) -> NamespaceId {
    NamespaceId::of_share(ShareId(number))
}

/// As at a start: all want one at once, and most of them for nobody who waits.
#[test]
fn namespaces_in_which_pods_wait_have_their_rounds_first_and_others_have_some() {
    let mut rounds = Rounds::default();
    rounds.configure(true);
    for number in 0..1_000 {
        rounds.want(namespace(number), number == 900);
    }
    // It is known later of this one, whose round is due by then.
    let mut begun: Vec<NamespaceId> = Vec::new();
    begun.extend(rounds.next(0));
    (940..990).for_each(|number| rounds.want(namespace(number), true));
    while begun.len() < 40 {
        let of = rounds.next(0).unwrap_or_else(|| namespace(u32::MAX));
        begun.push(of);
        rounds.begin_reading(of, 1, 0);
        rounds.begin(of, HashSet::new(), false, 0);
    }
    assert_eq!(begun.first(), Some(&namespace(900)));
    let pressing = begun.iter().filter(|of| (940..990).any(|number| **of == namespace(number))).count();
    assert_eq!(pressing, 35, "{begun:?}");
    begun.sort();
    begun.dedup();
    assert_eq!(begun.len(), 40, "each of them once");
}

/// One that is due for nobody who waits, and then for one who does, has one turn. What is left of it in the other queue is
/// nobody's.
#[test]
fn who_stands_in_both_queues_takes_no_turn_of_others() {
    let mut rounds = Rounds::default();
    rounds.configure(true);
    let go = |rounds: &mut Rounds| {
        let of = rounds.next(0).unwrap();
        rounds.begin_reading(of, 1, 0);
        rounds.begin(of, HashSet::new(), false, 0);
        of
    };
    (0..=50).for_each(|number| rounds.want(namespace(number), false));
    // All are due by then.
    assert_eq!(go(&mut rounds), namespace(0));
    (1..=40).for_each(|number| rounds.want(namespace(number), true));
    let begun: Vec<NamespaceId> = (0..50).map(|_| go(&mut rounds)).collect();
    let others: Vec<usize> =
        (0..50).filter(|at| (41..=50).any(|number| begun[*at] == namespace(number))).collect();
    assert_eq!(others[..4], [8, 17, 26, 35], "{begun:?}");
    assert!(rounds.next(0).is_none(), "each had one");
}

/// Nothing of its namespace goes before its round.
#[test]
fn who_is_held_until_its_round_does_not_stand_behind_those_of_whom_none_waits() {
    let mut rounds = Rounds::default();
    rounds.configure(true);
    (0..=50).for_each(|number| rounds.want(namespace(number), false));
    rounds.next(0);
    rounds.expire(namespace(49));
    assert_eq!(rounds.next(0), Some(namespace(49)));
}
