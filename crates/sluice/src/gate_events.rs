//! What the gate tells people, as events of Kubernetes.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use sluice_api::{AAQ, ApplicationAwareClusterResourceQuota, ApplicationAwareResourceQuota};
use sluice_gate::{GateEvent, Regarding};
use sluice_index::{VmiWire, VmimWire};
use sluice_runtime::events::{EventType, Report};

/// The event about the object that the gate names.
pub fn report(event: GateEvent) -> Report {
    let (api_version, kind, action) = match event.regarding {
        Regarding::Pod(_) => ("v1".into(), "Pod".into(), "Hold"),
        Regarding::Quota(_) if event.namespace.is_empty() => {
            let api = ApplicationAwareClusterResourceQuota::api_version(&());
            (api, ApplicationAwareClusterResourceQuota::kind(&()), "Count")
        }
        Regarding::Quota(_) => {
            let api = <ApplicationAwareResourceQuota as Resource>::api_version(&());
            (api, ApplicationAwareResourceQuota::kind(&()), "Count")
        }
        Regarding::Machine => (VmiWire::api_version(&()), VmiWire::kind(&()), "Admit"),
        Regarding::VirtualMachine => (VmiWire::api_version(&()), "VirtualMachine".into(), "Hold"),
        Regarding::Migration => (VmimWire::api_version(&()), VmimWire::kind(&()), "Hold"),
        Regarding::Namespace => ("v1".into(), "Namespace".into(), "Pause"),
        Regarding::Configuration => (AAQ::api_version(&()), AAQ::kind(&()), "Release"),
    };
    Report {
        regarding: ObjectReference {
            api_version: Some(api_version.into_owned()),
            kind: Some(kind.into_owned()),
            namespace: Some(event.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
            name: Some(event.name.to_string()),
            uid: Some(event.uid.to_string()),
            ..ObjectReference::default()
        },
        related: None,
        type_: EventType::Warning,
        reason: event.reason.to_owned(),
        action: action.to_owned(),
        note: event.message,
    }
}
