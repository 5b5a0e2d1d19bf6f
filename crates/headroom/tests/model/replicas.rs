//! Two replicas of the webhook, and what stays of migrations.

use crate::rules::Rules;
use crate::scenarios::{full, holds, pool, two_sessions};
use crate::world::Budget;

/// A migration of a full namespace, about each attempt of which either of two replicas is asked.
pub fn replicas() -> Rules {
    Rules { roams: true, rests: true, sweeps: 2, tries: 2, ..full() }
}

/// The same of two migrations of one namespace.
fn two_migrations() -> Rules {
    Rules { targets: vec![(0, 0), (0, 0)], additional: 4, tries: 1, ..replicas() }
}

#[test]
fn either_replica_is_asked_about_an_attempt() {
    let budget = Budget { denials: 1, ..Budget::default() };
    holds("replicas, denial", Rules { budget, slow_sibling: true, ticks: 0, ..replicas() });
    let budget = Budget { impatience: 1, ..Budget::default() };
    holds("replicas, lock in vain", Rules { budget, ticks: 1, ..replicas() });
    holds("replicas, thief", Rules { thieves: vec![(0, 2)], ticks: 0, ..replicas() });
    let budget = Budget { denials: 2, ..Budget::default() };
    holds("replicas, slow sibling", Rules { budget, slow_sibling: true, tries: 3, ..replicas() });
}

#[test]
fn a_replica_crashes_beside_another_one() {
    let budget = Budget { crashes: 1, ..Budget::default() };
    holds("replicas, crash", Rules { budget, ..replicas() });
    holds("replicas, crash, two migrations", Rules { budget, ..two_migrations() });
    let budget = Budget { crashes: 1, resyncs: 1, losses: 1, ..Budget::default() };
    holds("replicas, crash, loss, sync", Rules { budget, thieves: vec![(0, 1)], ..replicas() });
    let budget = Budget { delays: 2, ..Budget::default() };
    holds("replicas, delays, two migrations", Rules { budget, ..two_migrations() });
}

#[test]
fn replicas_share_a_pool() {
    let rules = Rules { roams: true, rests: true, sweeps: 2, ticks: 0, ..pool() };
    holds("replicas, pool", rules.clone());
    let budget = Budget { crashes: 1, ..Budget::default() };
    holds("replicas, pool, crash", Rules { budget, ticks: 2, ..rules });
}

/// Machines that grow by KubeVirt's overhead, one after the other and at once, in a namespace that is full.
#[test]
fn nothing_but_overhead_stays() {
    let budget = Budget { moves: 2, ..Budget::default() };
    let grows = Rules { overhead: 1, additional: 9, budget, ticks: 0, ..two_sessions() };
    holds("overhead", grows.clone());
    holds("overhead, thief", Rules { thieves: vec![(0, 2)], ..grows.clone() });
    let budget = Budget { moves: 2, crashes: 1, ..Budget::default() };
    holds("overhead, replicas", Rules { budget, roams: true, rests: true, sweeps: 2, ticks: 2, ..grows });
    let budget = Budget { moves: 2, ..Budget::default() };
    holds("overhead, pool", Rules { overhead: 1, budget, additional: 3, ticks: 0, ..pool() });
}
