//! A target that an opening has made room for is let in by quota admission.
//!
//! Nothing is promised when an answer is lost (then quota admission may not have been asked whether it knows), when a
//! restoring write of a dead process arrives late, and when an opening beside this one comes to nothing: its target goes on
//! without a window.

use crate::rules::Rules;
use crate::scenarios::{full, holds};
use crate::world::Budget;

/// kube-controller-manager has something to write, and API servers know of quotas when they come to it.
pub fn watched() -> Rules {
    let budget = Budget { tenants: 1, deletes: 1, ..Budget::default() };
    Rules { budget, lag: true, privileged_manager: false, no_refusal: true, ..full() }
}

/// Two targets of one namespace, each with a replica of its own.
pub fn two_watched() -> Rules {
    let budget = Budget { deletes: 1, ..Budget::default() };
    Rules { targets: vec![0, 0], additional: 4, replicas: 2, budget, ..watched() }
}

#[test]
fn a_target_is_let_in() {
    holds("let in", watched());
    let budget = Budget { resyncs: 1, ..watched().budget };
    holds("let in beside resyncs", Rules { budget, ..watched() });
    let budget = Budget { delays: 1, impatience: 1, ..watched().budget };
    holds("let in slowly", Rules { budget, ..watched() });
}

#[test]
fn a_target_is_let_in_by_two_quotas() {
    holds("let in by two quotas", Rules { quotas: vec![vec![(2, 2), (3, 2)]], ..watched() });
}

#[test]
fn a_target_is_let_in_although_an_administrator_changes_its_quota() {
    for edit in [1, 3] {
        let budget = Budget { edits: 1, ..watched().budget };
        holds("let in by a changed quota", Rules { budget, edit, ..watched() });
    }
}

#[test]
fn a_target_is_let_in_after_a_crash() {
    let budget = Budget { crashes: 1, ..Budget::default() };
    holds("let in after a crash", Rules { budget, replicas: 2, tries: 2, ..watched() });
}

#[test]
fn two_targets_are_let_in() {
    holds("two let in", Rules { budget: watched().budget, replicas: 1, ..two_watched() });
    holds("two let in by two replicas", two_watched());
    let quotas = vec![vec![(2, 2), (3, 2)]];
    holds("two let in by two quotas", Rules { quotas, replicas: 1, ..two_watched() });
}
