//! What the API server wrote down: neither a short lock nor a refused pod escapes its audit log.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::names;
use sluice_engine::headroom::MARK;

/// What happened in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// How long the quota was locked, each time: from the write that raised it to the one that put it back.
    pub locks: Vec<Duration>,
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
        // Answers may overtake each other, versions do not.
        answered.sort_by_key(|request| request.version);
        let mut facts = Self::default();
        let mut locked = None;
        for request in &answered {
            match (request.resource, request.verb) {
                ("pods", "create") if request.code >= 400 && request.is_target => facts.rejected += 1,
                // An apply that creates is a patch too, answered with 201.
                ("resourcequotas", "update" | "patch") if request.code == 200 => {
                    facts.spec_writes += usize::from(!request.of_status);
                    if request.is_marked {
                        locked.get_or_insert(request.at);
                    } else if let Some(since) = locked.take() {
                        facts.locks.extend(Duration::try_from(request.at.duration_since(since)));
                    }
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
    version: u64,
    is_marked: bool,
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
            version: text("/responseObject/metadata/resourceVersion")
                .and_then(|v| v.parse().ok())
                .unwrap_or(0),
            is_marked: event
                .pointer("/responseObject/status/hard")
                .is_some_and(|hard| hard.get(MARK).is_some()),
            at: text("/stageTimestamp")?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Facts, MARK};

    fn event(verb: &str, resource: &str, code: u64, ms: u64) -> Value {
        json!({
            "stage": "ResponseComplete", "verb": verb, "requestURI": "/apis",
            "objectRef": {"resource": resource, "namespace": "ns"}, "responseStatus": {"code": code},
            "stageTimestamp": format!("2026-01-01T00:00:00.{ms:03}000Z"),
        })
    }

    fn status(version: u64, ms: u64, mark: Option<&str>) -> Value {
        let mut status = event("patch", "resourcequotas", 200, ms);
        status["objectRef"]["subresource"] = json!("status");
        let hard = mark.map_or_else(|| json!({"pods": "1"}), |mark| json!({"pods": "2", MARK: mark}));
        let metadata = json!({"resourceVersion": version.to_string()});
        status["responseObject"] = json!({"metadata": metadata, "status": {"hard": hard}});
        status
    }

    #[test]
    fn locks_refusals_and_writes_of_the_spec_are_counted() {
        let mut dry = status(99, 11, None);
        dry["requestURI"] = json!("/apis?dryRun=All");
        let mut conflict = status(0, 12, None);
        conflict["responseStatus"]["code"] = json!(409);
        let mut refused = event("create", "pods", 403, 5);
        refused["requestObject"] = json!({"metadata": {"labels": {"kubevirt.io/migrationJobUID": "m"}}});
        let mut elsewhere = event("patch", "resourcequotas", 200, 15);
        elsewhere["objectRef"]["namespace"] = json!("other");
        let mut events = vec![
            status(104, 40, None),
            status(101, 10, Some("7")),
            status(103, 41, Some("9")),
            status(102, 20, Some("7")),
            status(100, 5, None),
            conflict,
            event("create", "pods", 403, 20),
            event("patch", "resourcequotas", 201, 1),
            dry,
            refused,
            elsewhere,
        ];
        let facts = Facts::read(&events, "ns");
        let expected = Facts { locks: vec![Duration::from_millis(30)], rejected: 1, spec_writes: 0 };
        assert_eq!(facts, expected);
        events.push(event("patch", "resourcequotas", 200, 60));
        assert_eq!(Facts::read(&events, "ns").spec_writes, 1);
    }
}
