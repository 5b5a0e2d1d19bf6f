//! Conditions that several kinds of quota have.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use sluice_api::names;
use sluice_engine::Unenforced;
use sluice_engine::vm::Calculator;

use crate::explain::HeldTold;

/// The condition about keys that nothing counts, since this second of the epoch; none without a message, as there are no
/// such keys then.
pub(crate) fn uncounted_keys(message: &str, since_s: i64) -> Option<Condition> {
    let since = Timestamp::from_second(since_s).ok()?;
    (!message.is_empty()).then(|| Condition {
        type_: names::UNCOUNTED_KEYS.to_owned(),
        status: "True".to_owned(),
        reason: "NotEnforced".to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(since),
        observed_generation: None,
    })
}

/// The condition about pods that wait, since this second of the epoch.
pub(crate) fn pods_held(told: &HeldTold, since_s: i64) -> Option<Condition> {
    Some(Condition {
        type_: names::PODS_HELD.to_owned(),
        status: "True".to_owned(),
        reason: "QuotaExceeded".to_owned(),
        message: told.message.clone(),
        last_transition_time: Time(Timestamp::from_second(since_s).ok()?),
        observed_generation: None,
    })
}

/// The condition about pods that are not limited, since this second of the epoch.
pub(crate) fn not_enforced(told: &Unenforced, since_s: i64) -> Option<Condition> {
    Some(Condition {
        type_: names::ENFORCED.to_owned(),
        status: "False".to_owned(),
        reason: told.reason.to_owned(),
        message: told.message.clone(),
        last_transition_time: Time(Timestamp::from_second(since_s).ok()?),
        observed_generation: None,
    })
}

/// The condition about pods that run without an answer of evaluators, since this second of the epoch.
pub(crate) fn unevaluated(message: &str, since_s: i64) -> Option<Condition> {
    Some(Condition {
        type_: names::EVALUATED.to_owned(),
        status: "False".to_owned(),
        reason: "NotEvaluated".to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(Timestamp::from_second(since_s).ok()?),
        observed_generation: None,
    })
}

/// The condition that says how VMs are counted, with the status that it has since this second of the epoch.
pub(crate) fn virtual_machines(calculator: Calculator, since_s: i64) -> Option<Condition> {
    Some(Condition {
        type_: names::VIRTUAL_MACHINES.to_owned(),
        status: machines_status(calculator).to_owned(),
        reason: calculator.name().to_owned(),
        message: calculator.explanation().to_owned(),
        last_transition_time: Time(Timestamp::from_second(since_s).ok()?),
        observed_generation: None,
    })
}

/// Whether VMs are counted in place of their pods, as the status of a condition.
pub(crate) const fn machines_status(calculator: Calculator) -> &'static str {
    if calculator.counts_machines() { "True" } else { "False" }
}
