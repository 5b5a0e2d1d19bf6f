//! Why a text is no rule.

use crate::bounds::{MAX_CHAIN, MAX_KEYS, MAX_LEN, MAX_LEVELS};
use crate::place::{Field, Position};

/// Why a rule was refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {}{why}", position.map(|it| format!("{it}: ")).unwrap_or_default())]
pub struct CompileError {
    pub field: Field,
    /// The place in its text; absent where it is about all of it.
    pub position: Option<Position>,
    pub why: Refusal,
}

/// Why a rule was refused. The texts say what was tried and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No expression.
    #[error("the expression is empty: write true to match every pod, or an amount such as 1")]
    Empty,
    /// More than [`MAX_LEN`].
    #[error("the expression has {bytes} bytes, at most {MAX_LEN} are allowed: write several Evaluators")]
    TooLong { bytes: usize },
    /// More than [`MAX_LEVELS`].
    #[error(
        "more than {MAX_LEVELS} brackets, unary operators and conditionals are around this: take out those that do not \
         change the value"
    )]
    TooDeep,
    /// More than [`MAX_CHAIN`].
    #[error(
        "more than {MAX_CHAIN} operators, selections and calls come before this: use a list with sum(), exists() or `in`"
    )]
    LongChain,
    /// A bracket or quote without its end.
    #[error("{what} is not closed: add its end")]
    Unclosed {
        /// What was opened.
        what: char,
    },
    /// The end of a bracket that was not opened.
    #[error("{what} closes nothing that is open here: remove it, or open it before")]
    Unopened {
        /// What is closed.
        what: char,
    },
    /// Map and message literals.
    #[error("maps and messages cannot be made: choose by a conditional, as in a == 'x' ? 1 : 2")]
    Braces,
    /// A character that no expression has outside of texts.
    #[error("{character:?} means nothing here: put text into quotes")]
    Character { character: char },
    /// A letter or digit right before a quote.
    #[error(
        "a letter or digit stands right before a quote: put a blank between them; only r'…' has a letter there"
    )]
    Prefix,
    /// An escape that is not accepted.
    #[error(
        "a backslash begins \\\\ \\' \\\" \\n \\r \\t \\xHH or \\uHHHH: write r'…' around a pattern, where a \
        backslash is itself"
    )]
    Escape,
    /// What the parser says.
    #[error("it cannot be parsed: {message}")]
    Syntax {
        /// Its own words.
        message: String,
    },
    /// A variable that is not there.
    #[error(
        "there is no variable {name}: use pod and native, and within exists, all, filter and map their elements"
    )]
    Variable { name: String },
    /// An element that hides a variable.
    #[error("{name} cannot be the name of an element, it is a variable: choose another name")]
    Hides { name: String },
    /// A function that is not accepted.
    #[error("there is no function {name}: {remedy}")]
    Function {
        name: String,
        /// What to use.
        remedy: &'static str,
    },
    /// A function with the wrong arguments.
    #[error("{function} is not used like this: write {usage}")]
    Usage {
        function: &'static str,
        /// How it is used.
        usage: &'static str,
    },
    /// A pattern that is no literal.
    #[error("the pattern of matches is not a text in quotes: write it out, it is compiled once")]
    PatternNotLiteral,
    /// A pattern that is not accepted.
    #[error("the pattern cannot be used: {message}")]
    Pattern {
        /// Why, and what to do.
        message: String,
    },
    /// A literal of another type.
    #[error("{what} cannot be used: {remedy}")]
    Literal {
        what: &'static str,
        /// What to write.
        remedy: &'static str,
    },
    /// A macro within two others.
    #[error(
        "exists, all, filter and map are nested more than twice here: what takes so many turns is too slow for a rule"
    )]
    NestedMacros,
    /// Anything else that CEL knows.
    #[error(
        "this is not accepted in a rule: use selections, comparisons, arithmetic, `in`, conditionals and the functions of \
             the documentation"
    )]
    NotAccepted,
    #[error("no amount is given: write the key of a quota and an expression for its amount")]
    NoCharge,
    /// More than [`MAX_KEYS`].
    #[error("{keys} keys are given, at most {MAX_KEYS} are allowed: write several Evaluators")]
    Keys {
        /// How many.
        keys: usize,
    },
    /// A key that quotas cannot have for pods.
    #[error(
        "no pod can be charged with this key: use one that pods consume, such as requests.cpu, or a name with a \
        domain, such \
         as example.com/license"
    )]
    Key,
    /// Two names of one number.
    #[error("it is the same number as {other}: give one of the two")]
    SameKey {
        /// The other name.
        other: String,
    },
}
