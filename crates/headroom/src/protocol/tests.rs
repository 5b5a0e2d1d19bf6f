//! What an opening asks for, step by step.

use std::sync::Arc;
use std::time::Duration;

use sluice_engine::headroom::{Amounts, Budget, Grant, MARK, NativeQuota, Need};
use sluice_engine::{Amount, Charge, Format, Quantity, Resource, ScopeFacts, Uid};

use super::{Answer, Command, Ending, Opening, Theft};

mod memory;

const LONG: Duration = Duration::from_secs(4);

fn need(units: i64) -> Need {
    let amount = Amount::from(Quantity::from_units(units, Format::DecimalSi));
    Need::new(Charge::from_pairs([(Resource::Memory, amount)]), ScopeFacts::default())
}

fn amounts(units: i64) -> Amounts {
    Amounts::from([(Arc::from("requests.memory"), Quantity::from_units(units, Format::DecimalSi))])
}

/// With the mark of a raise.
fn marked(name: &str, spec: i64, hard: i64, used: i64) -> NativeQuota {
    let mut quota = quota(name, spec, hard, used);
    quota.status_hard.insert(MARK.into(), Quantity::ZERO);
    quota
}

fn quota(name: &str, spec: i64, hard: i64, used: i64) -> NativeQuota {
    NativeQuota {
        spec_hard: amounts(spec),
        status_hard: amounts(hard),
        used: amounts(used),
        ..NativeQuota::new(name, Uid::parse(name))
    }
}

fn unlimited() -> Budget {
    Budget { grants: vec![Grant::Unlimited { source: "a test".into() }] }
}

fn quotas(quotas: Vec<NativeQuota>, left: Duration) -> Answer {
    Answer::Quotas { quotas, budget: unlimited(), left }
}

/// Takes the answers and returns the words of the commands they answer, and the last one.
fn play(opening: &mut Opening, answers: Vec<Answer>) -> Vec<String> {
    let mut asked = Vec::new();
    for answer in answers {
        asked.push(word(&opening.command()));
        opening.take(answer);
    }
    asked.push(word(&opening.command()));
    asked
}

fn word(command: &Command) -> String {
    match command {
        Command::Raise(raise) if raise.keys.is_empty() => format!("Mark {}", raise.quota),
        Command::Raise(raise) => format!("Raise {} to {}", raise.quota, raise.keys[0].to),
        Command::Restore(quota) => format!("Restore {}", quota.name),
        Command::Settle(Some(marked)) => format!("Settle {}", marked.name),
        Command::Settle(None) => "Settle".to_owned(),
        Command::Stop(ending) => format!("Stop {}", ending.word()),
        other => format!("{other:?}"),
    }
}

/// Up to the reading of the quotas, by a process that remembers none.
fn locked() -> Vec<Answer> {
    vec![Answer::Locked, Answer::Proven(LONG), Answer::Drained, Answer::Failed("nothing is known".into())]
}

#[test]
fn a_target_enters_a_full_quota() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("full", 10, 10, 8), quota("roomy", 100, 100, 8)], LONG),
        Answer::Raised,
        Answer::Settled,
        Answer::Admitted,
        Answer::Seen,
        Answer::Restored(Some(quota("full", 10, 10, 13))),
        Answer::Unlocked,
    ]);
    let asked = play(&mut opening, answers);
    assert_eq!(
        asked,
        [
            "Lock",
            "Prove",
            "Drain",
            "Recall",
            "Read",
            "Raise full to 13",
            "Settle full",
            "Admit",
            "Await",
            "Restore full",
            "Unlock",
            "Stop entered"
        ]
    );
    assert_eq!(opening.thefts(), []);
}

#[test]
fn nothing_is_raised_without_proof() {
    for (answers, word) in [
        (vec![Answer::Locked, Answer::Failed("no".into())], "not_proven"),
        (vec![Answer::Locked, Answer::Proven(Duration::from_secs(1))], "overtaken"),
        (vec![Answer::Locked, Answer::Proven(LONG), Answer::Failed("no".into())], "not_proven"),
    ] {
        let mut opening = Opening::new(need(5));
        play(&mut opening, answers);
        let asked = play(&mut opening, vec![Answer::Unlocked, Answer::Admitted]);
        assert_eq!(asked, ["Unlock".to_owned(), "Admit".to_owned(), format!("Stop {word}")]);
        assert_eq!(opening.raises().count(), 0);
    }
}

