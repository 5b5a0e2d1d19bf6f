//! The fold over a compiled expression.

use std::rc::Rc;

use serde_json::Value as Json;
use sluice_engine::Charge;

use crate::arithmetic::{compare, compute, negated};
use crate::bounds::MAX_TEXT;
use crate::budget::Budget;
use crate::calls::call;
use crate::fault::{Failed, Fault};
use crate::node::{Does, Kind, Macro, Node, Ordered};
use crate::pattern::Pattern;
use crate::value::{List, Value, told};

type Evaluated<'a> = Result<Value<'a>, Failed>;

/// An evaluation of a rule for one pod.
pub(crate) struct Evaluation<'a> {
    pub pod: &'a Json,
    pub native: &'a Charge,
    pub budget: Budget,
    /// The elements of the macros around, the outermost first.
    elements: Vec<Value<'a>>,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(pod: &'a Json, native: &'a Charge) -> Self {
        Self { pod, native, budget: Budget::default(), elements: Vec::new() }
    }

    /// The value of an expression.
    pub(crate) fn value(&mut self, node: &'a Node) -> Evaluated<'a> {
        self.kind(&node.kind).map_err(|failed| failed.or_at(node.at))
    }

    fn kind(&mut self, kind: &'a Kind) -> Evaluated<'a> {
        self.budget.step()?;
        Ok(match kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Int(value) => Value::Int(*value),
            Kind::Amount(value) => Value::Amount(*value),
            Kind::Text(text) => Value::found(text),
            Kind::Pod => Value::of(self.pod)?,
            Kind::Native => Value::Native(self.native),
            Kind::Element(number) => self.elements.get(*number).cloned().unwrap_or(Value::Null),
            Kind::Select(of, field) => select(&self.value(of)?, field)?,
            Kind::Has(of, field) => Value::Bool(has(&self.value(of)?, field)?),
            Kind::Index(both) => {
                let [of, index] = self.both(both)?;
                element(&of, &index)?
            }
            Kind::Not(of) => Value::Bool(!truth("!", &self.value(of)?)?),
            Kind::Negate(of) => negated(&self.value(of)?)?,
            Kind::And(both) => self.logic(both, false)?,
            Kind::Or(both) => self.logic(both, true)?,
            Kind::If(three) => {
                let [condition, yes, no] = three.as_ref();
                let condition = truth("? :", &self.value(condition)?)?;
                self.value(if condition { yes } else { no })?
            }
            Kind::In(both) => {
                let [of, within] = self.both(both)?;
                Value::Bool(self.is_in(&of, &within)?)
            }
            Kind::Equal(both) => Value::Bool(self.equal("==", both)?),
            Kind::NotEqual(both) => Value::Bool(!self.equal("!=", both)?),
            Kind::Compare(operator, both) => {
                let [left, right] = self.both(both)?;
                let order = compare(operator.text(), &left, &right, &mut self.budget)?;
                Value::Bool(match operator {
                    Ordered::Less => order.is_lt(),
                    Ordered::LessOrEqual => order.is_le(),
                    Ordered::Greater => order.is_gt(),
                    Ordered::GreaterOrEqual => order.is_ge(),
                })
            }
            Kind::Arithmetic(operator, both) => {
                let [left, right] = self.both(both)?;
                compute(*operator, &left, &right, &mut self.budget)?
            }
            Kind::List(nodes) => {
                let values: Result<Rc<[_]>, Failed> = nodes.iter().map(|node| self.value(node)).collect();
                Value::List(List::Made(values?))
            }
            Kind::Call(function, nodes) => {
                let values: Result<Vec<_>, Failed> = nodes.iter().map(|node| self.value(node)).collect();
                call(*function, &values?, &mut self.budget)?
            }
            Kind::Matches(of, pattern) => {
                let of = self.value(of)?;
                Value::Bool(self.matches(&of, pattern)?)
            }
            Kind::Macro(it) => self.run(it)?,
        })
    }

    fn both(&mut self, both: &'a [Node; 2]) -> Result<[Value<'a>; 2], Failed> {
        let [left, right] = both;
        Ok([self.value(left)?, self.value(right)?])
    }

    /// `&&` and `||`: the one side that decides is enough, whatever the other one is.
    fn logic(&mut self, both: &'a [Node; 2], decides: bool) -> Evaluated<'a> {
        let name = if decides { "||" } else { "&&" };
        let [left, right] = both;
        let left = self.truth_of(name, left);
        if matches!(left, Ok(left) if left == decides) || ends(&left) {
            return left.map(Value::Bool);
        }
        let right = self.truth_of(name, right)?;
        if right == decides { Ok(Value::Bool(right)) } else { left.map(Value::Bool) }
    }

    fn truth_of(&mut self, name: &'static str, node: &'a Node) -> Result<bool, Failed> {
        let value = self.value(node)?;
        truth(name, &value).map_err(|fault| Failed::from(fault).or_at(node.at))
    }

    fn equal(&mut self, operator: &'static str, both: &'a [Node; 2]) -> Result<bool, Failed> {
        let [left, right] = self.both(both)?;
        let is_text = |value: &Value<'_>| matches!(value, Value::Text(_));
        // Amounts in a pod are texts: a comparison with a number would be false for ever.
        if (left.number().is_some() && is_text(&right)) || (is_text(&left) && right.number().is_some()) {
            return Err(Fault::Types { operator, left: left.name(), right: right.name() }.into());
        }
        Ok(left.equals(&right, &mut self.budget)?)
    }

    fn is_in(&mut self, of: &Value<'a>, within: &Value<'a>) -> Result<bool, Fault> {
        match (of, within) {
            (_, Value::List(list)) => {
                for element in list.iter() {
                    if element?.equals(of, &mut self.budget)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (Value::Text(key), Value::Object(_) | Value::Native(_)) => Ok(within.get(key.as_str()).is_some()),
            _ => Err(Fault::Types { operator: "in", left: of.name(), right: within.name() }),
        }
    }

    fn matches(&mut self, of: &Value<'a>, pattern: &Pattern) -> Result<bool, Fault> {
        let Value::Text(text) = of else {
            return Err(Fault::Type { function: "matches", wants: "a text before it", found: of.name() });
        };
        let text = text.as_str();
        if text.len() > MAX_TEXT {
            return Err(Fault::LongText { bytes: text.len() });
        }
        self.budget.steps(pattern.steps(text.len()))?;
        Ok(pattern.matches(text))
    }

    fn run(&mut self, it: &'a Macro) -> Evaluated<'a> {
        let over = self.value(&it.over)?;
        let Some(elements) = over.elements() else {
            let found = over.name();
            return Err(Failed::from(Fault::Type {
                function: "a macro",
                wants: "a list or map before it",
                found,
            })
            .or_at(it.over.at));
        };
        match &it.does {
            Does::Exists(test) => self.decide(elements, test, true),
            Does::All(test) => self.decide(elements, test, false),
            Does::ExistsOne(test) => {
                let mut found = 0_usize;
                for element in elements {
                    found += usize::from(self.with(element?, |it| it.truth_of("exists_one", test))?);
                }
                Ok(Value::Bool(found == 1))
            }
            Does::Collect { takes, makes } => {
                let mut made = Vec::new();
                for element in elements {
                    let one = self.with(element?, |it| match takes {
                        Some(test) if !it.truth_of("filter", test)? => Ok(None),
                        _ => it.value(makes).map(Some),
                    })?;
                    made.extend(one);
                }
                Ok(Value::List(List::Made(Rc::from(made))))
            }
        }
    }

    /// `exists` and `all`: the first element that decides is enough, whatever those before it were.
    fn decide(
        &mut self,
        elements: impl Iterator<Item = Result<Value<'a>, Fault>>,
        test: &'a Node,
        decides: bool,
    ) -> Evaluated<'a> {
        let name = if decides { "exists" } else { "all" };
        let mut failed = None;
        for element in elements {
            let result = match element {
                Ok(element) => self.with(element, |it| it.truth_of(name, test)),
                Err(fault) => Err(fault.into()),
            };
            match result {
                Ok(result) if result == decides => return Ok(Value::Bool(decides)),
                Ok(_) => {}
                Err(error) if error.fault.ends() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn with<T>(
        &mut self,
        element: Value<'a>,
        evaluate: impl FnOnce(&mut Self) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        self.budget.step()?;
        self.elements.push(element);
        let result = evaluate(self);
        self.elements.pop();
        result
    }
}

fn ends<T>(result: &Result<T, Failed>) -> bool {
    matches!(result, Err(failed) if failed.fault.ends())
}

fn truth(name: &'static str, value: &Value<'_>) -> Result<bool, Fault> {
    match value {
        Value::Bool(value) => Ok(*value),
        _ => Err(Fault::Type { function: name, wants: "true or false", found: value.name() }),
    }
}

fn select<'a>(of: &Value<'a>, field: &str) -> Result<Value<'a>, Fault> {
    match (of.get(field), of) {
        (Some(value), _) => value,
        (None, Value::Native(_)) => Err(Fault::NoNative { key: told(field) }),
        (None, Value::Object(_)) => Err(Fault::NoKey { key: told(field) }),
        (None, _) => Err(Fault::Type { function: "a selection", wants: "a map before it", found: of.name() }),
    }
}

fn has(of: &Value<'_>, field: &str) -> Result<bool, Fault> {
    match of {
        Value::Object(_) | Value::Native(_) => Ok(of.get(field).is_some()),
        _ => Err(Fault::Type { function: "has", wants: "a selection of a map", found: of.name() }),
    }
}

fn element<'a>(of: &Value<'a>, index: &Value<'a>) -> Result<Value<'a>, Fault> {
    match (of, index) {
        (Value::List(list), Value::Int(index)) => {
            let found = usize::try_from(*index).ok().and_then(|index| list.get(index));
            found.unwrap_or(Err(Fault::NoElement { index: *index, len: list.len() }))
        }
        (Value::Object(_) | Value::Native(_), Value::Text(key)) => select(of, key.as_str()),
        _ => Err(Fault::Types { operator: "[ ]", left: of.name(), right: index.name() }),
    }
}
