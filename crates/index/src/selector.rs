//! Label selectors, read as strictly as the API server reads those of its own objects: what it refuses in a webhook
//! configuration or a policy is no selector here either.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Selector;
use sluice_engine::FieldError;
use sluice_engine::quota_spec::FieldErrorKind;
use sluice_engine::resource::{is_label_value, is_qualified_name};

const KEY: &str = "must be a label key: up to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or \
                   digit, optionally after a DNS subdomain and '/', like example.com/team";
const VALUE: &str = "must be a label value: empty, or up to 63 letters, digits, '-', '_' or '.', beginning and ending with \
                     a letter or digit";
const OPERATOR: &str = "not a valid selector operator, use In, NotIn, Exists or DoesNotExist";
const NO_VALUES: &str =
    "must be specified when `operator` is 'In' or 'NotIn', use Exists or DoesNotExist for any value";
const VALUES: &str = "may not be specified when `operator` is 'Exists' or 'DoesNotExist', use In or NotIn";

/// The selector at `field`, ready to be asked.
///
/// # Errors
/// Every rule that it breaks; never empty.
pub fn read_selector(field: &str, selector: LabelSelector) -> Result<Selector, Vec<FieldError>> {
    let errors = check(field, &selector);
    if !errors.is_empty() {
        return Err(errors);
    }
    // Looser than what was checked, so this never fails.
    Selector::try_from(selector).map_err(|error| vec![FieldError::invalid(field, "", &error.to_string())])
}

fn check(field: &str, selector: &LabelSelector) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let labels = format!("{field}.matchLabels");
    for (key, value) in selector.match_labels.iter().flatten() {
        if !is_qualified_name(key) {
            errors.push(FieldError::invalid(&labels, key, KEY));
        }
        if !is_label_value(value) {
            errors.push(FieldError::invalid(&labels, value, VALUE));
        }
    }
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        check_requirement(&format!("{field}.matchExpressions[{index}]"), requirement, &mut errors);
    }
    errors
}

fn check_requirement(field: &str, requirement: &LabelSelectorRequirement, errors: &mut Vec<FieldError>) {
    let LabelSelectorRequirement { key, operator, values } = requirement;
    let values = values.as_deref().unwrap_or_default();
    let of_values = format!("{field}.values");
    match operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::without_value(of_values, FieldErrorKind::Required, NO_VALUES));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.push(FieldError::without_value(of_values, FieldErrorKind::Forbidden, VALUES));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.push(FieldError::invalid(format!("{field}.operator"), other, OPERATOR)),
    }
    if !is_qualified_name(key) {
        errors.push(FieldError::invalid(format!("{field}.key"), key, KEY));
    }
    for (index, value) in values.iter().enumerate().filter(|(_, value)| !is_label_value(value)) {
        errors.push(FieldError::invalid(format!("{field}.values[{index}]"), value, VALUE));
    }
}
