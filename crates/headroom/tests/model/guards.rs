//! Each guard is needed: without it something is found to go wrong.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::properties::{
    EDIT, ENDED, ENDS, EXPLAINED, FORMULA, FROZEN, GRANT, LATE_THIEF, LEAK, NO_GRANT, POOL, REFUSAL, RESTED,
    SEEN, STUCK, TAKEN, THIEF, UNKNOWN,
};
use crate::replicas::replicas;
use crate::rules::{Rules, Without};
use crate::scenarios::{MOST_STATES, full, pool, two_sessions};
use crate::world::Budget;

/// Without `guard` the checker finds that `property` does not hold; with it, it does.
#[track_caller]
fn is_needed(guard: Without, property: &'static str, rules: Rules) {
    let without = Rules { without: Some(guard), ..rules.clone() };
    let until = HasDiscoveries::AllOf([property].into());
    let began = Instant::now();
    let checker = without.checker().threads(2).finish_when(until).target_state_count(MOST_STATES);
    let checker = checker.spawn_bfs().join();
    let steps = checker.discovery(property).map(|path| path.into_actions().len());
    let broken = checker.unique_state_count();
    assert!(steps.is_some(), "without {guard:?} it still holds in {broken} states: {property}");
    let checker = rules.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.target_state_count(MOST_STATES).spawn_bfs().join();
    checker.assert_no_discovery(property);
    let whole = checker.unique_state_count();
    eprintln!(
        "without {guard:?}: {steps:?} steps, {broken} states; with it {whole} states, {:.1?}: {property}",
        began.elapsed()
    );
}

#[test]
fn the_policy_on_charges_keeps_pods_in_flight_out() {
    is_needed(Without::ChargeGuard, THIEF, Rules { thieves: vec![(0, 1)], ..full() });
}

#[test]
fn the_policy_on_charges_keeps_pods_out_of_what_a_crash_left() {
    let budget = Budget { crashes: 1, ..Budget::default() };
    is_needed(Without::EndedGuard, ENDED, Rules { budget, thieves: vec![(0, 1)], ..full() });
}

#[test]
fn the_policy_on_charges_ends_by_the_clock() {
    is_needed(Without::ChargeClock, FROZEN, full());
}

#[test]
fn limits_of_a_marked_quota_stay() {
    let budget = Budget { resyncs: 1, ..Budget::default() };
    is_needed(Without::HardGuard, REFUSAL, Rules { budget, ..full() });
}

#[test]
fn the_policy_on_pods_keeps_later_pods_out() {
    is_needed(Without::Lock, LATE_THIEF, Rules { thieves: vec![(0, 2)], ..full() });
}

#[test]
fn the_raise_is_known_everywhere_before_the_target_is_let_in() {
    is_needed(Without::Settle, REFUSAL, full());
    is_needed(Without::Settle, LATE_THIEF, Rules { thieves: vec![(0, 2)], servers: 2, ..full() });
    is_needed(Without::SettleEverywhere, REFUSAL, Rules { servers: 2, ..full() });
}

#[test]
fn a_mark_is_unlike_all_others() {
    is_needed(Without::UniqueMark, REFUSAL, Rules { targets: vec![(0, 0), (0, 0)], ..two_sessions() });
}

#[test]
fn a_pool_is_looked_at_after_the_raise() {
    is_needed(Without::PoolAfterRaise, POOL, Rules { ticks: 0, ..pool() });
    is_needed(Without::ShownRaise, POOL, Rules { ticks: 0, ..pool() });
}

#[test]
fn a_raise_holds_before_the_watch_shows_it() {
    is_needed(Without::OwnWrites, REFUSAL, full());
}

#[test]
fn writes_hold_for_one_version() {
    let budget = Budget { frees: 1, ..Budget::default() };
    is_needed(Without::Swap, REFUSAL, Rules { budget, ..full() });
    let budget = Budget { edits: 1, ..Budget::default() };
    is_needed(Without::Swap, GRANT, Rules { budget, ..full() });
    is_needed(Without::SwapOfRestore, EDIT, Rules { budget, ..full() });
}

#[test]
fn a_raise_is_an_exact_fit() {
    // The policy on charges takes what fills the raise for the target's charge.
    is_needed(Without::ExactFit, REFUSAL, Rules { additional: 4, ..full() });
    is_needed(Without::ExactFit, LEAK, Rules { additional: 4, thieves: vec![(0, 4)], ..full() });
}

#[test]
fn only_what_was_raised_is_put_back() {
    let budget = Budget { keys: 1, ..Budget::default() };
    is_needed(Without::RaisedKeysOnly, UNKNOWN, Rules { budget, ..full() });
}

#[test]
fn a_raise_of_another_session_is_left_alone() {
    let budget = Budget { losses: 1, ..Budget::default() };
    is_needed(Without::OwnMark, REFUSAL, Rules { budget, ticks: 0, ..two_sessions() });
    is_needed(Without::EndOfMark, REFUSAL, full());
}

#[test]
fn what_is_left_is_swept() {
    let budget = Budget { crashes: 1, ..Budget::default() };
    is_needed(Without::Sweep, STUCK, Rules { budget, ..full() });
}

#[test]
fn the_lock_is_held_while_another_webhook_is_waited_for() {
    is_needed(Without::HoldForSiblings, REFUSAL, Rules { slow_sibling: true, ..full() });
    is_needed(Without::Renewal, REFUSAL, Rules { slow_sibling: true, ..full() });
}

#[test]
fn a_charge_is_not_taken_for_the_target() {
    is_needed(Without::Seeing, SEEN, Rules { thieves: vec![(0, 2)], ..full() });
}

#[test]
fn what_is_above_a_quota_has_to_be_explained() {
    let budget = Budget { leftovers: 1, ..Budget::default() };
    is_needed(Without::Account, EXPLAINED, Rules { budget, additional: 9, ticks: 0, ..two_sessions() });
    is_needed(
        Without::Account,
        EXPLAINED,
        Rules { thieves: vec![(0, 2)], additional: 9, tries: 2, ..full() },
    );
}

#[test]
fn thefts_do_not_add_up() {
    let rules = Rules { thieves: vec![(0, 2), (0, 2)], additional: 9, tries: 3, ticks: 0, ..full() };
    is_needed(Without::AccountAtAll, FORMULA, rules);
}

#[test]
fn a_target_that_came_by_another_replica_is_no_thief() {
    let budget = Budget { denials: 1, ..Budget::default() };
    let rules = Rules { budget, slow_sibling: true, ticks: 0, ..replicas() };
    is_needed(Without::AnyReplica, TAKEN, rules.clone());
    is_needed(Without::ReadPods, TAKEN, rules);
}

#[test]
fn a_namespace_rests_after_a_lock_in_vain() {
    let budget = Budget { impatience: 1, ..Budget::default() };
    is_needed(Without::Rests, RESTED, Rules { budget, ticks: 0, ..replicas() });
}

#[test]
fn a_rest_that_is_learnt_while_a_session_reads_holds_for_it() {
    let budget = Budget { impatience: 1, ..Budget::default() };
    is_needed(Without::RestsAfterRead, RESTED, Rules { budget, ticks: 0, ..replicas() });
}

#[test]
fn a_wait_for_api_servers_ends() {
    let budget = Budget { delays: 2, ..Budget::default() };
    is_needed(Without::SettleTime, ENDS, Rules { budget, ..full() });
}

#[test]
fn grants_are_read_before_the_raise() {
    let budget = Budget { revokes: 1, ..Budget::default() };
    is_needed(Without::LiveGrants, NO_GRANT, Rules { budget, ..full() });
}