#[test]
fn a_conflict_plans_again_from_what_is_there_now() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("a", 10, 10, 8), quota("b", 10, 10, 8)], LONG),
        Answer::Raised,
        Answer::Conflict,
        // A pod of b has ended, so that it has room; a is raised already.
        quotas(vec![quota("a", 10, 13, 8), quota("b", 10, 10, 1)], LONG),
        // b was to tell that both are known.
        Answer::Raised,
        Answer::Settled,
        Answer::Admitted,
        Answer::Seen,
        Answer::Restored(Some(quota("a", 10, 10, 13))),
        Answer::Restored(None),
        Answer::Unlocked,
    ]);
    let asked = play(&mut opening, answers);
    // b may have been raised: the answer said nothing certain.
    assert_eq!(asked[5..10], ["Raise a to 13", "Raise b to 13", "Read", "Mark b", "Settle b"]);
    assert_eq!(asked[12..], ["Restore a", "Restore b", "Unlock", "Stop entered"]);
}

#[test]
fn a_raise_without_an_answer_that_is_seen_to_have_arrived_is_one() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("a", 10, 10, 8)], LONG),
        Answer::Unanswered,
        quotas(vec![marked("a", 10, 13, 8)], LONG),
        Answer::Settled,
        Answer::Admitted,
        Answer::Seen,
        Answer::Restored(Some(quota("a", 10, 10, 13))),
    ]);
    let asked = play(&mut opening, answers);
    assert_eq!(asked[5..], ["Raise a to 13", "Read", "Settle a", "Admit", "Await", "Restore a", "Unlock"]);
}

#[test]
fn a_raise_that_may_still_arrive_finds_the_lock() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("a", 10, 10, 8)], LONG),
        Answer::Unanswered,
        quotas(vec![quota("a", 10, 10, 8)], LONG),
        Answer::Raised,
        Answer::Settled,
        Answer::Admitted,
        Answer::Seen,
        Answer::Restored(Some(quota("a", 10, 10, 13))),
    ]);
    let asked = play(&mut opening, answers);
    assert_eq!(asked[11..], ["Restore a", "Stop entered"], "no Unlock");
}

#[test]
fn quotas_that_change_without_end_are_given_up() {
    let mut opening = Opening::new(need(5));
    play(&mut opening, locked());
    for used in 1.. {
        match opening.command() {
            Command::Read => opening.take(quotas(vec![quota("a", 10, 10, 8 + used)], LONG)),
            Command::Raise(_) => opening.take(Answer::Conflict),
            Command::Restore(_) => break,
            other => panic!("{other:?}"),
        }
        assert!(used < 50, "a hot loop");
    }
    opening.take(Answer::Restored(None));
    opening.take(Answer::Unlocked);
    assert_eq!(opening.command(), Command::Admit, "the target is not held back");
    opening.take(Answer::Admitted);
    assert_eq!(opening.command(), Command::Stop(Ending::Overtaken));
}

#[test]
fn a_lock_that_ends_soon_raises_nothing() {
    let mut opening = Opening::new(need(5));
    play(&mut opening, locked());
    opening.take(quotas(vec![quota("a", 10, 10, 8)], Duration::from_millis(1900)));
    assert_eq!(opening.command(), Command::Unlock);
}

#[test]
fn without_budget_the_lock_is_given_back_and_the_quota_judges() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([poor(), Answer::BudgetRead, poor(), Answer::Unlocked, Answer::Admitted]);
    let asked = play(&mut opening, answers);
    assert_eq!(asked[5..], ["ReadBudget", "Read", "Unlock", "Admit", "Stop not_enough"]);
}

/// A full quota of a namespace that may take nothing beyond it, as far as is known.
fn poor() -> Answer {
    Answer::Quotas { quotas: vec![quota("a", 10, 10, 8)], budget: Budget::default(), left: LONG }
}

#[test]
fn a_budget_that_was_granted_a_moment_ago_counts() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([poor(), Answer::BudgetRead, quotas(vec![quota("a", 10, 10, 8)], LONG)]);
    let asked = play(&mut opening, answers);
    assert_eq!(asked[5..], ["ReadBudget", "Read", "Raise a to 13"]);
}

#[test]
fn a_forbidden_write_restores_what_was_raised_before() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("a", 10, 10, 8), quota("b", 10, 10, 8)], LONG),
        Answer::Raised,
        Answer::Forbidden("no".into()),
        Answer::Restored(Some(quota("a", 10, 10, 8))),
        Answer::Unlocked,
        Answer::Admitted,
    ]);
    let asked = play(&mut opening, answers);
    assert_eq!(asked[7..], ["Restore a", "Unlock", "Admit", "Stop forbidden"], "b is as it was");
}

