//! Sequences of commands and their outcomes, and what comes of them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use sluice_engine::headroom::{
    Account, AccountedPod, Amounts, Budget, Grant, MARK, NativeQuota, Need, Stake,
};
use sluice_engine::{Amount, Charge, Format, Quantity, Resource, ScopeFacts, Uid};

use super::*;

mod rests;

const NOW: i64 = 1_795_294_859_000;
const OWN: i64 = NOW + 10_123;
const FOREIGN: i64 = NOW + 9_555;

fn units(units: i64) -> Quantity {
    Quantity::from_units(units, Format::DecimalSi)
}

fn amounts(amount: i64) -> Amounts {
    Amounts::from([(Arc::from("memory"), units(amount))])
}

/// A quota of memory.
fn quota(name: &str, [spec, enforced, used]: [i64; 3]) -> NativeQuota {
    NativeQuota {
        spec_hard: amounts(spec),
        status_hard: amounts(enforced),
        used: amounts(used),
        ..NativeQuota::new(name, Uid::parse(name))
    }
}

fn marked(name: &str, amounts: [i64; 3], mark: i64) -> NativeQuota {
    let mut quota = quota(name, amounts);
    quota.status_hard.insert(MARK.into(), units(mark));
    quota
}

fn need(amount: i64) -> Need {
    let charge = Charge::from_pairs([(Resource::Memory, Amount::from(units(amount)))]);
    Need::new(charge, ScopeFacts::default())
}

fn unlimited() -> Budget {
    Budget { grants: vec![Grant::Unlimited { source: "all".into() }] }
}

fn snapshot(quotas: &[NativeQuota], budget: Budget) -> Snapshot {
    Snapshot { quotas: quotas.to_vec(), budget, account: Account::default(), now_ms: NOW, mark: OWN }
}

fn seen(quotas: &[NativeQuota]) -> Done {
    Done::Seen(snapshot(quotas, unlimited()))
}

fn word(command: &Command) -> String {
    match command {
        Command::Look(look) => format!("Look {look:?}"),
        Command::Raise { raise, mark } => {
            let keys: Vec<String> = raise.keys.iter().map(|key| key.to.to_string()).collect();
            format!("Raise {} to {} +{}", raise.quota, keys.join(","), mark - OWN)
        }
        Command::Settle(mark) => format!("Settle +{}", mark - OWN),
        Command::Stop(ending) => format!("Stop {}", ending.word()),
        other => format!("{other:?}"),
    }
}

/// Gives the outcomes one by one; returns what was asked for, the last one without an outcome.
fn play(session: &mut WindowSession, outcomes: impl IntoIterator<Item = Done>) -> Vec<String> {
    let mut asked = Vec::new();
    for outcome in outcomes {
        asked.push(word(&session.command()));
        session.on_done(outcome);
    }
    asked.push(word(&session.command()));
    asked
}

/// As [`play`], of a new session.
fn start(outcomes: impl IntoIterator<Item = Done>) -> Vec<String> {
    play(&mut WindowSession::new(need(5)), outcomes)
}

/// A session that has raised the quotas, all of which are full.
fn raised(quotas: &[NativeQuota]) -> WindowSession {
    let mut session = WindowSession::new(need(5));
    play(&mut session, [seen(quotas)]);
    play(&mut session, quotas.iter().map(|_| Done::Written));
    session
}

#[test]
fn a_target_of_a_full_quota_takes_one_raise_and_one_restore() {
    let full = [quota("a", [10, 10, 8])];
    let asked = start([
        seen(&full),
        Done::Written,
        Done::Settled,
        Done::LetIn,
        Done::Ended(Ending::Taken),
        Done::Written,
        Done::Ended(Ending::Entered),
    ]);
    assert_eq!(
        asked,
        [
            "Look Grants",
            "Raise a to 13 +0",
            "Settle +0",
            "LetIn",
            "Await",
            "Restore",
            "Confirm",
            "Stop entered"
        ]
    );
}

