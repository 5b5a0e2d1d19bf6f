//! What an opening makes of quotas that it has only watched, and of a raise that is not known yet.

use super::*;

fn pool() -> Budget {
    let (source, additional) = ("a test".into(), amounts(100));
    Budget { grants: vec![Grant::Pool { source, additional, taken_elsewhere: Amounts::new() }] }
}

/// What was seen last is as good as what is read: a raise that rests on something else is not written.
#[test]
fn a_quota_that_is_remembered_needs_no_read() {
    let mut opening = Opening::new(need(5));
    let known = || quotas(vec![quota("full", 10, 10, 8), quota("roomy", 100, 100, 8)], LONG);
    let answers = vec![Answer::Locked, Answer::Proven(LONG), Answer::Drained, known(), Answer::Conflict];
    let asked = play(&mut opening, answers);
    assert_eq!(asked[3..], ["Recall", "Raise full to 13", "Read"]);
}

#[test]
fn what_is_not_written_is_read_unless_there_is_plenty() {
    let memories = [
        ("nothing is in the way", quotas(vec![quota("a", 10, 10, 4)], LONG)),
        ("another one is tight", quotas(vec![quota("a", 10, 10, 8), quota("b", 10, 10, 4)], LONG)),
        ("no budget is known", poor()),
        ("the lock ends soon", quotas(vec![quota("a", 10, 10, 8)], Duration::from_millis(1900))),
    ];
    for (why, memory) in memories {
        let mut opening = Opening::new(need(5));
        play(&mut opening, vec![Answer::Locked, Answer::Proven(LONG), Answer::Drained, memory]);
        assert_eq!(opening.command(), Command::Read, "{why}");
    }
}

#[test]
fn a_pool_is_only_drawn_on_by_whoever_knows_of_all_windows_before() {
    let mut opening = Opening::new(need(5));
    let full = || Answer::Quotas { quotas: vec![quota("a", 10, 10, 8)], budget: pool(), left: LONG };
    let answers = vec![
        Answer::Locked,
        Answer::Proven(LONG),
        Answer::Drained,
        full(),
        Answer::CaughtUp,
        full(),
        Answer::Raised,
    ];
    let asked = play(&mut opening, answers);
    assert_eq!(asked[3..], ["Recall", "Catchup", "Read", "Raise a to 13", "Settle a"]);
}

#[test]
fn a_raise_that_is_put_back_before_it_is_known_is_written_again() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("a", 10, 10, 8)], LONG),
        Answer::Raised,
        Answer::Lowered,
        quotas(vec![quota("a", 10, 10, 8)], LONG),
    ]);
    let asked = play(&mut opening, answers);
    assert_eq!(asked[6..], ["Settle a", "Read", "Raise a to 13"]);
}
