//! Containers that `Evaluator`s name, as they are asked for and as pods have them.

use serde_json::{Value, json};
use sluice_api::sidecar_that_runs;

/// The flag by which one is asked, before its name and directory.
pub(crate) const OF_OBJECT: &str = "--evaluator-of-object=";

/// A container that an `Evaluator` names.
#[derive(Clone, Debug, PartialEq)]
pub struct OfEvaluator {
    /// As [`sluice_api::sidecar_of_evaluator`] makes it.
    pub container: Value,
    /// Else it is left out, and asked all the same: the pods that it selects wait, rather than being counted without it.
    pub runs: bool,
}

impl OfEvaluator {
    /// Its name, which is that of the `Evaluator`.
    #[must_use]
    pub fn name(&self) -> &str {
        name(&self.container)
    }

    /// Those that the controller's pods have by this specification.
    #[must_use]
    pub fn all_in(pod: &Value) -> Vec<Self> {
        let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        let flags = list("/containers/0/args").filter_map(|arg| arg.as_str()?.strip_prefix(OF_OBJECT));
        let names = flags.filter_map(|flag| Some(flag.split_once('=')?.0));
        names
            .map(|of| match list("/containers").find(|container| name(container) == of) {
                Some(container) => Self { container: sidecar_that_runs(container), runs: true },
                None => Self { container: json!({ "name": of }), runs: false },
            })
            .collect()
    }
}

pub(crate) fn name(container: &Value) -> &str {
    container.get("name").and_then(Value::as_str).unwrap_or_default()
}
