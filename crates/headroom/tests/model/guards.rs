//! Each guard of the protocol is needed: without it something is found to go wrong.

use stateright::{Checker, HasDiscoveries, Model};

use crate::admitted::{two_watched, watched};
use crate::rules::{Rules, Without};
use crate::scenarios::full;
use crate::world::Budget;

const TENANT: &str = "no tenant beyond the quota";
const FIT: &str = "a left raise is an exact fit";
const REFUSAL: &str = "no refusal after admit";

/// Without `guard` the checker finds that `property` does not hold; with it, it does.
#[track_caller]
fn is_needed(guard: Without, property: &'static str, rules: Rules) {
    // Which budget is overdrawn is seen in the step itself only.
    let consequences = guard != Without::TestOnSpecInRaise;
    let without = Rules { without: Some(guard), consequences, ..rules.clone() };
    let until = HasDiscoveries::AllOf([property].into());
    let checker = without.checker().threads(2).finish_when(until).spawn_bfs().join();
    let found = checker.discovery(property);
    let steps = found.map(|path| path.into_actions().len());
    eprintln!("without {guard:?}: {property}: {steps:?} steps, {} states", checker.unique_state_count());
    assert!(steps.is_some(), "nothing goes wrong without {guard:?}");
    let checker = rules.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    checker.assert_no_discovery(property);
}

fn one_tenant() -> Budget {
    Budget { tenants: 1, ..Budget::default() }
}

#[test]
fn the_proof_is_needed() {
    is_needed(Without::Proof, TENANT, Rules { budget: one_tenant(), ..full() });
    is_needed(Without::ProofEverywhere, TENANT, Rules { budget: one_tenant(), ..full() });
}

#[test]
fn the_drain_is_needed() {
    is_needed(Without::Drain, TENANT, Rules { budget: one_tenant(), ..full() });
}

#[test]
fn restoring_comes_before_unlocking() {
    is_needed(Without::RestoreBeforeUnlock, TENANT, Rules { budget: one_tenant(), ..full() });
    let budget = Budget { losses: 1, ..one_tenant() };
    is_needed(Without::RestoreBeforeGivingUp, TENANT, Rules { budget, ..full() });
}

#[test]
fn the_tests_of_the_patches_are_needed() {
    let budget = Budget { tenants: 3, deletes: 2, crashes: 1, ..Budget::default() };
    let quotas = vec![vec![(2, 4)]];
    is_needed(Without::TestOnUsed, FIT, Rules { quotas, budget, additional: 4, ..full() });
    let budget = Budget { edits: 1, ..one_tenant() };
    is_needed(Without::TestOnSpecInRaise, "raised within the budget", Rules { budget, ..full() });
    is_needed(Without::TestOnSpecInRestore, "never below spec", Rules { budget, edit: 3, ..full() });
}

#[test]
fn the_time_that_is_left_is_looked_at() {
    let budget = Budget { delays: 1, ..one_tenant() };
    is_needed(Without::TimeLeft, TENANT, Rules { budget, ..full() });
    let rules = Rules { budget: one_tenant(), ..full() };
    is_needed(Without::LookAtTimeBeforeClearing, TENANT, rules);
}

#[test]
fn the_sweep_restores() {
    let budget = Budget { crashes: 1, ..one_tenant() };
    is_needed(Without::RestoreAtSweep, "no stuck state", Rules { budget, ..full() });
}

#[test]
fn a_raise_is_an_exact_fit() {
    let budget = Budget { tenants: 3, crashes: 1, ..Budget::default() };
    is_needed(Without::ExactFit, FIT, Rules { quotas: vec![vec![(3, 2)]], budget, ..full() });
}

#[test]
fn only_the_own_window_is_deleted() {
    let budget = Budget { delays: 1, crashes: 1, ..one_tenant() };
    is_needed(Without::PreconditionOfDelete, TENANT, Rules { budget, replicas: 2, tries: 2, ..full() });
}

#[test]
fn a_raise_without_an_answer_is_remembered() {
    let budget = Budget { losses: 1, ..one_tenant() };
    let rules = Rules { budget, late_writes: true, ..full() };
    is_needed(Without::MemoryOfLostRaises, TENANT, rules);
}

#[test]
fn quota_admission_is_asked_whether_it_knows() {
    is_needed(Without::Mark, REFUSAL, watched());
    is_needed(Without::DrainOfMarks, REFUSAL, two_watched());
}

#[test]
fn nobody_else_writes_a_status() {
    is_needed(Without::KeptStatus, REFUSAL, watched());
}

#[test]
fn a_mark_does_not_keep_others_from_waiting() {
    is_needed(Without::LockBesideMarks, REFUSAL, Rules { lag: false, ..two_watched() });
}

#[test]
fn a_sweep_restores_nothing_of_a_later_window() {
    let budget = Budget { crashes: 1, ..Budget::default() };
    let rules = Rules { budget, replicas: 2, tries: 2, ..watched() };
    is_needed(Without::LookBeforeRestoring, REFUSAL, rules);
}
