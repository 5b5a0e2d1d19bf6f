//! The examples of an `Evaluator`: pods with what its rule has to charge them. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use sluice_api::{EvaluatorExample, EvaluatorSpec, refused_of_evaluator};
use sluice_engine::quantity::QuantityError;
use sluice_engine::{Amount, ChargeRules, Format, Quantity, Resource};
use sluice_index::NativeChargeError;

use crate::{Answered, Failure, RuleEvaluator, SidecarPolicy};

/// Examples are pods that nothing runs yet: for them versions of Kubernetes differ in device classes alone.
const RULES: ChargeRules = ChargeRules::for_minor(36);

/// What is wrong with an `Evaluator`.
#[derive(Debug, thiserror::Error)]
pub enum EvaluatorError {
    /// Its rule or a selector, or the policy of a sidecar.
    #[error("{0}")]
    Rule(String),
    #[error("spec.examples[{number}].pod: {error}")]
    Pod {
        /// Which, from 0.
        number: usize,
        error: NativeChargeError,
    },
    #[error("spec.examples[{number}].charge[{key}]: {error}")]
    Amount {
        /// Which, from 0.
        number: usize,
        key: String,
        error: QuantityError,
    },
    /// The rule has no answer for an example.
    #[error("spec.examples[{number}]: such a pod would be held: the rule {failure}")]
    NoAnswer {
        /// Which, from 0.
        number: usize,
        failure: Failure,
    },
    /// The rule says something else than an example.
    #[error(
        "spec.examples[{number}].charge: the rule says {rule}, the example says {example}: correct one of them"
    )]
    Contradicts {
        /// Which, from 0.
        number: usize,
        /// What the rule says.
        rule: String,
        /// What the example says.
        example: String,
    },
}

/// Whether an `Evaluator` of this name can be used: a rule, after its examples, or the policy of a sidecar, whose container
/// may run.
///
/// # Errors
/// On the first thing that is wrong; it names the field and says what to do.
pub fn check_evaluator(name: &str, spec: &EvaluatorSpec) -> Result<(), EvaluatorError> {
    if spec.sidecar.is_none() {
        return check_rule(name, spec).map(drop);
    }
    let written = serde_json::to_value(spec).unwrap_or_default();
    let policy = SidecarPolicy::read(&written);
    let refused = || refused_of_evaluator(name, &written).into_iter().next();
    let fault = policy.fault().map(str::to_owned);
    let fault = fault.or_else(|| refused().map(|it| format!("{}: {}", it.field, it.why)));
    fault.map_or(Ok(()), |fault| Err(EvaluatorError::Rule(fault)))
}

/// The rule of an `Evaluator`, after its examples.
///
/// # Errors
/// On the first thing that is wrong; it names the field and says what to do.
pub fn check_rule(name: &str, spec: &EvaluatorSpec) -> Result<RuleEvaluator, EvaluatorError> {
    if spec.sidecar.is_some() {
        let fault = "spec.sidecar: sluice evaluator check tries sidecars: name a file with a rule";
        return Err(EvaluatorError::Rule(fault.to_owned()));
    }
    let written = serde_json::to_value(spec).unwrap_or_default();
    let rule = RuleEvaluator::read(name, &written);
    if let Some(fault) = rule.fault() {
        return Err(EvaluatorError::Rule(fault.to_owned()));
    }
    check_examples(&rule, &spec.examples).map(|()| rule)
}

/// Whether a rule that can be used says of each example what the example says.
///
/// # Errors
/// On the first one of which it does not.
pub fn check_examples(rule: &RuleEvaluator, examples: &[EvaluatorExample]) -> Result<(), EvaluatorError> {
    let mut numbered = examples.iter().enumerate();
    numbered.try_for_each(|(number, example)| check_example(rule, number, example))
}

fn check_example(
    rule: &RuleEvaluator,
    number: usize,
    example: &EvaluatorExample,
) -> Result<(), EvaluatorError> {
    let (_, answer) =
        rule.try_on(&example.pod, RULES).map_err(|error| EvaluatorError::Pod { number, error })?;
    let wanted = amounts(number, &example.charge)?;
    let said = match answer {
        Ok(Answered::NoMatch) => BTreeMap::new(),
        Ok(Answered::Charge(charge)) => charge.iter().cloned().collect(),
        Err(failure) => return Err(EvaluatorError::NoAnswer { number, failure }),
    };
    if said == wanted {
        return Ok(());
    }
    Err(EvaluatorError::Contradicts { number, rule: told(&said), example: told(&wanted) })
}

fn amounts(
    number: usize,
    charge: &BTreeMap<String, QuantityText>,
) -> Result<BTreeMap<Resource, Amount>, EvaluatorError> {
    charge
        .iter()
        .map(|(key, text)| match Quantity::parse_json_text(&text.0) {
            Ok(amount) => Ok((Resource::from_quota_key(key), amount.into())),
            Err(error) => Err(EvaluatorError::Amount { number, key: key.clone(), error }),
        })
        .collect()
}

fn told(charge: &BTreeMap<Resource, Amount>) -> String {
    if charge.is_empty() {
        return "that it is not about this pod".to_owned();
    }
    let one = |(key, amount): (&Resource, &Amount)| format!("{key}={}", amount.quantity(Format::DecimalSi));
    charge.iter().map(one).collect::<Vec<_>>().join(", ")
}
