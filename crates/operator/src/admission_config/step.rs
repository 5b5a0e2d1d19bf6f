//! One write of a plan.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::gated::is_last;
use super::observe::Kind;

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// A JSON patch. It applies to the version it was planned for, or not at all.
    Patch {
        kind: Kind,
        /// JSON patch.
        operations: Value,
    },
    /// The object is missing.
    Create {
        /// What is missing.
        kind: Kind,
        /// All of it. It names its owner.
        object: Value,
    },
    /// The object does not belong to the operator's ClusterRole, or does not name its writer.
    Own {
        /// Which object.
        kind: Kind,
        /// To what it is to belong.
        owner: OwnerReference,
        /// Strategic merge patch.
        body: Value,
    },
}

impl Step {
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Patch { kind, .. } | Self::Create { kind, .. } | Self::Own { kind, .. } => *kind,
        }
    }

    /// Whether it changes what an object says.
    pub(super) const fn puts_back(&self) -> bool {
        matches!(self, Self::Patch { .. })
    }

    /// Whether something that gates gets other namespaces: what refuses has to wait until API servers have followed.
    pub(super) fn selects_for_gates(&self) -> bool {
        let Self::Patch { kind, operations } = self else { return false };
        let selects = |operation: &Value| {
            let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
            path.ends_with("/namespaceSelector")
        };
        !is_last(*kind) && operations.as_array().is_some_and(|all| all.iter().any(selects))
    }
}

/// A JSON patch of the object's version that was seen.
pub(super) fn patch(kind: Kind, resource_version: &str, mut operations: Vec<Value>) -> Step {
    let unchanged = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": resource_version });
    operations.insert(0, unchanged);
    Step::Patch { kind, operations: Value::Array(operations) }
}
