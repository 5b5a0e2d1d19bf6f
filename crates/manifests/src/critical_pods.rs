//! The ResourceQuota that permits the priority class.

use serde_json::{Value, json};

use crate::object::labels;
use crate::options::{InstallOptions, NamespaceUse};

/// Some clusters allow the priority classes of the system only where a ResourceQuota names them.
pub(crate) fn quota(options: &InstallOptions) -> Option<Value> {
    if options.namespace_use == NamespaceUse::Shared {
        // It would hold for the pods of others too.
        return None;
    }
    let class = options.priority_class.as_ref().filter(|class| class.starts_with("system-"))?;
    // Each Deployment has one pod more while it is rolled; and as much again for what is ending.
    let pods = options.replicas.saturating_add(1).saturating_mul(3).saturating_mul(2);
    Some(json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": "sluice-critical-pods",
            "namespace": options.namespace,
            "labels": labels(None),
        },
        "spec": {
            "hard": { "pods": pods.to_string() },
            "scopeSelector": { "matchExpressions": [{
                "scopeName": "PriorityClass",
                "operator": "In",
                "values": [class],
            }]},
        },
    }))
}
