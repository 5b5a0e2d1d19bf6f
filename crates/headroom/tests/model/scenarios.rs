//! What the protocol keeps to, whatever happens in whatever order.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::rules::Rules;
use crate::world::Budget;

/// A full quota of 2, one replica, and a target that needs 2 more.
pub fn full() -> Rules {
    Rules {
        quotas: vec![vec![(2, 2)]],
        targets: vec![0],
        need: 2,
        additional: 2,
        replicas: 1,
        tries: 1,
        edit: 1,
        privileged_manager: true,
        no_stuck: true,
        ..Rules::default()
    }
}

/// Explores everything.
#[track_caller]
pub fn holds(name: &str, rules: Rules) {
    let began = Instant::now();
    let checker = rules.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    eprintln!("{name}: {} states in {:?}", checker.unique_state_count(), began.elapsed());
    checker.assert_properties();
}

#[test]
fn a_replica_crashes_anywhere() {
    let budget = Budget { tenants: 2, deletes: 1, crashes: 1, ..Budget::default() };
    holds("crash", Rules { budget, lag: true, late_writes: true, ..full() });
}

#[test]
fn two_replicas_crash_and_take_over() {
    let budget = Budget { tenants: 1, crashes: 2, ..Budget::default() };
    holds("take-over", Rules { budget, replicas: 2, tries: 2, late_writes: true, ..full() });
}

#[test]
fn answers_are_lost() {
    let budget = Budget { tenants: 1, deletes: 1, crashes: 1, losses: 2, ..Budget::default() };
    holds("losses", Rules { budget, ..full() });
}

#[test]
fn an_administrator_changes_and_creates_anew() {
    for edit in [1, 3, 5] {
        let budget =
            Budget { tenants: 1, edits: 1, recreations: 1, resyncs: 1, crashes: 1, ..Budget::default() };
        holds("administrator", Rules { budget, edit, ..full() });
    }
}

#[test]
fn an_opening_is_slow_or_not_waited_for() {
    let budget = Budget { tenants: 1, deletes: 1, delays: 1, impatience: 1, ..Budget::default() };
    holds("delays", Rules { budget, lag: true, ..full() });
}

#[test]
fn two_targets_enter_one_after_the_other() {
    let budget = Budget { tenants: 1, deletes: 1, ..Budget::default() };
    let two = Rules { targets: vec![0, 0], additional: 4, replicas: 2, ..full() };
    holds("two targets", Rules { budget, ..two.clone() });
    let budget = Budget { crashes: 1, ..Budget::default() };
    holds("two targets and a crash", Rules { budget, ..two });
}

#[test]
fn two_quotas_are_raised_and_one_is_not() {
    let budget = Budget { tenants: 1, losses: 1, crashes: 1, ..Budget::default() };
    holds("two quotas", Rules { quotas: vec![vec![(2, 2), (3, 2), (9, 2)]], budget, ..full() });
}

#[test]
fn a_budget_that_is_too_small_raises_nothing() {
    let budget = Budget { tenants: 1, crashes: 1, deletes: 2, ..Budget::default() };
    let rules = Rules { additional: 1, budget, ..full() };
    holds("small budget", rules);
}

/// Between policy and queue other webhooks run. A pod that was there while the queue was drained can take the target's
/// room, but no more.
#[test]
fn a_pod_between_policy_and_queue_takes_the_targets_room_at_most() {
    let budget = Budget { tenants: 2, deletes: 1, crashes: 1, ..Budget::default() };
    holds("gap", Rules { budget, gap: true, ..full() });
}

fn pool() -> Rules {
    let quotas = vec![vec![(2, 2)], vec![(2, 2)]];
    Rules { quotas, targets: vec![0, 1], replicas: 2, additional: 2, is_pool: true, ..full() }
}

#[test]
fn two_namespaces_share_a_pool() {
    let budget = Budget { tenants: 1, ..Budget::default() };
    holds("pool", Rules { budget, ..pool() });
}

#[test]
fn two_namespaces_that_fill_up_share_a_pool() {
    let budget = Budget { tenants: 2, ..Budget::default() };
    let quotas = vec![vec![(2, 1)], vec![(2, 1)]];
    holds("pool that fills up", Rules { budget, quotas, need: 1, additional: 1, ..pool() });
}

#[test]
fn a_raise_arrives_late() {
    let budget = Budget { tenants: 1, losses: 1, edits: 1, resyncs: 1, ..Budget::default() };
    holds("late raise", Rules { budget, late_writes: true, ..full() });
}

#[test]
fn one_of_two_raises_arrives_late() {
    let budget = Budget { losses: 1, edits: 1, ..Budget::default() };
    let quotas = vec![vec![(2, 2), (3, 2)]];
    holds("late raise of two", Rules { quotas, budget, late_writes: true, ..full() });
}
