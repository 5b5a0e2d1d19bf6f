//! Why an answer cannot be charged.

use super::{MAX_ANSWER, MAX_NAMES};
use crate::charge::Amount;
use crate::quantity::Format;
use crate::resource::Resource;

/// Why an answer cannot be charged. Names and values are cut and escaped, so that each can be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The answer is too large to be looked at.
    #[error("the answer has {bytes} bytes, the most is {MAX_ANSWER}")]
    TooLarge { bytes: usize },
    /// It is no JSON object of names and amounts.
    #[error("the list is not JSON of names and quantities: {0}")]
    NotJson(String),
    /// It has too many names.
    #[error("the list has more than {MAX_NAMES} names")]
    TooMany,
    /// A name cannot be a key of a quota.
    #[error("{name}: not a name of a quota key, write one like requests.cpu or example.com/license")]
    IllegalName { name: String },
    /// No pod can take it.
    #[error("{name}: no quota limits pods by this key, write one like requests.cpu or example.com/license")]
    NotOfPods { name: String },
    /// The evaluator may not charge it.
    #[error("{name}: not among the keys that this evaluator may charge")]
    NotAllowed { name: String },
    /// A name is there twice.
    #[error("{name}: named twice")]
    Twice { name: String },
    /// An amount is not a quantity.
    #[error("{name}: {value}: {why}")]
    NotAQuantity {
        name: String,
        /// The amount as JSON.
        value: String,
        why: String,
    },
    /// An amount is negative.
    #[error("{name}: {value}: an amount must be 0 or more")]
    Negative {
        name: String,
        /// The amount as JSON.
        value: String,
    },
    /// An amount is larger than any quota can be, [`Amount::LIMIT`].
    #[error("{name}: {value}: an amount must be at most about 2e22")]
    AboveLimit {
        name: String,
        /// The amount as JSON.
        value: String,
    },
    /// Nothing is charged, and the evaluator may not exempt pods.
    #[error(
        "the list charges nothing, let the evaluator charge something or not match (its Evaluator may set floor: \
         None)"
    )]
    Nothing,
    /// Less is charged than Kubernetes counts, and the evaluator may not do that.
    #[error(
        "{name}: {}: less than Kubernetes counts, {}, and floor is Native",
        charged.quantity(Format::DecimalSi), native.quantity(Format::DecimalSi)
    )]
    BelowNative {
        name: Resource,
        charged: Amount,
        /// What Kubernetes counts.
        native: Amount,
    },
}
