//! Which of the shipped objects a control plane gets, and which of them gates there.

use serde_json::Value;
use sluice_api::names;

/// Whether it starts no containers, which could not run here.
pub(crate) fn runs_nothing(object: &Value) -> bool {
    object.get("kind").is_some_and(|kind| kind != "Deployment")
}

/// Whether it judges or changes pods, apart from head-room.
pub(crate) fn is_about_pods(object: &Value) -> bool {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    let policies = [names::GATE_POLICY, names::STAMP_POLICY, names::GUARD_POLICY, names::GATED_POLICY];
    kind.ends_with("WebhookConfiguration") || (kind.contains("AdmissionPolicy") && policies.contains(&name))
}

/// Whether the webhook alone gates at this minor version of Kubernetes, such as `1.34`.
pub(crate) fn gates_by_webhook(version: &str) -> bool {
    let minor = version.strip_prefix("1.").and_then(|minor| minor.parse::<u32>().ok());
    minor.is_some_and(|minor| minor < 36)
}
