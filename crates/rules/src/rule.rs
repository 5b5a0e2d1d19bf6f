//! A rule: which pods it is about, and what they are charged.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;
use sluice_engine::resource::{consumed_by_pods, is_qualified_name};
use sluice_engine::{Amount, Charge, Quantity, Resource};

use crate::bounds::MAX_KEYS;
use crate::compile::compile;
use crate::evaluate::Evaluation;
use crate::fault::{EvaluationError, Failed, Fault};
use crate::guard::Refused;
use crate::looks::Looks;
use crate::node::Node;
use crate::place::{Field, Position};
use crate::refusal::{CompileError, Refusal};
use crate::value::Value;

/// A compiled rule. It is evaluated from any number of threads.
#[derive(Debug)]
pub struct Rule {
    matches: Expression,
    charges: Box<[(Arc<str>, Expression)]>,
    looks: Looks,
}

/// What a rule says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is not about this pod.
    NoMatch,
    /// The amounts, none of them negative, by their keys in alphabetical order.
    Charge(Vec<(Arc<str>, Quantity)>),
}

/// What an evaluation took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Steps, of [`crate::MAX_STEPS`].
    pub steps: u32,
    /// Bytes of text that were made, of [`crate::MAX_MADE_BYTES`].
    pub made_bytes: u32,
}

#[derive(Debug)]
struct Expression {
    source: Box<str>,
    node: Node,
}

impl Rule {
    /// Compiles `spec.cel` of an `Evaluator`.
    ///
    /// # Errors
    /// On the first thing that is not accepted, with its place and what to write.
    pub fn compile(matches: &str, charge: &BTreeMap<String, String>) -> Result<Self, CompileError> {
        let matches = Expression::new(&Field::Match, matches)?;
        check_keys(charge)?;
        let charges = charge.iter().map(|(key, source)| {
            let key: Arc<str> = Arc::from(key.as_str());
            let expression = Expression::new(&Field::Charge(Arc::clone(&key)), source)?;
            Ok((key, expression))
        });
        let charges: Box<[_]> = charges.collect::<Result<_, _>>()?;
        let mut looks = Looks::default();
        charges.iter().map(|(_, it)| it).chain([&matches]).for_each(|it| looks.find(&it.node));
        Ok(Self { matches, charges, looks })
    }

    /// The parts of a pod that it looks at. It says the same of a pod of which no more [is read](Looks::read).
    #[must_use]
    pub const fn looks(&self) -> &Looks {
        &self.looks
    }

    /// The keys that it charges.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.charges.iter().map(|(key, _)| key.as_ref())
    }

    /// What it says of a pod. `pod`: the object as the API server has it. `native`: what Kubernetes charges it.
    ///
    /// # Errors
    /// When it has no answer, or one that cannot be charged; within [`crate::MAX_STEPS`] and [`crate::MAX_MADE_BYTES`].
    pub fn evaluate(&self, pod: &Json, native: &Charge) -> Result<Outcome, EvaluationError> {
        self.evaluate_counted(pod, native).0
    }

    /// As [`Rule::evaluate`], and what it took.
    pub fn evaluate_counted(&self, pod: &Json, native: &Charge) -> (Result<Outcome, EvaluationError>, Spent) {
        let mut evaluation = Evaluation::new(pod, native);
        let outcome = self.outcome(&mut evaluation);
        let (steps, made_bytes) = evaluation.budget.spent();
        (outcome, Spent { steps, made_bytes })
    }

    fn outcome<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Result<Outcome, EvaluationError> {
        let matches = self.matches.value(&Field::Match, evaluation, |value| match value {
            Value::Bool(matches) => Ok(*matches),
            _ => Err(Fault::Type { function: "match", wants: "true or false", found: value.name() }),
        })?;
        if !matches {
            return Ok(Outcome::NoMatch);
        }
        let charges = self.charges.iter().map(|(key, expression)| {
            let field = Field::Charge(Arc::clone(key));
            Ok((Arc::clone(key), expression.value(&field, evaluation, charged)?))
        });
        charges.collect::<Result<_, _>>().map(Outcome::Charge)
    }
}

/// A value as an amount that can be charged.
fn charged(value: &Value<'_>) -> Result<Quantity, Fault> {
    let Some(amount) = value.number() else {
        return Err(Fault::Type { function: "charge", wants: "a number or an amount", found: value.name() });
    };
    if amount.is_negative() {
        return Err(Fault::Negative { amount });
    }
    if Amount::from(amount) > Amount::LIMIT { Err(Fault::TooLarge { amount }) } else { Ok(amount) }
}

fn check_keys(charge: &BTreeMap<String, String>) -> Result<(), CompileError> {
    let refuse = |field, why| Err(CompileError { field, position: None, why });
    if charge.is_empty() {
        return refuse(Field::Charges, Refusal::NoCharge);
    }
    if charge.len() > MAX_KEYS {
        return refuse(Field::Charges, Refusal::Keys { keys: charge.len() });
    }
    let mut seen: BTreeMap<Resource, &str> = BTreeMap::new();
    for key in charge.keys() {
        let field = || Field::Charge(Arc::from(key.as_str()));
        if !is_qualified_name(key) || !consumed_by_pods(key) {
            return refuse(field(), Refusal::Key);
        }
        if let Some(other) = seen.insert(Resource::from_quota_key(key), key) {
            return refuse(field(), Refusal::SameKey { other: other.to_owned() });
        }
    }
    Ok(())
}

impl Expression {
    fn new(field: &Field, source: &str) -> Result<Self, CompileError> {
        let node = compile(source).map_err(|refused: Refused| {
            let (at, why) = refused;
            let whole = matches!(why, Refusal::TooLong { .. } | Refusal::Empty);
            CompileError { field: field.clone(), position: (!whole).then(|| Position::of(source, at)), why }
        })?;
        Ok(Self { source: source.into(), node })
    }

    fn value<'a, T>(
        &'a self,
        field: &Field,
        evaluation: &mut Evaluation<'a>,
        read: impl FnOnce(&Value<'a>) -> Result<T, Fault>,
    ) -> Result<T, EvaluationError> {
        let value = evaluation.value(&self.node).and_then(|value| Ok(read(&value)?));
        value.map_err(|failed: Failed| EvaluationError {
            field: field.clone(),
            position: Position::of(&self.source, failed.at.unwrap_or(0)),
            why: failed.fault,
        })
    }
}