#[test]
fn nothing_is_written_where_it_does_not_help() {
    let none = |quotas: &[NativeQuota]| snapshot(quotas, Budget::default());
    let (full, tight, wide) =
        ([quota("a", [10, 10, 8])], [quota("a", [10, 10, 4])], [quota("a", [10, 10, 0])]);
    let at_once = |snapshot: &Snapshot| super::at_once(&need(5), snapshot).map(|ending| ending.word());
    assert_eq!([&snapshot(&wide, unlimited()), &none(&tight)].map(at_once), [Some("not_needed"); 2]);
    assert_eq!(at_once(&none(&full)), Some("not_enough"));
    assert_eq!([&snapshot(&tight, unlimited()), &snapshot(&full, unlimited())].map(at_once), [None; 2]);
    assert_eq!(
        at_once(&snapshot(&[marked("a", [10, 13, 0], FOREIGN)], unlimited())),
        None,
        "another one is let in"
    );
    assert_eq!(start([seen(&wide), Done::LetIn])[1..], ["LetIn", "Stop not_needed"]);
    let none = |quotas: &[NativeQuota]| Done::Seen(none(quotas));
    assert_eq!(
        start([none(&full), none(&full), Done::LetIn])[1..],
        ["Look Live", "LetIn", "Stop not_enough"]
    );
    let mut out = quota("a", [10, 10, 8]);
    out.opted_out = true;
    let out = [out];
    assert_eq!(start([seen(&out), seen(&out), Done::LetIn])[1..], ["Look Live", "LetIn", "Stop refused"]);
    let unproven = Done::Ended(Ending::Unproven("no".into()));
    assert_eq!(start([unproven, Done::LetIn]), ["Look Grants", "LetIn", "Stop unproven"]);
}

#[test]
fn what_is_above_the_quota_has_to_be_explained() {
    let above = [quota("a", [10, 10, 15])];
    let pod = |name: &str, stake: Stake| AccountedPod {
        name: name.into(),
        since: 0,
        charge: need(5).charge,
        facts: ScopeFacts::default(),
        stake,
    };
    let seen = |pods: &[AccountedPod], is_complete: bool| {
        let account = Account { pods: pods.to_vec(), is_complete };
        Done::Seen(Snapshot { account, ..snapshot(&above, unlimited()) })
    };
    let migrating = [pod("target", Stake::Passes(need(5).charge))];
    assert_eq!(start([seen(&migrating, false)])[1], "Raise a to 20 +0");
    // The watch of pods may be late, so all pods are asked for.
    let zombie =
        [pod("vm", Stake::Runs(Charge::default())), pod("vm-2", Stake::Stays), pod("zombie", Stake::Stays)];
    assert_eq!(start([seen(&[], false), seen(&migrating, true)])[1..], ["Look Live", "Raise a to 20 +0"]);
    let mut session = WindowSession::new(need(5));
    let asked = play(&mut session, [seen(&[], false), seen(&zombie, true), Done::LetIn]);
    assert_eq!(asked[1..], ["Look Live", "LetIn", "Stop refused"]);
    let Command::Stop(Ending::Refused(why)) = session.command() else { panic!("it is refused") };
    assert!(why[0].to_string().contains("see pod vm-2, zombie, vm"), "{}", why[0]);
    // Where all pods were read in vain a moment ago, what the watch shows is enough to refuse.
    let asked = start([seen(&[], false), Done::Spared, Done::LetIn]);
    assert_eq!(asked[1..], ["Look Live", "LetIn", "Stop refused"]);
    // A quota that changed is read all the same: nothing has been refused.
    let mut session = WindowSession::new(need(5));
    play(&mut session, [seen(&[], false)]);
    assert!(session.confirms());
    play(&mut session, [seen(&migrating, true), Done::Conflict]);
    assert!(!session.confirms());
    // Without a grant nothing is raised above the spec, so nothing has to be explained.
    let bare = Done::Seen(snapshot(&[quota("a", [30, 10, 15])], Budget::default()));
    assert_eq!(start([bare, Done::LetIn])[1..], ["LetIn", "Stop not_needed"]);
}

