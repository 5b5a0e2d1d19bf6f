//! The verdict of Kubernetes on a quota spec, plus limits on its size.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::names::{is_integer, is_standard};
use super::scopes;
use super::{FieldError, FieldErrorKind, RawQuotaSpec};
use crate::charge::Amount;
use crate::quantity::{Format, Quantity};
use crate::resource::is_qualified_name;

/// Most names in `hard`.
pub const MAX_HARD: usize = 1024;
/// Longest text that an error repeats.
const MAX_SHOWN: usize = 320;

/// All rules that `spec` breaks, in a fixed order; empty if it is acceptable. Kubernetes gives the same
/// verdict, except that it has no limit on sizes and amounts.
#[must_use]
pub fn validate(spec: &RawQuotaSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if check_len("spec.hard", spec.hard.len(), MAX_HARD, &mut errors) {
        for (name, amount) in &spec.hard {
            let field = format!("spec.hard[{}]", shown(name));
            check_name(&field, name, &mut errors);
            check_amount(&field, name, *amount, &mut errors);
        }
        scopes::check_list(spec, &mut errors);
        scopes::check_selector(spec, &mut errors);
    }
    errors
}

/// As [`validate`], for a spec that replaces `old`: the set of `scopes` must stay.
#[must_use]
pub fn validate_update(spec: &RawQuotaSpec, old: &RawQuotaSpec) -> Vec<FieldError> {
    let mut errors = validate(spec);
    let set = |spec: &RawQuotaSpec| spec.scopes.iter().cloned().collect::<BTreeSet<String>>();
    if set(spec) != set(old) {
        errors.push(invalid("spec.scopes", json_list(&spec.scopes), "field is immutable"));
    }
    errors
}

fn check_name(field: &str, name: &str, errors: &mut Vec<FieldError>) {
    if !is_qualified_name(name) {
        let rule = "must be a qualified name: up to 63 letters, digits, '-', '_' or '.', beginning and ending \
                    with a letter or digit, optionally after a DNS subdomain and '/', like example.com/gpu";
        errors.push(invalid(field, json(name), rule));
    } else if !name.contains('/') && !is_standard(name) {
        errors.push(invalid(field, json(name), "must be a standard resource for quota"));
    }
}

fn check_amount(field: &str, name: &str, amount: Quantity, errors: &mut Vec<FieldError>) {
    let mut refuse = |rule: &str| errors.push(invalid(field, json(&amount.to_string()), rule));
    if amount.is_negative() {
        refuse("must be greater than or equal to 0");
    }
    if is_integer(name) && !amount.is_integer() {
        refuse("must be an integer");
    }
    if Amount::from(amount) > Amount::LIMIT {
        let limit = Amount::LIMIT.quantity(Format::DecimalSi);
        refuse(&format!("must be less than or equal to {limit}"));
    }
}

/// Refuses a list of more than `max` items; its items are then not looked at.
pub(super) fn check_len(field: &str, len: usize, max: usize, errors: &mut Vec<FieldError>) -> bool {
    if len > max {
        errors.push(FieldError {
            field: field.to_owned(),
            kind: FieldErrorKind::TooMany,
            value: len.to_string(),
            detail: format!("must have at most {max} items"),
        });
    }
    len <= max
}

pub(super) fn invalid(field: &str, value: String, detail: &str) -> FieldError {
    FieldError { field: field.to_owned(), kind: FieldErrorKind::Invalid, value, detail: detail.to_owned() }
}

/// The text as a JSON string, cut if long.
pub(super) fn json(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in shown(text).chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => drop(write!(quoted, "\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    if shown(text).len() < text.len() {
        quoted.push('…');
    }
    quoted.push('"');
    quoted
}

/// A list of texts as JSON, cut if long.
pub(super) fn json_list(texts: &[String]) -> String {
    let some: Vec<String> = texts.iter().take(8).map(|text| json(text)).collect();
    let more = if texts.len() > some.len() { ",…" } else { "" };
    format!("[{}{more}]", some.join(","))
}

/// The beginning of a text that is too long to be repeated.
pub(super) fn shown(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_SHOWN)).unwrap_or(text)
}
