//! The verdict of Kubernetes on a quota spec, plus limits on its size.

use std::collections::BTreeSet;

use super::field_error::{check_len, invalid, json, json_list, shown};
use super::names::{is_integer, is_standard};
use super::scopes;
use super::{FieldError, RawQuotaSpec};
use crate::charge::Amount;
use crate::quantity::{Format, Quantity};
use crate::resource::is_qualified_name;

/// Most names in `hard`.
pub const MAX_HARD: usize = 1024;
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