#[test]
fn a_grant_that_was_withdrawn_a_moment_ago_counts() {
    let full = [quota("a", [10, 10, 8])];
    let none = || Done::Seen(snapshot(&full, Budget::default()));
    assert_eq!(start([none(), seen(&full)])[1..], ["Look Live", "Raise a to 13 +0"]);
    assert_eq!(start([none(), none(), Done::LetIn])[1..], ["Look Live", "LetIn", "Stop not_enough"]);
}

#[test]
fn room_that_is_tight_is_kept_for_the_target_where_something_is_granted() {
    let tight = [quota("a", [20, 20, 12])];
    let asked = start([seen(&tight)]);
    assert_eq!(asked[1], "Raise a to  +0", "a mark alone: nothing is ever below the spec");
    let both = [quota("a", [20, 20, 12]), quota("b", [10, 10, 8])];
    let asked = start([seen(&both), Done::Written]);
    assert_eq!(asked[1..], ["Raise a to  +1", "Raise b to 13 +0"]);
}

#[test]
fn of_several_quotas_the_last_carries_the_mark_that_is_asked_for() {
    let full = [quota("a", [10, 10, 8]), quota("b", [9, 9, 8])];
    let asked = start([seen(&full), Done::Written, Done::Written]);
    assert_eq!(asked[1..], ["Raise a to 13 +1", "Raise b to 13 +0", "Settle +0"]);
}

#[test]
fn a_quota_that_changed_is_planned_anew_and_one_that_is_raised_is_not_raised_again() {
    let full = [quota("a", [10, 10, 8]), quota("b", [9, 9, 8])];
    let now = [marked("a", [10, 13, 8], OWN + 1), quota("b", [9, 9, 7])];
    let asked = start([seen(&full), Done::Written, Done::Conflict, seen(&now), Done::Written]);
    assert_eq!(asked[2..], ["Raise b to 13 +0", "Look Live", "Raise b to 12 +0", "Settle +0"]);
    let mut session = WindowSession::new(need(5));
    let now = [quota("a", [30, 30, 8]), quota("b", [9, 9, 8])];
    let asked = play(&mut session, [seen(&full), Done::Conflict, seen(&now), Done::Written]);
    assert_eq!(asked[2..], ["Look Live", "Raise b to 13 +0", "Settle +0"]);
    let raised: Vec<&str> = session.raised().iter().map(|quota| &*quota.name).collect();
    assert_eq!(raised, ["b"], "the raise of a was not written, so it is not ended");
}

#[test]
fn without_the_mark_that_is_asked_for_nothing_is_settled() {
    let full = [quota("a", [10, 10, 8]), quota("b", [9, 9, 8])];
    let now = [marked("a", [10, 13, 8], OWN + 1), quota("b", [30, 30, 8])];
    let asked = start([seen(&full), Done::Written, Done::Conflict, seen(&now)]);
    assert_eq!(asked[3..], ["Look Live", "Restore"]);
    // A lost answer: the primary may have its mark, so no other quota gets the same.
    let full = [quota("a", [30, 30, 8]), quota("b", [9, 9, 8])];
    let now = [quota("a", [30, 30, 29]), marked("b", [9, 13, 8], OWN)];
    let asked = start([seen(&full), Done::Unanswered, seen(&now)]);
    assert_eq!(asked[2..], ["Look Live", "Restore"]);
}

