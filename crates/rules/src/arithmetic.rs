//! Operators on values. Integers are counted as CEL counts them, amounts exactly: what is below a nano-unit is rounded up,
//! as Kubernetes does.

use std::cmp::Ordering;
use std::rc::Rc;

use sluice_engine::quantity::NANOS_PER_UNIT;
use sluice_engine::{Format, Quantity};

use crate::budget::Budget;
use crate::fault::Fault;
use crate::node::Arithmetic;
use crate::value::{List, Text, Value};

pub(crate) fn compute<'a>(
    operator: Arithmetic,
    left: &Value<'a>,
    right: &Value<'a>,
    budget: &mut Budget,
) -> Result<Value<'a>, Fault> {
    if let (Value::Int(left), Value::Int(right)) = (left, right) {
        return ints(operator, *left, *right).map(Value::Int);
    }
    if let (Some(left), Some(right)) = (left.number(), right.number()) {
        return amounts(operator, left, right).map(Value::Amount);
    }
    match (operator, left, right) {
        (Arithmetic::Add, Value::Text(left), Value::Text(right)) => {
            let (left, right) = (left.as_str(), right.as_str());
            budget.make(left.len().saturating_add(right.len()))?;
            Ok(Value::Text(Text::Made(Rc::from([left, right].concat()))))
        }
        (Arithmetic::Add, Value::List(left), Value::List(right)) => {
            budget.steps(left.len().saturating_add(right.len()))?;
            let joined: Result<Rc<[_]>, Fault> = left.iter().chain(right.iter()).collect();
            Ok(Value::List(List::Made(joined?)))
        }
        _ => Err(Fault::Types { operator: operator.text(), left: left.name(), right: right.name() }),
    }
}

fn ints(operator: Arithmetic, left: i64, right: i64) -> Result<i64, Fault> {
    let result = match operator {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
        Arithmetic::Divide | Arithmetic::Remainder if right == 0 => {
            return Err(Fault::ByZero { operator: operator.text() });
        }
        Arithmetic::Divide => left.checked_div(right),
        Arithmetic::Remainder => left.checked_rem(right),
    };
    result.ok_or_else(|| overflow(operator))
}

fn amounts(operator: Arithmetic, left: Quantity, right: Quantity) -> Result<Quantity, Fault> {
    let nanos = match operator {
        Arithmetic::Add => return left.checked_add(right).map_err(|_| overflow(operator)),
        Arithmetic::Subtract => return left.checked_sub(right).map_err(|_| overflow(operator)),
        Arithmetic::Divide | Arithmetic::Remainder if right.is_zero() => {
            return Err(Fault::ByZero { operator: operator.text() });
        }
        Arithmetic::Multiply => product(left.nanos(), right.nanos()),
        Arithmetic::Divide => quotient(left.nanos(), right.nanos()),
        Arithmetic::Remainder => left.nanos().checked_rem(right.nanos()),
    };
    // An amount times a number is written as the amount is.
    let format = if left.format() == Format::DecimalSi { right.format() } else { left.format() };
    nanos.map(|nanos| Quantity::from_nanos(nanos, format)).ok_or_else(|| overflow(operator))
}

const fn overflow(operator: Arithmetic) -> Fault {
    Fault::Overflow { operator: operator.text() }
}

/// `left × right / 10⁹`, away from zero, without the intermediate product.
fn product(left: i128, right: i128) -> Option<i128> {
    let (units, rest) = (left / NANOS_PER_UNIT, left % NANOS_PER_UNIT);
    let rest = divided(rest.checked_mul(right)?, NANOS_PER_UNIT)?;
    units.checked_mul(right)?.checked_add(rest)
}

/// `left × 10⁹ / right`, away from zero.
fn quotient(left: i128, right: i128) -> Option<i128> {
    let (whole, rest) = (left.checked_div(right)?, left.checked_rem(right)?);
    let rest = divided(rest.checked_mul(NANOS_PER_UNIT)?, right)?;
    whole.checked_mul(NANOS_PER_UNIT)?.checked_add(rest)
}

/// A quotient that is rounded away from zero.
fn divided(left: i128, right: i128) -> Option<i128> {
    let (whole, rest) = (left.checked_div(right)?, left.checked_rem(right)?);
    if rest == 0 { Some(whole) } else { whole.checked_add(left.signum() * right.signum()) }
}

/// The least whole number that is not less.
pub(crate) fn ceil(amount: Quantity) -> Option<i64> {
    let nanos = amount.nanos();
    let up = i128::from(nanos % NANOS_PER_UNIT > 0);
    i64::try_from(nanos / NANOS_PER_UNIT + up).ok()
}

/// The whole number towards zero.
pub(crate) fn truncated(amount: Quantity) -> Option<i64> {
    i64::try_from(amount.nanos() / NANOS_PER_UNIT).ok()
}

/// The negative number.
pub(crate) fn negated<'a>(value: &Value<'a>) -> Result<Value<'a>, Fault> {
    let overflow = || Fault::Overflow { operator: "-" };
    match value {
        Value::Int(int) => int.checked_neg().map(Value::Int).ok_or_else(overflow),
        Value::Amount(amount) => {
            let nanos = amount.nanos().checked_neg().ok_or_else(overflow)?;
            Ok(Value::Amount(Quantity::from_nanos(nanos, amount.format())))
        }
        _ => Err(Fault::Type { function: "-", wants: "a number", found: value.name() }),
    }
}

/// The order of two values.
pub(crate) fn compare(
    operator: &'static str,
    left: &Value<'_>,
    right: &Value<'_>,
    budget: &mut Budget,
) -> Result<Ordering, Fault> {
    if let (Some(left), Some(right)) = (left.number(), right.number()) {
        return Ok(left.cmp(&right));
    }
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Ok(left.cmp(right)),
        (Value::Text(left), Value::Text(right)) => {
            let (left, right) = (left.as_str(), right.as_str());
            budget.look_at(left.len().min(right.len()))?;
            Ok(left.cmp(right))
        }
        _ => Err(Fault::Types { operator, left: left.name(), right: right.name() }),
    }
}
