//! Events about an installation as a whole.

use k8s_openapi::api::core::v1::ObjectReference;
use sluice_runtime::events::{EventType, Report};

/// About the namespace of the installation: there is no other object that all of it is about.
pub fn alarmed(namespace: &str, reason: &str, note: String) -> Report {
    Report {
        regarding: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Namespace".to_owned()),
            name: Some(namespace.to_owned()),
            ..ObjectReference::default()
        },
        related: None,
        type_: EventType::Warning,
        reason: reason.to_owned(),
        action: "Gate".to_owned(),
        note,
    }
}
