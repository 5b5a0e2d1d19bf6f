//! What the API server wrote down: neither a short lock nor a refused pod escapes its audit log.

use std::time::Duration;

use serde_json::Value;
use sluice_e2e::audit::AuditEventExt as _;
use sluice_testbed::audit::AuditEvent;

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
    pub fn read(mut events: Vec<AuditEvent>, namespace: &str) -> Self {
        events.retain(|event| event.namespace == namespace && !event.is_dry_run());
        // Answers may overtake each other, versions do not.
        events.sort_by_key(version);
        let mut facts = Self::default();
        let mut locked = None;
        for event in &events {
            match (event.resource.as_str(), event.verb.as_str()) {
                ("pods", "create") if event.code >= 400 && event.is_target() => facts.rejected += 1,
                // An apply that creates is a patch too, answered with 201.
                ("resourcequotas" | "resourcequotas/status", "update" | "patch") if event.code == 200 => {
                    facts.spec_writes += usize::from(event.resource == "resourcequotas");
                    if event.mark_end().is_some() {
                        locked.get_or_insert(event.answered);
                    } else if let Some(since) = locked.take() {
                        facts.locks.extend(Duration::try_from(event.answered.duration_since(since)));
                    }
                }
                _ => {}
            }
        }
        facts
    }
}

/// The version of the object in the answer: etcd's revision.
fn version(event: &AuditEvent) -> u64 {
    let version = event.response.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;
    use sluice_engine::headroom::MARK;
    use sluice_testbed::audit::AuditEvent;

    use super::Facts;

    fn event(verb: &str, resource: &str, code: u64, ms: i64) -> AuditEvent {
        AuditEvent {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: "ns".to_owned(),
            code,
            answered: Timestamp::UNIX_EPOCH + SignedDuration::from_millis(ms),
            ..AuditEvent::default()
        }
    }

    fn status(version: u64, ms: i64, mark: Option<&str>) -> AuditEvent {
        let hard = mark.map_or_else(|| json!({"pods": "1"}), |mark| json!({"pods": "2", MARK: mark}));
        let metadata = json!({"resourceVersion": version.to_string()});
        let response = json!({"metadata": metadata, "status": {"hard": hard}});
        AuditEvent { response, ..event("patch", "resourcequotas/status", 200, ms) }
    }

    #[test]
    fn locks_refusals_and_writes_of_the_spec_are_counted() {
        let target = json!({"metadata": {"labels": {"kubevirt.io/migrationJobUID": "m"}}});
        let mut events = vec![
            status(104, 40, None),
            status(101, 10, Some("7")),
            status(103, 41, Some("9")),
            status(102, 20, Some("7")),
            status(100, 5, None),
            AuditEvent { code: 409, ..status(0, 12, None) },
            event("create", "pods", 403, 20),
            event("patch", "resourcequotas", 201, 1),
            AuditEvent { uri: "/apis?dryRun=All".to_owned(), ..status(99, 11, None) },
            AuditEvent { request: target, ..event("create", "pods", 403, 5) },
            AuditEvent { namespace: "other".to_owned(), ..event("patch", "resourcequotas", 200, 15) },
        ];
        let facts = Facts::read(events.clone(), "ns");
        let expected = Facts { locks: vec![Duration::from_millis(30)], rejected: 1, spec_writes: 0 };
        assert_eq!(facts, expected);
        events.push(event("patch", "resourcequotas", 200, 60));
        assert_eq!(Facts::read(events, "ns").spec_writes, 1);
    }
}
