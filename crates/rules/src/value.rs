//! The values that expressions have. What is in the pod or in the rule is borrowed.

use std::rc::Rc;
use std::slice;

use serde_json::{Map, Value as Json};
use sluice_engine::{Amount, Charge, Format, Quantity, Resource};

use crate::budget::Budget;
use crate::fault::Fault;

#[derive(Clone, Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Amount(Quantity),
    Text(Text<'a>),
    List(List<'a>),
    /// A map of the pod.
    Object(&'a Map<String, Json>),
    /// The map from key to amount of what Kubernetes charges.
    Native(&'a Charge),
}

#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Found(&'a str),
    Made(Rc<str>),
}

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Found(text) => text,
            Self::Made(text) => text,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    Found(&'a [Json]),
    Made(Rc<[Value<'a>]>),
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Found(list) => list.len(),
            Self::Made(list) => list.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Result<Value<'a>, Fault>> {
        match self {
            Self::Found(list) => list.get(index).map(Value::of),
            Self::Made(list) => list.get(index).cloned().map(Ok),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, Fault>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Value<'a> {
    /// A part of the pod.
    ///
    /// # Errors
    /// On a number that is no quantity.
    pub(crate) fn of(json: &'a Json) -> Result<Self, Fault> {
        Ok(match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Self::Int(int),
                None => Self::Amount(amount(&number.to_string())?),
            },
            Json::String(text) => Self::found(text),
            Json::Array(list) => Self::List(List::Found(list)),
            Json::Object(map) => Self::Object(map),
        })
    }

    pub(crate) const fn found(text: &'a str) -> Self {
        Self::Text(Text::Found(text))
    }

    /// What it is, for people.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Int(_) => "an integer",
            Self::Amount(_) => "an amount",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) | Self::Native(_) => "a map",
        }
    }

    /// An integer or an amount, exact.
    pub(crate) const fn number(&self) -> Option<Quantity> {
        match self {
            Self::Int(int) => Some(Quantity::from_units(*int, Format::DecimalSi)),
            Self::Amount(amount) => Some(*amount),
            _ => None,
        }
    }

    /// The value of a key; absent if there is none, or if this is no map.
    pub(crate) fn get(&self, key: &str) -> Option<Result<Self, Fault>> {
        match self {
            Self::Object(map) => map.get(key).map(Self::of),
            Self::Native(charge) => {
                let resource = Resource::from_quota_key(key);
                charge.get(&resource).map(|amount| Ok(Self::Amount(amount.quantity(format_of(&resource)))))
            }
            _ => None,
        }
    }

    /// The elements of a list, or the keys of a map.
    pub(crate) fn elements(&self) -> Option<Elements<'a>> {
        Some(match self {
            Self::List(list) => Elements::List(list.clone(), 0),
            Self::Object(map) => Elements::Keys(map.keys()),
            Self::Native(charge) => Elements::Native(charge.iter()),
            _ => return None,
        })
    }

    /// Whether two values are the same; values of different types are not.
    pub(crate) fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, Fault> {
        budget.step()?;
        if let (Some(left), Some(right)) = (self.number(), other.number()) {
            return Ok(left == right);
        }
        match (self, other) {
            (Self::Null, Self::Null) => Ok(true),
            (Self::Bool(left), Self::Bool(right)) => Ok(left == right),
            (Self::Text(left), Self::Text(right)) => {
                let (left, right) = (left.as_str(), right.as_str());
                if left.len() != right.len() {
                    return Ok(false);
                }
                budget.look_at(left.len())?;
                Ok(left == right)
            }
            (Self::List(left), Self::List(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (left, right) in left.iter().zip(right.iter()) {
                    if !left?.equals(&right?, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Object(left), Self::Object(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (key, value) in *left {
                    budget.step()?;
                    let Some(other) = right.get(key) else { return Ok(false) };
                    if !Self::of(value)?.equals(&Self::of(other)?, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Native(left), Self::Native(right)) => Ok(left == right),
            _ => Ok(false),
        }
    }
}

pub(crate) fn amount(text: &str) -> Result<Quantity, Fault> {
    Quantity::parse(text).map_err(|error| Fault::NotAnAmount { text: told(text), error })
}

/// A text of the pod as it is told.
pub(crate) fn told(text: &str) -> String {
    const LONGEST: usize = 64;
    let mut told: String = text.chars().take(LONGEST).collect();
    if told.len() < text.len() {
        told.push('…');
    }
    told
}

/// How amounts of a resource are written.
const fn format_of(resource: &Resource) -> Format {
    use Resource::{EphemeralStorage, LimitsEphemeralStorage, LimitsMemory, Memory};
    match resource {
        Memory | LimitsMemory | EphemeralStorage | LimitsEphemeralStorage => Format::BinarySi,
        _ => Format::DecimalSi,
    }
}

/// The elements of a list, or the keys of a map.
pub(crate) enum Elements<'a> {
    List(List<'a>, usize),
    Keys(serde_json::map::Keys<'a>),
    Native(slice::Iter<'a, (Resource, Amount)>),
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Value<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::List(list, next) => {
                let element = list.get(*next)?;
                *next += 1;
                Some(element)
            }
            Self::Keys(keys) => keys.next().map(|key| Ok(Value::found(key))),
            Self::Native(entries) => entries.next().map(|(resource, _)| Ok(Value::found(resource.key()))),
        }
    }
}
