//! What the API server wrote down: neither a fast window nor a refused pod escapes its audit log.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::names;

/// What happened in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// How long each window was open, in their order.
    pub windows: Vec<Duration>,
    /// How often the target pod of a migration was refused.
    pub rejected: usize,
    /// How often something of a quota but its status was written after its creation.
    pub spec_writes: usize,
}

impl Facts {
    /// Reads them from audit events, in whatever order these are.
    pub fn read(events: &[Value], namespace: &str) -> Self {
        let mut answered: Vec<Request<'_>> = events.iter().filter_map(Request::read).collect();
        answered.retain(|request| request.namespace == namespace && !request.dry_run);
        answered.sort_by_key(|request| request.at);
        let mut facts = Self::default();
        let mut opened = None;
        for request in &answered {
            let (ok, write) = (request.code < 300, matches!(request.verb, "update" | "patch"));
            match (request.resource, request.verb) {
                (names::MIGRATION_WINDOWS, "create") if ok => opened = Some(request.at),
                (names::MIGRATION_WINDOWS, "delete") if ok => {
                    let since = opened.take().map(|opened| request.at.duration_since(opened));
                    facts.windows.extend(since.and_then(|open| Duration::try_from(open).ok()));
                }
                ("pods", "create") if request.code >= 400 && request.is_target => facts.rejected += 1,
                // An apply that creates is a patch too, answered with 201.
                ("resourcequotas", _) if request.code == 200 && write && !request.of_status => {
                    facts.spec_writes += 1;
                }
                _ => {}
            }
        }
        facts
    }
}

struct Request<'e> {
    namespace: &'e str,
    resource: &'e str,
    of_status: bool,
    verb: &'e str,
    code: u64,
    dry_run: bool,
    is_target: bool,
    at: Timestamp,
}

impl<'e> Request<'e> {
    fn read(event: &'e Value) -> Option<Self> {
        let text = |pointer| event.pointer(pointer).and_then(Value::as_str);
        if text("/stage") != Some("ResponseComplete") {
            return None;
        }
        let labels = event.pointer("/requestObject/metadata/labels");
        Some(Self {
            namespace: text("/objectRef/namespace")?,
            resource: text("/objectRef/resource")?,
            of_status: text("/objectRef/subresource") == Some("status"),
            verb: text("/verb")?,
            code: event.pointer("/responseStatus/code").and_then(Value::as_u64)?,
            dry_run: text("/requestURI").is_some_and(|uri| uri.contains("dryRun=")),
            is_target: labels.is_some_and(|labels| labels.get(names::MIGRATION_JOB_LABEL).is_some()),
            at: text("/stageTimestamp")?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::Facts;

    fn event(verb: &str, resource: &str, code: u64, ms: u64) -> Value {
        json!({
            "stage": "ResponseComplete", "verb": verb, "requestURI": "/apis",
            "objectRef": {"resource": resource, "namespace": "ns"}, "responseStatus": {"code": code},
            "stageTimestamp": format!("2026-01-01T00:00:00.{ms:03}000Z"),
        })
    }

    #[test]
    fn windows_refusals_and_writes_of_the_spec_are_counted() {
        let mut dry = event("create", "migrationwindows", 201, 11);
        dry["requestURI"] = json!("/apis?dryRun=All");
        let mut refused = event("create", "pods", 403, 5);
        refused["requestObject"] = json!({"metadata": {"labels": {"kubevirt.io/migrationJobUID": "m"}}});
        let mut status = event("patch", "resourcequotas", 200, 15);
        status["objectRef"]["subresource"] = json!("status");
        let mut elsewhere = event("patch", "resourcequotas", 200, 15);
        elsewhere["objectRef"]["namespace"] = json!("other");
        let mut events = vec![
            event("delete", "migrationwindows", 200, 40),
            event("create", "migrationwindows", 201, 10),
            event("create", "migrationwindows", 409, 12),
            event("create", "pods", 403, 20),
            event("patch", "resourcequotas", 201, 1),
            dry,
            refused,
            status,
            elsewhere,
        ];
        let facts = Facts::read(&events, "ns");
        let expected = Facts { windows: vec![Duration::from_millis(30)], rejected: 1, spec_writes: 0 };
        assert_eq!(facts, expected);
        events.push(event("patch", "resourcequotas", 200, 60));
        assert_eq!(Facts::read(&events, "ns").spec_writes, 1);
    }
}