#[test]
fn a_write_without_an_answer_is_looked_for() {
    let full = [quota("a", [10, 10, 8])];
    let arrived = [marked("a", [10, 13, 8], OWN)];
    let asked = start([seen(&full), Done::Unanswered, seen(&arrived)]);
    assert_eq!(asked[2..], ["Look Live", "Settle +0"]);
    let asked = start([seen(&full), Done::Unanswered, seen(&full)]);
    assert_eq!(asked[2..], ["Look Live", "Raise a to 13 +0"]);
}

#[test]
fn quotas_that_change_without_end_are_given_up() {
    let mut session = WindowSession::new(need(5));
    let full = |used| [quota("a", [10, 10, used])];
    play(&mut session, [seen(&full(8))]);
    for round in 0.. {
        match session.command() {
            Command::Look(_) => session.on_done(seen(&full(8 + round % 2))),
            Command::Raise { .. } => session.on_done(Done::Conflict),
            Command::Restore => session.on_done(Done::Written),
            Command::LetIn => session.on_done(Done::LetIn),
            Command::Stop(ending) => {
                assert_eq!(ending, Ending::Overtaken);
                break;
            }
            other => panic!("{other:?}"),
        }
        assert!(round < 50, "a hot loop");
    }
}

#[test]
fn another_session_is_waited_for_and_what_a_dead_one_left_is_ended_first() {
    let held = [marked("a", [10, 13, 8], FOREIGN)];
    let asked = start([seen(&held), Done::Ended(Ending::Busy), Done::LetIn]);
    assert_eq!(asked[1..], ["WaitForOther", "LetIn", "Stop busy"]);
    let asked = start([seen(&held), Done::Ended(Ending::Resting), Done::LetIn]);
    assert_eq!(asked[1..], ["WaitForOther", "LetIn", "Stop resting"]);
    let full = [quota("a", [10, 10, 8])];
    let asked = start([seen(&held), Done::Free, seen(&full)]);
    assert_eq!(asked[1..], ["WaitForOther", "Look Live", "Raise a to 13 +0"]);
    let over = [marked("a", [10, 13, 8], NOW - 1)];
    let mut session = WindowSession::new(need(5));
    let asked = play(&mut session, [seen(&over), Done::Written, seen(&full)]);
    assert_eq!(asked[1..], ["Clear", "Look Live", "Raise a to 13 +0"]);
    assert!(session.raised().iter().any(|quota| &*quota.name == "a"));
}

#[test]
fn a_refused_write_restores_what_was_raised_before() {
    let full = [quota("a", [10, 10, 8]), quota("b", [9, 9, 8])];
    let mut session = WindowSession::new(need(5));
    let refused = Done::Refused("no".into());
    let asked = play(&mut session, [seen(&full), Done::Written, refused, Done::Written, Done::LetIn]);
    assert_eq!(asked[3..], ["Restore", "LetIn", "Stop forbidden"]);
}

#[test]
fn what_is_not_known_everywhere_is_taken_back_before_the_target_goes_on() {
    let mut session = raised(&[quota("a", [10, 10, 8])]);
    let asked = play(&mut session, [Done::Ended(Ending::Unproven("no".into())), Done::Written, Done::LetIn]);
    assert_eq!(asked, ["Settle +0", "Restore", "LetIn", "Stop unproven"]);
}

#[test]
fn of_two_that_share_a_pool_the_later_gives_way() {
    let pool = |taken: i64| Budget {
        grants: vec![Grant::Pool {
            source: "p".into(),
            additional: amounts(3),
            taken_elsewhere: amounts(taken),
            per_namespace: Amounts::new(),
        }],
    };
    let after = [marked("a", [10, 13, 8], OWN)];
    let full = [quota("a", [10, 10, 8])];
    let seen = |taken| Done::Seen(snapshot(&full, pool(taken)));
    let later = |taken| Done::Seen(snapshot(&after, pool(taken)));
    let asked = start([seen(0), Done::Written, Done::Settled, later(0)]);
    assert_eq!(asked[2..], ["Settle +0", "Look Raised", "LetIn"]);
    let mut session = WindowSession::new(need(5));
    let outcomes = [seen(0), Done::Written, Done::Settled, later(1), Done::Written, Done::LetIn];
    let asked = play(&mut session, outcomes);
    assert_eq!(asked[3..], ["Look Raised", "Restore", "LetIn", "Stop not_enough"]);
    let Command::Stop(Ending::NotEnough(lacking)) = session.command() else { panic!("it gave way") };
    let said = lacking.iter().map(|one| (one.need, one.taken, one.missing));
    assert_eq!(said.collect::<Vec<_>>(), [(units(5), units(1), units(1))], "what it lacks without its raise");
}

