//! What head-room keeps to, whatever happens in whatever order.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::rules::Rules;
use crate::world::Budget;

/// Of larger models so many steps are looked at, the shortest histories first.
pub const MOST_STATES: usize = 400_000;

/// A full quota of 4, one API server, and a target that needs 2 more.
pub fn full() -> Rules {
    Rules {
        quotas: vec![vec![(4, 4)]],
        targets: vec![(0, 0)],
        need: 2,
        additional: 2,
        servers: 1,
        sweeps: 1,
        tries: 1,
        ticks: 2,
        edit: 3,
        ..Rules::default()
    }
}

/// Two migrations in one namespace, each judged by a process of its own.
pub fn two_sessions() -> Rules {
    Rules { targets: vec![(0, 0), (0, 1)], additional: 4, ..full() }
}

/// Two full namespaces, for one target of which the pool has room.
pub fn pool() -> Rules {
    Rules { quotas: vec![vec![(4, 4)], vec![(4, 4)]], targets: vec![(0, 0), (1, 1)], is_pool: true, ..full() }
}

/// Explores everything, or the beginning of it.
#[track_caller]
pub fn holds(name: &str, rules: Rules) {
    let began = Instant::now();
    let checker = rules.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.target_state_count(MOST_STATES).spawn_bfs().join();
    let states = checker.unique_state_count();
    let part = if checker.state_count() < MOST_STATES { "all" } else { "the first" };
    eprintln!("{name}: {part} {states} states in {:.1?}", began.elapsed());
    for property in rules.properties() {
        let found = checker.discovery(property.name);
        if property.expectation == stateright::Expectation::Sometimes {
            assert!(found.is_some(), "{name}: not once: {}", property.name);
        } else if let Some(path) = found {
            let last = path.last_state().clone();
            let actions = path.into_actions();
            let actions: Vec<String> = actions.iter().map(|action| format!("{action:?}")).collect();
            panic!("{name}: not true: {}\n{}\n{last:?}", property.name, actions.join("\n"));
        }
    }
}

#[test]
fn a_target_is_never_refused() {
    let budget = Budget { resyncs: 1, ..Budget::default() };
    holds("no faults, sync", Rules { budget, no_refusal: true, thieves: vec![(0, 1)], ticks: 0, ..full() });
    let budget = Budget { nudges: 1, ..Budget::default() };
    let rules = Rules { budget, thieves: vec![(0, 1)], no_refusal: true, ticks: 1, ..full() };
    holds("no faults, nudge", rules.clone());
    holds("no faults, two API servers", Rules { servers: 2, ..rules.clone() });
    holds("no faults, slow sibling", Rules { slow_sibling: true, ..rules.clone() });
    holds("no faults, room for one", Rules { quotas: vec![vec![(7, 4)]], ..rules });
}

#[test]
fn a_process_crashes_anywhere() {
    let budget = Budget { crashes: 1, ..Budget::default() };
    let rules = Rules { budget, thieves: vec![(0, 1), (0, 2)], ..full() };
    holds("crash", rules.clone());
    let budget = Budget { crashes: 1, resyncs: 1, ..Budget::default() };
    holds("crash and sync", Rules { budget, thieves: vec![(0, 1)], ..rules.clone() });
    let budget = Budget { crashes: 2, denials: 1, ..Budget::default() };
    holds(
        "crashes and denial",
        Rules { budget, thieves: vec![(0, 1)], slow_sibling: true, tries: 2, ..rules },
    );
}

#[test]
fn answers_are_lost_and_raises_come_late() {
    let budget = Budget { losses: 1, resyncs: 1, crashes: 1, ..Budget::default() };
    holds("losses", Rules { budget, thieves: vec![(0, 1)], ..full() });
    let budget = Budget { losses: 1, ..Budget::default() };
    holds(
        "losses, two quotas",
        Rules { budget, quotas: vec![vec![(4, 4), (5, 4)]], thieves: vec![(0, 1)], ..full() },
    );
}

#[test]
fn an_administrator_edits_anywhere() {
    for edit in [3, 6, 9] {
        let budget = Budget { edits: 1, ..Budget::default() };
        holds("administrator", Rules { budget, edit, thieves: vec![(0, 1)], ..full() });
    }
    let budget = Budget { edits: 1, crashes: 1, keys: 1, ..Budget::default() };
    holds("administrator, crash", Rules { budget, ..full() });
    let budget = Budget { revokes: 1, frees: 1, ..Budget::default() };
    holds("grant taken away", Rules { budget, thieves: vec![(0, 1)], ..full() });
}

