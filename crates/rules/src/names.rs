//! The functions and operators by the names that `cel` gives them.

use cel::common::ast::operators;

use crate::node::{Arithmetic, Function, Ordered};
use crate::refusal::Refusal;

/// How a function is called.
pub(crate) struct Usage {
    pub function: Function,
    /// Whether it may have a receiver, and how many arguments beside it.
    pub as_method: Option<usize>,
    /// How many arguments it has without one.
    pub alone: Option<usize>,
    pub usage: &'static str,
}

const USAGES: [Usage; 10] = [
    usage(Function::Size, Some(0), Some(1), "size(x) or x.size()"),
    usage(Function::StartsWith, Some(1), None, "text.startsWith('…')"),
    usage(Function::EndsWith, Some(1), None, "text.endsWith('…')"),
    usage(Function::Contains, Some(1), None, "text.contains('…')"),
    usage(Function::Quantity, None, Some(1), "quantity('500m') or quantity(2)"),
    usage(Function::Sum, Some(0), None, "list.sum()"),
    usage(Function::Min, Some(0), None, "[a, b].min()"),
    usage(Function::Max, Some(0), None, "[a, b].max()"),
    usage(Function::Ceil, Some(0), None, "amount.ceil()"),
    usage(Function::Int, None, Some(1), "int(x)"),
];

const fn usage(
    function: Function,
    as_method: Option<usize>,
    alone: Option<usize>,
    usage: &'static str,
) -> Usage {
    Usage { function, as_method, alone, usage }
}

pub(crate) fn function(name: &str) -> Result<&'static Usage, Refusal> {
    USAGES
        .iter()
        .find(|usage| usage.function.name() == name)
        .ok_or_else(|| Refusal::Function { name: cut(name), remedy: instead_of(name) })
}

/// What to write for a function that others know.
fn instead_of(name: &str) -> &'static str {
    match name {
        "exists" | "all" | "filter" | "map" | "exists_one" => {
            "macros take a name and an expression, as in list.exists(c, c.name == 'x')"
        }
        "has" => "has takes one selection, as in has(pod.metadata.labels)",
        "timestamp" | "duration" | "now" | "getFullYear" | "getHours" => {
            "a rule has no clock, so that its answer stays until the pod changes"
        }
        "double" | "uint" | "float" => "numbers are exact: use quantity(x), or int(x)",
        "string" => "compare with a text, or use int(x) or quantity(x) of a text",
        "floor" => "use int(x)",
        "round" => "use ceil(), or int(x)",
        "isQuantity" => "hold the pod: quantity(x) of anything else is an error that names the text",
        "isGreaterThan" | "isLessThan" | "compareTo" | "add" | "sub" => "use <, >, + and - on amounts",
        "sign" | "asInteger" | "asApproximateFloat" => "use <, > and int(x) on amounts",
        "matchesRegex" | "find" | "findAll" | "regex" => "use text.matches(r'…')",
        "lowerAscii" | "upperAscii" | "replace" | "split" | "substring" | "trim" | "join" | "format" => {
            "compare by startsWith, endsWith, contains and matches"
        }
        _ => {
            "use size, startsWith, endsWith, contains, matches, quantity, int, ceil, sum, min and max, and the macros has, \
             exists, all, exists_one, filter and map"
        }
    }
}

/// A name as it is told.
pub(crate) fn cut(name: &str) -> String {
    const LONGEST: usize = 64;
    name.chars().take(LONGEST).collect()
}

/// The comparison by order of this name.
pub(crate) fn ordered(name: &str) -> Option<Ordered> {
    Some(match name {
        operators::LESS => Ordered::Less,
        operators::LESS_EQUALS => Ordered::LessOrEqual,
        operators::GREATER => Ordered::Greater,
        operators::GREATER_EQUALS => Ordered::GreaterOrEqual,
        _ => return None,
    })
}

/// The operator on numbers of this name.
pub(crate) fn arithmetic(name: &str) -> Option<Arithmetic> {
    Some(match name {
        operators::ADD => Arithmetic::Add,
        operators::SUBSTRACT => Arithmetic::Subtract,
        operators::MULTIPLY => Arithmetic::Multiply,
        operators::DIVIDE => Arithmetic::Divide,
        operators::MODULO => Arithmetic::Remainder,
        _ => return None,
    })
}