#[test]
fn a_quota_that_was_raised_before_its_next_raise_is_forbidden_is_restored() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("a", 10, 10, 8)], LONG),
        Answer::Unanswered,
        quotas(vec![quota("a", 10, 11, 8)], LONG),
        Answer::Forbidden("no".into()),
    ]);
    let asked = play(&mut opening, answers);
    assert_eq!(asked.last().map(String::as_str), Some("Restore a"));
}

#[test]
fn what_cannot_be_restored_stays_locked_until_the_lock_ends() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("a", 10, 10, 8)], LONG),
        Answer::Raised,
        Answer::Settled,
        Answer::Admitted,
        Answer::NotSeen,
        Answer::Failed("no answer".into()),
    ]);
    let asked = play(&mut opening, answers);
    assert_eq!(asked[9..], ["Restore a", "Stop not_seen"], "no Unlock");
}

#[test]
fn a_quota_that_was_put_back_is_raised_again() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("a", 10, 10, 8)], LONG),
        Answer::Raised,
        Answer::Settled,
        Answer::Admitted,
        Answer::Lowered,
        quotas(vec![quota("a", 10, 10, 8)], LONG),
        Answer::Raised,
        Answer::Settled,
        Answer::Seen,
        Answer::Restored(Some(quota("a", 10, 10, 13))),
        Answer::Unlocked,
    ]);
    let asked = play(&mut opening, answers);
    assert_eq!(
        asked[8..],
        ["Await", "Read", "Raise a to 13", "Settle a", "Await", "Restore a", "Unlock", "Stop entered"]
    );
}

#[test]
fn a_quota_that_is_put_back_again_and_again_is_given_up() {
    let mut opening = Opening::new(need(5));
    play(&mut opening, locked());
    for round in 0.. {
        let answer = match opening.command() {
            Command::Read => quotas(vec![quota("a", 10, 10, 8)], LONG),
            Command::Raise(_) => Answer::Raised,
            Command::Settle(_) => Answer::Settled,
            Command::Admit => Answer::Admitted,
            Command::Await => Answer::Lowered,
            Command::Restore(_) => break,
            other => panic!("{other:?}"),
        };
        opening.take(answer);
        assert!(round < 100, "a hot loop");
    }
}

#[test]
fn growth_beyond_the_target_is_told() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("a", 10, 10, 8)], LONG),
        Answer::Raised,
        Answer::Settled,
        Answer::Admitted,
        Answer::NotSeen,
        // Not the target, and yet 4 more.
        Answer::Restored(Some(quota("a", 10, 10, 12))),
    ]);
    play(&mut opening, answers);
    let [Theft { quota, key }] = opening.thefts() else { panic!("{:?}", opening.thefts()) };
    assert_eq!((&*quota.name, &**key), ("a", "requests.memory"));
}

#[test]
fn another_window_is_waited_for_or_cleared_or_used() {
    let mut opening = Opening::new(need(5));
    let asked = play(
        &mut opening,
        vec![Answer::Held, Answer::Free, Answer::HeldExpired, Answer::Free, Answer::Held, Answer::TimeUp],
    );
    assert_eq!(asked, ["Lock", "WaitForOther", "Lock", "ClearOther", "Lock", "WaitForOther", "Admit"]);
    opening.take(Answer::Admitted);
    assert_eq!(opening.command(), Command::Stop(Ending::TimedOut));

    let mut woken = Opening::new(need(5));
    let room = || quotas(vec![marked("a", 10, 13, 8)], Duration::ZERO);
    let asked = play(&mut woken, vec![Answer::HeldForTarget, room(), Answer::Lowered, Answer::Free]);
    assert_eq!(asked, ["Lock", "Read", "Settle a", "WaitForOther", "Lock"], "it was put back");
    let asked = play(&mut woken, vec![Answer::HeldForTarget, room(), Answer::Settled]);
    assert_eq!(asked, ["Lock", "Read", "Settle a", "Admit"]);
    woken.take(Answer::Admitted);
    assert_eq!(woken.command(), Command::Stop(Ending::Covered));

    let mut larger = Opening::new(need(6));
    let asked =
        play(&mut larger, vec![Answer::HeldForTarget, quotas(vec![quota("a", 10, 13, 8)], Duration::ZERO)]);
    assert_eq!(asked, ["Lock", "Read", "WaitForOther"]);
}

#[test]
fn a_tight_quota_is_locked_and_not_raised() {
    let mut opening = Opening::new(need(5));
    let mut answers = locked();
    answers.extend([
        quotas(vec![quota("a", 10, 10, 4)], LONG),
        Answer::Admitted,
        Answer::Seen,
        Answer::Unlocked,
    ]);
    let asked = play(&mut opening, answers);
    assert_eq!(asked[5..], ["Admit", "Await", "Unlock", "Stop entered"]);
}
