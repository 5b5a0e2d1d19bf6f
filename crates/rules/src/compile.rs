//! From the parser's tree to a [`Node`]: what rules do not have is refused here.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators};
use cel::parser::{ParseErrors, Parser};

use crate::guard::{self, Refused};
use crate::literals;
use crate::names::{self, cut};
use crate::node::{Does, Kind, Macro, Node};
use crate::pattern::Pattern;
use crate::refusal::Refusal;

/// Most macros around one place.
const MAX_NESTED_MACROS: usize = 2;
/// How often the parser goes on after an error: only the first one is told.
const RECOVERIES: u32 = 1;
/// Most patterns in an expression, and the most that they take together when they are compiled.
const MAX_PATTERNS: usize = 8;
const MAX_PATTERNS_KIB: usize = 256;
/// What the parser calls the result of a macro so far.
const RESULT: &str = "@result";

/// Compiles an expression.
pub(crate) fn compile(source: &str) -> Result<Node, Refused> {
    guard::check(source)?;
    let parser = Parser::new().error_recovery_limit(RECOVERIES);
    let (tree, places) = parser.parse_with_source_info(source).map_err(|errors| syntax(source, &errors))?;
    Compiler { places, elements: Vec::new(), patterns: 0, patterns_kib: 0 }.node(&tree, 0)
}

/// The first error of the parser, without the list of all that it would have taken.
fn syntax(source: &str, errors: &ParseErrors) -> Refused {
    let Some(first) = errors.errors.first() else {
        return (0, Refusal::Syntax { message: "the parser says no more".to_owned() });
    };
    let message = first.msg.strip_prefix("Syntax error: ").unwrap_or(&first.msg);
    let message = message.split(" expecting ").next().unwrap_or_default();
    let number = |place: isize| usize::try_from(place - 1).unwrap_or(0);
    let before: usize =
        source.split_inclusive('\n').take(number(first.pos.0)).map(|line| line.chars().count()).sum();
    let at = u32::try_from(before + number(first.pos.1)).unwrap_or(0);
    (at, Refusal::Syntax { message: message.chars().take(160).collect() })
}

struct Compiler {
    places: SourceInfo,
    /// The names of the elements of the macros around, the outermost first.
    elements: Vec<String>,
    /// How many patterns there are so far, and what they take together.
    patterns: usize,
    patterns_kib: usize,
}

impl Compiler {
    /// `around`: the place of what it is a part of.
    fn node(&mut self, tree: &IdedExpr, around: u32) -> Result<Node, Refused> {
        let at = self.places.offset_for(tree.id).map_or(around, |(start, _)| start);
        let kind = match &tree.expr {
            Expr::Literal(literal) => literals::read(literal).map_err(|why| (at, why))?,
            Expr::Ident(name) => self.variable(name).map_err(|why| (at, why))?,
            Expr::Select(select) => {
                let of = Box::new(self.node(&select.operand, at)?);
                let field = select.field.as_str().into();
                if select.test { Kind::Has(of, field) } else { Kind::Select(of, field) }
            }
            Expr::List(list) if list.optional_indices.is_empty() => {
                Kind::List(self.nodes(&list.elements, at)?)
            }
            Expr::Call(call) => self.call(call, at)?,
            Expr::Comprehension(it) => Kind::Macro(Box::new(self.comprehension(it, at)?)),
            Expr::Map(_) | Expr::Struct(_) => return Err((at, Refusal::Braces)),
            Expr::List(_) | Expr::Unspecified => return Err((at, Refusal::NotAccepted)),
        };
        Ok(Node { at, kind })
    }

    fn nodes(&mut self, trees: &[IdedExpr], at: u32) -> Result<Box<[Node]>, Refused> {
        trees.iter().map(|tree| self.node(tree, at)).collect()
    }

    fn boxed(&mut self, tree: &IdedExpr, at: u32) -> Result<Box<Node>, Refused> {
        self.node(tree, at).map(Box::new)
    }

    fn variable(&self, name: &str) -> Result<Kind, Refusal> {
        if let Some(element) = self.elements.iter().rposition(|element| element == name) {
            return Ok(Kind::Element(element));
        }
        match name {
            "pod" => Ok(Kind::Pod),
            "native" => Ok(Kind::Native),
            _ => Err(Refusal::Variable { name: cut(name) }),
        }
    }

    fn call(&mut self, call: &CallExpr, at: u32) -> Result<Kind, Refused> {
        let name = call.func_name.as_str();
        if call.target.is_some() {
            return self.function(call, at);
        }
        match call.args.as_slice() {
            [of] if name == operators::LOGICAL_NOT => Ok(Kind::Not(self.boxed(of, at)?)),
            [of] if name == operators::NEGATE => Ok(Kind::Negate(self.boxed(of, at)?)),
            [left, right] if is_binary(name) => {
                let both = Box::new([self.node(left, at)?, self.node(right, at)?]);
                binary(name, both).ok_or((at, Refusal::NotAccepted))
            }
            [condition, yes, no] if name == operators::CONDITIONAL => {
                Ok(Kind::If(Box::new([self.node(condition, at)?, self.node(yes, at)?, self.node(no, at)?])))
            }
            _ => self.function(call, at),
        }
    }

