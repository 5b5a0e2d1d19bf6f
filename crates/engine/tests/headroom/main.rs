//! Head-room with numbers from the field, and with hostile ones.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

#[path = "../common/headroom.rs"]
mod common;
#[path = "../common/mod.rs"]
mod pods;

mod accounts;
mod budgets;
mod growths;
mod raises;
mod refusals;

use std::sync::Arc;

use common::{admit, amounts, need, quantity, quota, raise, restore, texts};
use sluice_engine::headroom::{
    Budget, Grant, NativeQuota, Need, Plan, Raise, Refusal, Shortage, need_of, plan, reserve, sentence,
    sum_of_vmmrqs,
};
use sluice_engine::scope::{Scope, ScopeRequirement};
use sluice_engine::{ChargeRules, Format, Quantity, ScopeFacts, Scopes};

const RULES: ChargeRules = ChargeRules::for_minor(36);

fn unlimited() -> Budget {
    Budget { grants: vec![Grant::Unlimited { source: "HeadroomPolicy all".into() }] }
}

fn vmmrq(additional: &[(&str, &str)]) -> Budget {
    let source = "VirtualMachineMigrationResourceQuota a".into();
    Budget { grants: vec![Grant::Amounts { source, additional: amounts(additional), percent: None }] }
}

fn raises(plan: Plan) -> Vec<Raise> {
    match plan {
        Plan::Raise(raises) => raises,
        other => panic!("a raise was expected: {other:?}"),
    }
}

/// What a raise sets, as `key=amount`.
fn set(raise: &Raise) -> Vec<String> {
    raise.keys.iter().map(|raised| format!("{}={}", raised.key, raised.to)).collect()
}

fn shortages(plan: Plan) -> Vec<Shortage> {
    match plan {
        Plan::NotEnough(shortages) => shortages,
        other => panic!("a shortage was expected: {other:?}"),
    }
}

fn refusals(plan: Plan) -> Vec<String> {
    match plan {
        Plan::Refused(refusals) => refusals.iter().map(ToString::to_string).collect(),
        other => panic!("a refusal was expected: {other:?}"),
    }
}

/// Lets the pod in by a window, or without one, and returns what was enforced while it got in.
fn migrate(quotas: &mut [NativeQuota], need: &Need, budget: &Budget) -> Vec<Vec<String>> {
    match plan(need, quotas, budget) {
        Plan::Fits { .. } => {}
        decided => raise(quotas, &raises(decided)),
    }
    let enforced = quotas.iter().map(|quota| texts(&quota.status_hard)).collect();
    assert!(matches!(plan(need, quotas, &Budget::default()), Plan::Fits { .. }));
    admit(quotas, need);
    restore(quotas);
    enforced
}
