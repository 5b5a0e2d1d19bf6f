//! Where in an object an error is.

use std::fmt;
use std::sync::Arc;

/// A field of an `Evaluator` that holds an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// `spec.cel.match`.
    Match,
    /// `spec.cel.charge` as a whole.
    Charges,
    /// The entry of `spec.cel.charge` with this key.
    Charge(Arc<str>),
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Match => f.write_str("spec.cel.match"),
            Self::Charges => f.write_str("spec.cel.charge"),
            Self::Charge(key) => write!(f, "spec.cel.charge[{key}]"),
        }
    }
}

/// A place in an expression: both numbers start at 1, columns are counted in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl Position {
    /// The place of the character with this number, from 0.
    pub(crate) fn of(source: &str, character: u32) -> Self {
        let before = source.chars().take(usize::try_from(character).unwrap_or(usize::MAX));
        let mut place = Self { line: 1, column: 1 };
        for character in before {
            if character == '\n' {
                place = Self { line: place.line.saturating_add(1), column: 1 };
            } else {
                place.column = place.column.saturating_add(1);
            }
        }
        place
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}