#[test]
fn a_lock_is_renewed_once_while_other_webhooks_think() {
    let mut session = raised(&[quota("a", [10, 10, 8])]);
    let asked = play(
        &mut session,
        [Done::Settled, Done::LetIn, Done::Closing, Done::Written, Done::Closing, Done::Written],
    );
    assert_eq!(asked[2..], ["Await", "Renew", "Await", "Restore", "Stop not_seen"]);
    assert!(session.is_own(OWN + RENEWAL_MS) && session.is_own(OWN + 1) && !session.is_own(OWN + 2));
    let mut session = raised(&[quota("a", [10, 10, 8])]);
    let asked = play(
        &mut session,
        [
            Done::Settled,
            Done::LetIn,
            Done::Closing,
            Done::Written,
            Done::Ended(Ending::Entered),
            Done::Written,
        ],
    );
    assert_eq!(asked[3..], ["Renew", "Await", "Restore", "Stop entered"]);
}

#[test]
fn a_denied_target_and_a_thief_are_told_apart() {
    for (outcomes, ending) in [
        (vec![Done::Ended(Ending::Denied), Done::Written], "Stop denied"),
        (vec![Done::Ended(Ending::Taken), Done::Written, Done::Ended(Ending::NotSeen)], "Stop taken"),
        (vec![Done::Ended(Ending::Taken), Done::Written, Done::Ended(Ending::Denied)], "Stop denied"),
        (vec![Done::Ended(Ending::NotSeen), Done::Written], "Stop not_seen"),
    ] {
        let mut session = raised(&[quota("a", [10, 10, 8])]);
        let asked = play(&mut session, [Done::Settled, Done::LetIn].into_iter().chain(outcomes));
        assert_eq!(asked.last().map(String::as_str), Some(ending));
    }
}

#[test]
fn a_sweep_goes_by_the_mark() {
    let live = marked("a", [10, 13, 8], NOW + 1_500);
    assert_eq!(sweep(&live, NOW, 0), Left::Later(1_500));
    assert!(matches!(sweep(&live, NOW + 1_000, 0), Left::Now(_)), "whole seconds");
    let mut over = marked("a", [10, 13, 8], NOW - 1);
    over.spec_hard.insert("pods".into(), units(4));
    over.status_hard.insert("pods".into(), units(4));
    let Left::Now(restore) = sweep(&over, NOW, 0) else { panic!("it is over") };
    assert_eq!((restore.keys, restore.unmark), (amounts(10), true), "pods stay as they are");
    let unmarked = quota("a", [10, 13, 8]);
    assert_eq!(sweep(&unmarked, NOW, 300), Left::Later(700), "kube-controller-manager is usually quicker");
    assert!(matches!(sweep(&unmarked, NOW, 1_000), Left::Now(restore) if !restore.unmark));
    assert_eq!(
        sweep(&quota("a", [10, 9, 8]), NOW, 5_000),
        Left::Nothing,
        "a status below the spec is no raise"
    );
    let mut own_limit = marked("a", [10, 10, 8], 5);
    own_limit.spec_hard.insert(MARK.into(), units(5));
    assert_eq!(sweep(&own_limit, NOW, 5_000), Left::Nothing, "a limit on the key itself");
}
