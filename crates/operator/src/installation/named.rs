//! What is known of the containers that `Evaluator`s name.

use std::collections::BTreeMap;

use serde_json::Value;

/// What is known of `Evaluator`s.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Evaluators {
    pub(super) named: Option<BTreeMap<String, NamedSidecar>>,
    /// Their CRD is there, and is to stay.
    pub(super) is_served: Option<bool>,
    /// Why one of these has not been read for a while, also if it was before.
    pub(super) unread: Option<String>,
}

/// What matters of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NamedSidecar {
    /// Seconds since 1970.
    pub(super) created: i64,
    /// `None`: it names none, or has a name under which it cannot be asked.
    pub(super) container: Option<Value>,
    /// Something of the container is refused, so that it does not run.
    pub(super) is_refused: bool,
}
