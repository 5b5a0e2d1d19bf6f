//! Requests as the API server's audit log tells them, by its clock.

use jiff::Timestamp;
use serde_json::Value;

/// One answered request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditEvent {
    /// Who authenticated, also where the request impersonates another user.
    pub user: String,
    /// `create`, `patch`, `watch`, …
    pub verb: String,
    /// Path and query.
    pub uri: String,
    /// With its subresource: `resourcequotas/status`. Empty for a request that is about no object.
    pub resource: String,
    /// Empty for objects of the cluster.
    pub namespace: String,
    /// As the path names the object: empty in a creation with a generated name.
    pub name: String,
    /// HTTP status; 0 if the log has none.
    pub code: u64,
    /// What a refusal says.
    pub message: String,
    /// When it came.
    pub received: Timestamp,
    pub answered: Timestamp,
    /// The body, where the bed's audit policy records it.
    pub request: Value,
    /// The object in the answer, where the bed's audit policy records it.
    pub response: Value,
}

impl AuditEvent {
    /// `None` for stages before the answer, and for what has no times.
    #[must_use]
    pub fn read(mut event: Value) -> Option<Self> {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        let owned = |pointer: &str| text(pointer).unwrap_or_default().to_owned();
        if text("/stage") != Some("ResponseComplete") {
            return None;
        }
        let resource = owned("/objectRef/resource");
        let read = Self {
            user: owned("/user/username"),
            verb: owned("/verb"),
            uri: owned("/requestURI"),
            resource: match text("/objectRef/subresource") {
                Some(subresource) => format!("{resource}/{subresource}"),
                None => resource,
            },
            namespace: owned("/objectRef/namespace"),
            name: owned("/objectRef/name"),
            code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
            message: owned("/responseStatus/message"),
            received: text("/requestReceivedTimestamp")?.parse().ok()?,
            answered: text("/stageTimestamp")?.parse().ok()?,
            request: Value::Null,
            response: Value::Null,
        };
        let mut body = |side| event.get_mut(side).map(Value::take).unwrap_or_default();
        Some(Self { request: body("requestObject"), response: body("responseObject"), ..read })
    }

    /// Whether it is this verb on this resource: `pods`, `pods/status`.
    #[must_use]
    pub fn is(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource
    }

    /// Whether it asked for a change.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// Whether nothing was to be stored.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.uri.contains("dryRun=")
    }

    /// Whether it was done.
    #[must_use]
    pub const fn succeeded(&self) -> bool {
        self.code >= 200 && self.code < 300
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;

    use super::AuditEvent;

    #[test]
    fn an_answered_request_is_read() {
        let event = json!({
            "stage": "ResponseComplete", "verb": "create", "requestURI": "/x?fieldManager=a&dryRun=All",
            "user": {"username": "admin"},
            "objectRef": {"resource": "pods", "subresource": "binding", "namespace": "ns", "name": "a"},
            "responseStatus": {"code": 403, "message": "no"}, "requestObject": {"kind": "Binding"},
            "requestReceivedTimestamp": "2026-01-01T00:00:01.000250Z", "stageTimestamp": "2026-01-01T00:00:01.002750Z",
        });
        let read = AuditEvent::read(event.clone()).unwrap();
        let received: Timestamp = "2026-01-01T00:00:01.000250Z".parse().unwrap();
        let expected = AuditEvent {
            user: "admin".to_owned(),
            verb: "create".to_owned(),
            uri: "/x?fieldManager=a&dryRun=All".to_owned(),
            resource: "pods/binding".to_owned(),
            namespace: "ns".to_owned(),
            name: "a".to_owned(),
            code: 403,
            message: "no".to_owned(),
            received,
            answered: received + SignedDuration::from_micros(2500),
            request: json!({"kind": "Binding"}),
            response: json!(null),
        };
        assert_eq!(read, expected);
        assert!(
            read.is("create", "pods/binding") && read.is_write() && read.is_dry_run() && !read.succeeded()
        );
        for (field, value) in [("stage", json!("ResponseStarted")), ("stageTimestamp", json!(null))] {
            let mut other = event.clone();
            other[field] = value;
            assert_eq!(AuditEvent::read(other), None, "{field}");
        }
    }
}
