//! The admission policy that keeps pauses for administrators (`docs/pause.md`): whoever may write a Namespace, as tenants do
//! on some platforms, may not have its quotas paused. Who may write the `AAQ` may.
//!
//! CEL knows no present moment, so annotations say when a pause begins: how long it is can be judged then. A beginning that
//! is ahead is found by the controller, which ignores the pause and says so.

use serde_json::{Value, json};
use sluice_api::{HIGHEST_PAUSE_RATE, LONGEST_PAUSE, names};

use crate::expressions::administers;
use crate::policy::{AdmissionPolicy, VALIDATING, binding, judge, policy, rule};

/// The form of RFC 3339.
const TIME: &str = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\
    T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
/// From 1 to 500.
const RATE: &str = "^([1-9][0-9]?|[1-4][0-9][0-9]|500)$";

/// Annotations of a pause are set and changed by those who may update the `AAQ`, and are what they should be. Who may write
/// the object may take them away with the one that pauses, which ends the pause.
pub(crate) fn pause() -> AdmissionPolicy {
    let (until, rate) = (names::PAUSED_ANNOTATION, names::PAUSE_RATE_ANNOTATION);
    let since = names::PAUSED_SINCE_ANNOTATION;
    let hours = LONGEST_PAUSE.as_hours();
    let matters = |annotation: &str| {
        format!("({} && ({} || {}))", is_changed(annotation), is_there(annotation), is_there(until))
    };
    let validations = vec![
        validation(
            &format!(
                "request.kind.kind != 'Namespace' || !({}) || {}",
                [until, since, rate].map(matters).join(" || "),
                administers()
            ),
            &format!(
                "metadata.annotations[{until}] lets pods go without room in their quotas: have an administrator set or \
                 change it and what belongs to it, who may update {}.{}, or remove it",
                names::AAQS,
                names::GROUP
            ),
        ),
        validation(
            &format!(
                "!({} && ({} || {})) || ({}.matches('{TIME}') && {}.matches('{TIME}') && timestamp({}) - timestamp({}) <= \
                 duration('{hours}h'))",
                is_there(until),
                is_changed(until),
                is_changed(since),
                value(until),
                value(since),
                value(until),
                value(since)
            ),
            &format!(
                "metadata.annotations[{until}] and metadata.annotations[{since}] are not the times when the pause ends and \
                 when it began: write both in the form of RFC 3339, like 2026-01-02T15:04:05Z, at most {hours} hours apart"
            ),
        ),
        validation(
            &format!("!({} && {}) || {}.matches('{RATE}')", is_there(rate), is_changed(rate), value(rate)),
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

/// CEL: an annotation, which may not be there.
fn annotation(object: &str, key: &str) -> String {
    format!("{object}.metadata.?annotations[?'{key}']")
}

/// CEL: an annotation, empty if it is not there.
fn value(key: &str) -> String {
    format!("{}.orValue('')", annotation("object", key))
}

/// CEL: the object has the annotation, though it may be empty.
fn is_there(key: &str) -> String {
    format!("{}.hasValue()", annotation("object", key))
}

/// CEL: the object is new, or the request sets, changes or removes the annotation. An empty one is not a missing one.
fn is_changed(key: &str) -> String {
    let [now, before] = ["object", "oldObject"].map(|object| annotation(object, key));
    format!("(request.operation == 'CREATE' || {now} != {before})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_is_what_the_pattern_allows() {
        assert!(RATE.ends_with(&format!("|{HIGHEST_PAUSE_RATE})$")));
    }
}
