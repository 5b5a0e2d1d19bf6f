//! Events of `AAQ` and `MTQ`: one for each change of the phase, in the words of application-aware-quota's operator where it
//! has some.

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::Value;
use sluice_api::names;
use sluice_runtime::events::{EventType, Report};

use super::apply::{Target, Write};
use super::observe::World;

/// The event about a write that was done; `None` if it leaves the phase. `world`: what the write was planned for.
pub(super) fn of(world: &World, write: &Write) -> Option<Report> {
    let (kind, api_version, name, orders) = match &write.target {
        Target::Aaq(name) => ("AAQ", names::API_VERSION.to_owned(), name, &world.aaqs),
        Target::Mtq(name) => ("MTQ", format!("{}/{}", names::MTQ_GROUP, names::VERSION), name, &world.mtqs),
        Target::Operand(_) | Target::Needless { .. } => return None,
    };
    let order = orders.as_ref()?.get(name)?;
    let before = order.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let status = write.body.get("status")?;
    let text = |field: &str| status.get(field).and_then(Value::as_str).unwrap_or_default();
    let after = text("phase");
    if before == after {
        return None;
    }
    let normal = |reason: &str, note: &str| (EventType::Normal, reason.to_owned(), note.to_owned());
    let (type_, reason, note) = match (before, after) {
        ("", "Deploying") => normal("DeployStarted", "Started Deployment"),
        (_, "Deployed") => normal("DeployCompleted", "Deployment Completed"),
        (_, "Upgrading") => {
            normal("UpgradeStarted", &format!("Started upgrade to version {}", text("targetVersion")))
        }
        (_, "Deleting") => normal("DeleteStarted", "Started removal"),
        (_, "Deleted") => normal("DeleteCompleted", "Removal completed"),
        (_, "Error") => {
            let note = format!("Reconciling to error state, unwanted {kind} object");
            (EventType::Warning, "ConfigError".to_owned(), note)
        }
        // It did its work before, and does not now.
        _ => {
            let said = available(status);
            let of = |field: &str| said.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            (EventType::Warning, of("reason"), of("message"))
        }
    };
    let regarding = ObjectReference {
        api_version: Some(api_version),
        kind: Some(kind.to_owned()),
        name: Some(name.clone()),
        uid: Some(order.uid.clone()),
        ..ObjectReference::default()
    };
    Some(Report { regarding, related: None, type_, reason, action: "Reconcile".to_owned(), note })
}

fn available(status: &Value) -> &Value {
    let conditions = status.get("conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|said| said.get("type").is_some_and(|kind| kind == names::AVAILABLE))
        .unwrap_or(&Value::Null)
}
