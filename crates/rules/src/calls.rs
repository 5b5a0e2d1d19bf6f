//! Functions.

use sluice_engine::Quantity;

use crate::arithmetic::{ceil, compute, truncated};
use crate::budget::Budget;
use crate::fault::Fault;
use crate::node::{Arithmetic, Function};
use crate::value::{List, Text, Value, amount, told};

/// Longest text that is read as an integer, in bytes: leading zeros would be read for nothing.
const LONGEST_INT: usize = 32;

/// The result of a function; its receiver is its first argument.
pub(crate) fn call<'a>(
    function: Function,
    arguments: &[Value<'a>],
    budget: &mut Budget,
) -> Result<Value<'a>, Fault> {
    let wrong = |wants| {
        let found = arguments.first().map_or("nothing", Value::name);
        Err(Fault::Type { function: function.name(), wants, found })
    };
    match (function, arguments) {
        (Function::Size, [of]) => size(of, budget),
        (
            Function::StartsWith | Function::EndsWith | Function::Contains,
            [Value::Text(of), Value::Text(part)],
        ) => texts(function, of, part, budget).map(Value::Bool),
        (Function::StartsWith | Function::EndsWith | Function::Contains, [Value::Text(_), part]) => {
            Err(Fault::Type { function: function.name(), wants: "a text in brackets", found: part.name() })
        }
        (Function::StartsWith | Function::EndsWith | Function::Contains, _) => wrong("a text before it"),
        (Function::Quantity, [Value::Text(text)]) => amount(text.as_str()).map(Value::Amount),
        (Function::Quantity, [of]) => match of.number() {
            Some(amount) => Ok(Value::Amount(amount)),
            None => wrong("a text or a number"),
        },
        (Function::Int, [Value::Text(text)]) => int(text.as_str()).map(Value::Int),
        (Function::Int, [of]) => whole(function, of, truncated),
        (Function::Ceil, [of]) => whole(function, of, ceil),
        (Function::Sum | Function::Min | Function::Max, [Value::List(list)]) => fold(function, list, budget),
        _ => wrong("a list before it"),
    }
}

fn size<'a>(of: &Value<'a>, budget: &mut Budget) -> Result<Value<'a>, Fault> {
    let size = match of {
        Value::Text(text) => {
            budget.look_at(text.as_str().len())?;
            text.as_str().chars().count()
        }
        Value::List(list) => list.len(),
        Value::Object(map) => map.len(),
        Value::Native(charge) => charge.len(),
        _ => return Err(Fault::Type { function: "size", wants: "a text, list or map", found: of.name() }),
    };
    i64::try_from(size).map(Value::Int).map_err(|_| Fault::Overflow { operator: "size" })
}

fn texts(function: Function, of: &Text<'_>, part: &Text<'_>, budget: &mut Budget) -> Result<bool, Fault> {
    let (of, part) = (of.as_str(), part.as_str());
    Ok(match function {
        Function::Contains => {
            budget.look_at(of.len().saturating_add(part.len()))?;
            of.contains(part)
        }
        Function::StartsWith => {
            budget.look_at(part.len())?;
            of.starts_with(part)
        }
        _ => {
            budget.look_at(part.len())?;
            of.ends_with(part)
        }
    })
}

fn int(text: &str) -> Result<i64, Fault> {
    if text.len() > LONGEST_INT {
        return Err(Fault::NotAnInt { text: told(text) });
    }
    text.parse().map_err(|_| Fault::NotAnInt { text: told(text) })
}

fn whole<'a>(
    function: Function,
    of: &Value<'a>,
    round: fn(Quantity) -> Option<i64>,
) -> Result<Value<'a>, Fault> {
    let Some(number) = of.number() else {
        return Err(Fault::Type { function: function.name(), wants: "a number", found: of.name() });
    };
    round(number).map(Value::Int).ok_or_else(|| Fault::Overflow { operator: function.name() })
}

/// The sum, the smallest or the largest of a list of numbers: an integer if all are, else an amount.
fn fold<'a>(function: Function, list: &List<'a>, budget: &mut Budget) -> Result<Value<'a>, Fault> {
    let name = function.name();
    let mut result: Option<Value<'a>> = None;
    for element in list.iter() {
        budget.step()?;
        let element = element?;
        let Some(number) = element.number() else {
            return Err(Fault::Type { function: name, wants: "a list of numbers", found: element.name() });
        };
        result = Some(match result {
            None => element,
            Some(so_far) if function == Function::Sum => compute(Arithmetic::Add, &so_far, &element, budget)?,
            Some(so_far) => {
                let before = so_far.number().unwrap_or_default();
                let replaces = if function == Function::Min { number < before } else { number > before };
                if replaces { element } else { so_far }
            }
        });
    }
    match result {
        Some(result) => Ok(result),
        None if function == Function::Sum => Ok(Value::Int(0)),
        None => Err(Fault::EmptyList { function: name }),
    }
}
