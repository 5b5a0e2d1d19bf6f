//! The rules for `scopes` and `scopeSelector` (`docs/quota-semantics.md`, *Validation*).

use std::collections::BTreeSet;

use super::field_error::{check_len, invalid, json, json_list};
use super::names::{is_standard, scope_allows};
use super::{FieldError, FieldErrorKind, RawQuotaSpec, ScopeRequirementText};
use crate::scope::{Operator, Scope};

/// Most entries of `scopes` and of `matchExpressions`.
const MAX_SCOPES: usize = 64;
/// Most values of one requirement.
const MAX_VALUES: usize = 1024;

const LIST: &str = "spec.scopes";
const SELECTOR: &str = "spec.scopeSelector.matchExpressions";

pub(super) fn check_list(spec: &RawQuotaSpec, errors: &mut Vec<FieldError>) {
    if !check_len(LIST, spec.scopes.len(), MAX_SCOPES, errors) {
        return;
    }
    for name in &spec.scopes {
        match Scope::from_name(name) {
            None => errors.push(invalid(LIST, json_list(&spec.scopes), "unsupported scope")),
            Some(scope) => check_resources(LIST, scope, spec, errors),
        }
    }
    let names = spec.scopes.iter().map(String::as_str).collect();
    if is_contradictory(&names) {
        errors.push(invalid(LIST, json_list(&spec.scopes), "conflicting scopes"));
    }
}

pub(super) fn check_selector(spec: &RawQuotaSpec, errors: &mut Vec<FieldError>) {
    let Some(requirements) = &spec.scope_selector else {
        return;
    };
    if !check_len(SELECTOR, requirements.len(), MAX_SCOPES, errors) {
        return;
    }
    for requirement in requirements {
        match Scope::from_name(&requirement.scope_name) {
            None => {
                let field = format!("{SELECTOR}.scopeName");
                errors.push(invalid(&field, json(&requirement.scope_name), "unsupported scope"));
            }
            Some(scope) => {
                check_resources(SELECTOR, scope, spec, errors);
                check_operator_of(scope, requirement, errors);
            }
        }
        check_values(requirement, errors);
    }
    let names: BTreeSet<&str> = requirements.iter().map(|r| r.scope_name.as_str()).collect();
    if is_contradictory(&names) {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        errors.push(invalid(SELECTOR, json_list(&names), "conflicting scopes"));
    }
}

/// One error names all resources that the scope cannot apply to.
fn check_resources(field: &str, scope: Scope, spec: &RawQuotaSpec, errors: &mut Vec<FieldError>) {
    let refused = spec.hard.keys().filter(|name| is_standard(name) && !scope_allows(scope, name));
    let refused: Vec<String> = refused.cloned().collect();
    if !refused.is_empty() {
        let rule = format!("unsupported scope applied to resource {}", json_list(&refused));
        errors.push(invalid(field, json(scope.name()), &rule));
    }
}

fn check_operator_of(scope: Scope, requirement: &ScopeRequirementText, errors: &mut Vec<FieldError>) {
    let by_value = matches!(scope, Scope::PriorityClass | Scope::VolumeAttributesClass);
    if !by_value && requirement.operator != "Exists" {
        let rule = format!("must be 'Exists' when scope is {}", scope.name());
        errors.push(invalid(&format!("{SELECTOR}.operator"), json(&requirement.operator), &rule));
    }
}

fn check_values(requirement: &ScopeRequirementText, errors: &mut Vec<FieldError>) {
    let field = format!("{SELECTOR}.values");
    if !check_len(&field, requirement.values.len(), MAX_VALUES, errors) {
        return;
    }
    match Operator::from_name(&requirement.operator) {
        Some(Operator::In | Operator::NotIn) if requirement.values.is_empty() => errors.push(FieldError {
            field,
            kind: FieldErrorKind::Required,
            value: String::new(),
            detail: "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                .to_owned(),
        }),
        Some(Operator::Exists | Operator::DoesNotExist) if !requirement.values.is_empty() => {
            let rule = "must be no value when `operator` is 'Exists' or 'DoesNotExist' for scope selector";
            errors.push(invalid(&field, json_list(&requirement.values), rule));
        }
        Some(_) => {}
        None => {
            let rule = "not a valid selector operator, use In, NotIn, Exists or DoesNotExist";
            errors.push(invalid(&format!("{SELECTOR}.operator"), json(&requirement.operator), rule));
        }
    }
}

fn is_contradictory(names: &BTreeSet<&str>) -> bool {
    [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")]
        .iter()
        .any(|(one, other)| names.contains(one) && names.contains(other))
}
