//! The interpreter of `cel` with what rules have beside CEL's own functions.

use std::collections::HashMap;
use std::sync::Arc;

use cel::extractors::This;
use cel::{Context, ExecutionError, Value};
use sluice_engine::{Charge, Quantity, Resource};

/// What Kubernetes charges the pod: whole numbers, so that both sides can count them.
const NATIVE: [(&str, i64); 3] = [("cpu", 4), ("memory", 8_589_934_592), ("pods", 1)];

pub fn native() -> Charge {
    Charge::from_pairs(NATIVE.map(|(key, amount)| {
        (Resource::from_quota_key(key), Quantity::from_units(amount, sluice_engine::Format::DecimalSi).into())
    }))
}

pub struct Oracle {
    context: Context<'static, 'static>,
}

impl Oracle {
    pub fn new(pod: &serde_json::Value) -> Self {
        let mut context = Context::default();
        let native: HashMap<String, Value> =
            NATIVE.into_iter().map(|(key, amount)| (key.to_owned(), Value::Int(amount))).collect();
        context.add_variable_from_value("pod", value_of(pod));
        context.add_variable_from_value("native", Value::from(native));
        context
            .add_function("sum", |This(list): This<Arc<Vec<Value>>>| fold(&list, Some(0), i64::checked_add))
            .expect("sum");
        context
            .add_function("min", |This(list): This<Arc<Vec<Value>>>| fold(&list, None, |a, b| Some(a.min(b))))
            .expect("min");
        context
            .add_function("max", |This(list): This<Arc<Vec<Value>>>| fold(&list, None, |a, b| Some(a.max(b))))
            .expect("max");
        context.add_function("ceil", |This(value): This<i64>| value).expect("ceil");
        context.add_function("quantity", quantity).expect("quantity");
        Self { context }
    }

    /// The value of an expression, if it has one.
    pub fn value(&self, source: &str) -> Option<Value> {
        cel::Program::compile(source).ok()?.execute(&self.context).ok()
    }
}

/// Whole numbers are integers, as the types of Kubernetes have them.
fn value_of(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => Value::Int(number.as_i64().expect("an integer")),
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(list) => Value::List(Arc::new(list.iter().map(value_of).collect())),
        serde_json::Value::Object(map) => {
            let map: HashMap<String, Value> =
                map.iter().map(|(key, value)| (key.clone(), value_of(value))).collect();
            Value::from(map)
        }
    }
}

fn quantity(value: Value) -> Result<i64, ExecutionError> {
    let wrong = |message: &str| ExecutionError::function_error("quantity", message);
    match value {
        Value::Int(value) => Ok(value),
        Value::String(text) => text.parse().map_err(|_| wrong("no whole number")),
        _ => Err(wrong("neither a text nor a number")),
    }
}

fn fold(
    list: &[Value],
    first: Option<i64>,
    step: impl Fn(i64, i64) -> Option<i64>,
) -> Result<i64, ExecutionError> {
    let wrong = |message: &str| ExecutionError::function_error("fold", message);
    let mut result = first;
    for value in list {
        let Value::Int(value) = value else { return Err(wrong("no number")) };
        result = Some(match result {
            None => *value,
            Some(so_far) => step(so_far, *value).ok_or_else(|| wrong("too large"))?,
        });
    }
    result.ok_or_else(|| wrong("empty"))
}
