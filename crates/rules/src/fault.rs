//! Why a rule has no answer for a pod.

use sluice_engine::Quantity;
use sluice_engine::quantity::QuantityError;

use crate::bounds::{MAX_MADE_BYTES, MAX_STEPS, MAX_TEXT};
use crate::place::{Field, Position};

/// Why a rule has no answer for a pod, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {position}: {why}")]
pub struct EvaluationError {
    pub field: Field,
    /// The place in its text.
    pub position: Position,
    pub why: Fault,
}

/// Why an expression has no value. Texts of the pod in it are cut to 64 characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// More than [`MAX_STEPS`].
    #[error(
        "this pod takes more than {MAX_STEPS} steps: test the cheap conditions first, and look at fewer elements"
    )]
    Steps,
    /// More than [`MAX_MADE_BYTES`].
    #[error("more than {MAX_MADE_BYTES} bytes of text are made: compare the parts instead of joining them")]
    MadeBytes,
    /// A key that a map does not have.
    #[error("there is no {key:?} here: ask before with has(), or with {key:?} in …")]
    NoKey { key: String },
    /// A key that Kubernetes charges nothing of.
    #[error("Kubernetes charges this pod no {key:?}: ask before with {key:?} in native")]
    NoNative { key: String },
    /// An index outside of a list.
    #[error("there is no element {index} in a list of {len}: ask before with size(), or use exists()")]
    NoElement {
        index: i64,
        /// Elements that there are.
        len: usize,
    },
    /// An operator between types that it does not join.
    #[error("{operator} cannot be used between {left} and {right}{}", between(left, right))]
    Types {
        operator: &'static str,
        /// Type of the value before it.
        left: &'static str,
        /// Type of the value behind it.
        right: &'static str,
    },
    /// A value of a type that a function or operator does not take.
    #[error("{function} wants {wants}, this is {found}")]
    Type {
        /// The function or operator.
        function: &'static str,
        wants: &'static str,
        /// The type that it was given.
        found: &'static str,
    },
    /// A number outside of what can be counted.
    #[error("the result of {operator} is too large: integers have 64 bits, amounts about 1.7e29")]
    Overflow { operator: &'static str },
    /// Division by zero.
    #[error("{operator} by zero: ask before whether it is zero")]
    ByZero { operator: &'static str },
    /// A text that is no amount.
    #[error("{text:?} is no amount: {error}")]
    NotAnAmount { text: String, error: QuantityError },
    /// A text that is no integer.
    #[error("{text:?} is no integer of 64 bits: write digits, or use quantity()")]
    NotAnInt { text: String },
    /// `min` or `max` of nothing.
    #[error("{function} of an empty list: ask before with size(), or add an element")]
    EmptyList { function: &'static str },
    /// A text that is too long to match.
    #[error(
        "a text of {bytes} bytes is matched, at most {MAX_TEXT} can be: use startsWith, endsWith or contains"
    )]
    LongText { bytes: usize },
    /// A charge below zero.
    #[error("the amount is {amount}, below zero: use [amount, 0].max()")]
    Negative { amount: Quantity },
    /// A charge above what quotas can hold.
    #[error("the amount is {amount}, no quota is that large: the limit is 2^104 nano-units, about 2e22")]
    TooLarge { amount: Quantity },
}

impl Fault {
    /// Whether the evaluation ends here, whatever is around it.
    pub(crate) const fn ends(&self) -> bool {
        matches!(self, Self::Steps | Self::MadeBytes)
    }
}

/// What to write where a text meets a number: amounts in a pod are texts.
fn between(left: &str, right: &str) -> &'static str {
    let is_number = |name: &str| ["an integer", "an amount"].contains(&name);
    if (left == "a text" && is_number(right)) || (right == "a text" && is_number(left)) {
        ": write quantity() around the text"
    } else {
        ""
    }
}

/// A fault, and the number of the character where it happened.
#[derive(Debug)]
pub(crate) struct Failed {
    pub at: Option<u32>,
    pub fault: Fault,
}

impl Failed {
    /// The innermost place stays.
    pub(crate) fn or_at(self, at: u32) -> Self {
        Self { at: self.at.or(Some(at)), ..self }
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self { at: None, fault }
    }
}
