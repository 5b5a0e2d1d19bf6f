//! The admission policy that keeps pauses for administrators (`docs/pause.md`): whoever may write a Namespace, as tenants do
//! on some platforms, may not have its quotas paused. Who may write the `AAQ` may.
//!
//! CEL knows no present moment, so that a pause is too long is found by the controller, which ignores it and says so.

use serde_json::{Value, json};
use sluice_api::{HIGHEST_PAUSE_RATE, LONGEST_PAUSE, names};

use crate::expressions::administers;
use crate::policy::{AdmissionPolicy, VALIDATING, binding, judge, policy, rule};

/// The form of RFC 3339.
const TIME: &str = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\
    T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
/// From 1 to 500.
const RATE: &str = "^([1-9][0-9]?|[1-4][0-9][0-9]|500)$";

/// Annotations of a pause are set by those who may update the `AAQ`, and are what they should be. Who may write the object
/// may take them away, which ends the pause.
pub(crate) fn pause() -> AdmissionPolicy {
    let (until, rate) = (names::PAUSED_ANNOTATION, names::PAUSE_RATE_ANNOTATION);
    let hours = LONGEST_PAUSE.as_hours();
    let validations = vec![
        validation(
            &format!(
                "request.kind.kind != 'Namespace' || !({} || {}) || {}",
                is_set(until),
                is_set(rate),
                administers()
            ),
            &format!(
                "metadata.annotations[{until}] lets pods go without room in their quotas: have an administrator set it, who \
                 may update {}.{}",
                names::AAQS,
                names::GROUP
            ),
        ),
        validation(
            &format!("!{} || {}.matches('{TIME}')", is_set(until), value("object", until)),
            &format!(
                "metadata.annotations[{until}] is not the time when the pause ends: write it in the form of RFC 3339, like \
                 2026-01-02T15:04:05Z, at most {hours} hours ahead"
            ),
        ),
        validation(
            &format!("!{} || {}.matches('{RATE}')", is_set(rate), value("object", rate)),
            &format!(
                "metadata.annotations[{rate}] is not how many waiting pods go in a second: write a number from 1 to \
                 {HIGHEST_PAUSE_RATE}, or leave it out"
            ),
        ),
    ];
    let writes = ["CREATE", "UPDATE"];
    let rules = [
        // Annotations are written by way of the subresources too.
        rule("", &writes, &["namespaces", "namespaces/status", "namespaces/finalize"], "Cluster"),
        rule(names::GROUP, &writes, &[names::AAQS], "Cluster"),
    ];
    let mut policy = policy(VALIDATING, names::PAUSE_POLICY, "Fail", &rules);
    judge(&mut policy, &[], validations);
    let binding = binding(VALIDATING, names::PAUSE_POLICY);
    AdmissionPolicy { name: names::PAUSE_POLICY, mutates: false, policy, binding }
}

fn validation(expression: &str, message: &str) -> Value {
    json!({ "expression": expression, "message": message, "reason": "Forbidden" })
}

/// CEL: an annotation, empty if it is not there.
fn value(object: &str, annotation: &str) -> String {
    format!("{object}.metadata.?annotations[?'{annotation}'].orValue('')")
}

/// CEL: the request sets the annotation, or changes it.
fn is_set(annotation: &str) -> String {
    let [now, before] = ["object", "oldObject"].map(|object| value(object, annotation));
    let is_there = format!("object.metadata.?annotations[?'{annotation}'].hasValue()");
    format!("({is_there} && (request.operation == 'CREATE' || {now} != {before}))")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_is_what_the_pattern_allows() {
        assert!(RATE.ends_with(&format!("|{HIGHEST_PAUSE_RATE})$")));
    }
}