    fn function(&mut self, call: &CallExpr, at: u32) -> Result<Kind, Refused> {
        if call.func_name == "matches" {
            return self.matches(call, at);
        }
        let usage = names::function(&call.func_name).map_err(|why| (at, why))?;
        let wanted = if call.target.is_some() { usage.as_method } else { usage.alone };
        if wanted != Some(call.args.len()) {
            let function = usage.function.name();
            return Err((at, Refusal::Usage { function, usage: usage.usage }));
        }
        let trees = call.target.as_deref().into_iter().chain(&call.args);
        let arguments: Result<_, _> = trees.map(|tree| self.node(tree, at)).collect();
        Ok(Kind::Call(usage.function, arguments?))
    }

    fn matches(&mut self, call: &CallExpr, at: u32) -> Result<Kind, Refused> {
        let (Some(of), [pattern]) = (&call.target, call.args.as_slice()) else {
            return Err((at, Refusal::Usage { function: "matches", usage: "text.matches(r'…')" }));
        };
        let Expr::Literal(LiteralValue::String(text)) = &pattern.expr else {
            return Err((at, Refusal::PatternNotLiteral));
        };
        let of = self.boxed(of, at)?;
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            let message = format!("the expression has more than {MAX_PATTERNS}: join some of them by |");
            return Err((at, Refusal::Pattern { message }));
        }
        let pattern = Pattern::new(text.inner()).map_err(|why| (at, why))?;
        self.patterns_kib += pattern.kib();
        if self.patterns_kib > MAX_PATTERNS_KIB {
            let message = format!(
                "compiled the patterns of the expression take more than {MAX_PATTERNS_KIB} KiB: use smaller repetitions"
            );
            return Err((at, Refusal::Pattern { message }));
        }
        Ok(Kind::Matches(of, Box::new(pattern)))
    }

    /// The parser has written macros out as loops; they are told by the shape of their step.
    fn comprehension(&mut self, it: &ComprehensionExpr, at: u32) -> Result<Macro, Refused> {
        let over = self.node(&it.iter_range, at)?;
        let name = &it.iter_var;
        if ["pod", "native"].contains(&name.as_str()) {
            return Err((at, Refusal::Hides { name: name.clone() }));
        }
        if self.elements.len() >= MAX_NESTED_MACROS {
            return Err((at, Refusal::NestedMacros));
        }
        self.elements.push(name.clone());
        let does = self.step(&it.accu_init.expr, &it.loop_step.expr, at);
        self.elements.pop();
        Ok(Macro { over, does: does? })
    }

    fn step(&mut self, first: &Expr, step: &Expr, at: u32) -> Result<Does, Refused> {
        let Expr::Call(step) = step else { return Err((at, Refusal::NotAccepted)) };
        match (first, step.func_name.as_str(), step.args.as_slice()) {
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_OR, [_, test]) => {
                Ok(Does::Exists(self.node(test, at)?))
            }
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_AND, [_, test]) => {
                Ok(Does::All(self.node(test, at)?))
            }
            (Expr::Literal(LiteralValue::Int(_)), operators::CONDITIONAL, [test, ..]) => {
                Ok(Does::ExistsOne(self.node(test, at)?))
            }
            (Expr::List(_), operators::ADD, _) => {
                let makes = made(step).ok_or((at, Refusal::NotAccepted))?;
                Ok(Does::Collect { takes: None, makes: self.node(makes, at)? })
            }
            (Expr::List(_), operators::CONDITIONAL, [test, step, _]) => {
                let Expr::Call(step) = &step.expr else { return Err((at, Refusal::NotAccepted)) };
                let makes = made(step).ok_or((at, Refusal::NotAccepted))?;
                Ok(Does::Collect { takes: Some(self.node(test, at)?), makes: self.node(makes, at)? })
            }
            _ => Err((at, Refusal::NotAccepted)),
        }
    }
}

/// What `result + [made]` adds.
fn made(step: &CallExpr) -> Option<&IdedExpr> {
    let [result, list] = step.args.as_slice() else { return None };
    let (Expr::Ident(name), Expr::List(list)) = (&result.expr, &list.expr) else { return None };
    let [made] = list.elements.as_slice() else { return None };
    (name == RESULT && step.func_name == operators::ADD).then_some(made)
}

fn is_binary(name: &str) -> bool {
    const OTHERS: [&str; 6] = [
        operators::LOGICAL_AND,
        operators::LOGICAL_OR,
        operators::EQUALS,
        operators::NOT_EQUALS,
        operators::IN,
        operators::INDEX,
    ];
    OTHERS.contains(&name) || names::ordered(name).is_some() || names::arithmetic(name).is_some()
}

fn binary(name: &str, both: Box<[Node; 2]>) -> Option<Kind> {
    Some(match name {
        operators::LOGICAL_AND => Kind::And(both),
        operators::LOGICAL_OR => Kind::Or(both),
        operators::EQUALS => Kind::Equal(both),
        operators::NOT_EQUALS => Kind::NotEqual(both),
        operators::IN => Kind::In(both),
        operators::INDEX => Kind::Index(both),
        _ => match names::ordered(name) {
            Some(ordered) => Kind::Compare(ordered, both),
            None => Kind::Arithmetic(names::arithmetic(name)?, both),
        },
    })
}