#[test]
fn grants_are_read_after_a_wait_too() {
    let budget = Budget { revokes: 1, ..Budget::default() };
    holds("grant taken away, wait", Rules { budget, ..two_sessions() });
}

#[test]
fn the_last_quota_needs_no_raise_any_more() {
    let budget = Budget { edits: 1, ..Budget::default() };
    holds(
        "two quotas, administrator",
        Rules { budget, edit: 9, quotas: vec![vec![(4, 4), (5, 4)]], ticks: 0, ..full() },
    );
}

#[test]
fn another_webhook_is_slow_or_denies() {
    let budget = Budget { denials: 2, nudges: 1, ..Budget::default() };
    let rules = Rules { budget, thieves: vec![(0, 2)], slow_sibling: true, tries: 3, ..full() };
    holds("slow and denying sibling", rules);
}

#[test]
fn a_process_is_held_up() {
    let budget = Budget { delays: 2, impatience: 1, ..Budget::default() };
    holds("delays", Rules { budget, thieves: vec![(0, 1), (0, 2)], slow_sibling: true, ..full() });
    let budget = Budget { delays: 2, ..Budget::default() };
    holds("delays, two sessions", Rules { budget, ..two_sessions() });
}

#[test]
fn two_sessions_of_a_namespace_take_turns() {
    let budget = Budget { crashes: 1, ..Budget::default() };
    holds("two sessions", Rules { budget, thieves: vec![(0, 1)], ..two_sessions() });
    holds("two sessions, slow sibling", Rules { slow_sibling: true, ..two_sessions() });
    let one_process = Rules { targets: vec![(0, 0), (0, 0)], thieves: vec![(0, 1)], ..two_sessions() };
    holds("two sessions of a process", one_process);
}

#[test]
fn several_quotas_are_raised() {
    let budget = Budget { crashes: 1, ..Budget::default() };
    let quotas = vec![vec![(4, 4), (5, 4)]];
    holds("two quotas", Rules { quotas: quotas.clone(), budget, thieves: vec![(0, 1)], ticks: 2, ..full() });
    let budget = Budget { frees: 1, ..Budget::default() };
    holds("two quotas, a pod goes", Rules { quotas, budget, ticks: 0, ..full() });
    let quotas = vec![vec![(4, 4), (7, 4), (9, 4)]];
    let budget = Budget { nudges: 1, ..Budget::default() };
    holds("three quotas", Rules { quotas, budget, thieves: vec![(0, 1)], ticks: 1, ..full() });
}

/// A target that is left behind, or a pod that took the place of one, is not paid for by the next migration.
#[test]
fn what_is_above_a_quota_does_not_add_up() {
    let budget = Budget { leftovers: 1, ..Budget::default() };
    let rules = Rules { budget, additional: 9, ticks: 0, ..two_sessions() };
    holds("leftover", rules.clone());
    holds("leftover and thief", Rules { thieves: vec![(0, 2)], ..rules.clone() });
    let budget = Budget { leftovers: 1, edits: 1, ..Budget::default() };
    holds("leftover, limit lowered", Rules { budget, ..rules });
    let thieves = vec![(0, 2), (0, 2)];
    let rules = Rules { thieves, additional: 9, tries: 3, ticks: 0, ..full() };
    holds("two thieves", rules);
}

#[test]
fn namespaces_share_a_pool() {
    let budget = Budget { crashes: 1, ..Budget::default() };
    holds("pool", Rules { thieves: vec![(0, 2)], ticks: 0, ..pool() });
    holds("pool, crash", Rules { budget, ticks: 2, ..pool() });
    holds("pool, slow sibling", Rules { slow_sibling: true, ticks: 1, ..pool() });
}

#[test]
fn without_a_grant_nothing_is_locked() {
    let budget = Budget { edits: 1, resyncs: 1, ..Budget::default() };
    let rules = Rules { budget, thieves: vec![(0, 1)], additional: 0, tries: 2, ..full() };
    holds("no grant", rules.clone());
    holds("no grant, some room", Rules { quotas: vec![vec![(7, 4)]], ..rules });
}
