//! Requests as the API server's audit log tells them, with its clock.

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::names;

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) user: String,
    pub(super) verb: String,
    /// With its subresource: `resourcequotas/status`.
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) code: u64,
    pub(super) dry_run: bool,
    pub(super) received: Timestamp,
    pub(super) answered: Timestamp,
    /// Uid of the migration whose target pod this is.
    pub(super) migration: Option<String>,
    /// Whether a quota enforces its spec after this write.
    pub(super) plain: bool,
}

impl Request {
    /// `None` for what is no answered request about an object.
    pub(super) fn read(event: &Value) -> Option<Self> {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        let owned = |pointer: &str| text(pointer).unwrap_or_default().to_owned();
        if text("/stage") != Some("ResponseComplete") || text("/verb") == Some("watch") {
            return None;
        }
        let resource = text("/objectRef/resource")?;
        let migration = event
            .pointer("/requestObject/metadata/labels")
            .and_then(|labels| labels.get(names::MIGRATION_JOB_LABEL))
            .and_then(Value::as_str);
        Some(Self {
            user: owned("/user/username"),
            verb: owned("/verb"),
            resource: match text("/objectRef/subresource") {
                Some(subresource) => format!("{resource}/{subresource}"),
                None => resource.to_owned(),
            },
            namespace: owned("/objectRef/namespace"),
            name: owned("/objectRef/name"),
            code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
            dry_run: text("/requestURI").is_some_and(|uri| uri.contains("dryRun=")),
            received: text("/requestReceivedTimestamp")?.parse().ok()?,
            answered: text("/stageTimestamp")?.parse().ok()?,
            migration: migration.map(str::to_owned),
            plain: event.pointer("/responseObject/spec/hard") == event.pointer("/responseObject/status/hard"),
        })
    }

    /// Whether one of Sluice's programs sent it.
    pub(super) fn is_ours(&self) -> bool {
        self.user.starts_with("system:serviceaccount:")
            && self.user.split(':').nth(2) == Some(names::INSTALL_NAMESPACE)
    }

    pub(super) fn is(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource
    }

    pub(super) const fn succeeded(&self) -> bool {
        self.code >= 200 && self.code < 300
    }

    /// Whether something was to be changed. A lease is renewed by the clock, whether anybody migrates or not.
    pub(super) fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && self.resource != "leases"
    }

    /// How long the API server took.
    pub(super) fn took_ms(&self) -> f64 {
        between_ms(self.received, self.answered)
    }
}

/// Milliseconds from one moment to another.
pub(super) fn between_ms(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;

    use super::Request;

    /// A request that was received and answered at these milliseconds.
    pub(in super::super) fn request(
        user: &str,
        verb: &str,
        resource: &str,
        name: &str,
        at: [i64; 2],
    ) -> Request {
        let [received, answered] = at.map(|ms| Timestamp::UNIX_EPOCH + SignedDuration::from_millis(ms));
        Request {
            user: user.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            code: 200,
            dry_run: false,
            received,
            answered,
            migration: None,
            plain: false,
        }
    }

    #[test]
    fn an_event_is_read() {
        let event = json!({
            "stage": "ResponseComplete", "verb": "create", "requestURI": "/x?fieldManager=a&dryRun=All",
            "user": {"username": "system:serviceaccount:sluice-system:sluice-webhook"},
            "objectRef": {"resource": "resourcequotas", "subresource": "status", "namespace": "ns", "name": "full"},
            "responseStatus": {"code": 201}, "responseObject": {"spec": {"hard": {"pods": "1"}}, "status": {"hard": {"pods": "2"}}},
            "requestObject": {"metadata": {"labels": {"kubevirt.io/migrationJobUID": "m"}}},
            "requestReceivedTimestamp": "2026-01-01T00:00:01.000250Z", "stageTimestamp": "2026-01-01T00:00:01.002750Z",
        });
        let request = Request::read(&event).unwrap();
        assert!(request.is_ours() && request.dry_run && request.succeeded() && request.is_write());
        assert!(request.is("create", "resourcequotas/status"));
        assert_eq!(request.migration.as_deref(), Some("m"));
        assert!(!request.plain);
        assert!((request.took_ms() - 2.5).abs() < 1e-9);
        assert_eq!(Request::read(&json!({"stage": "ResponseStarted"})), None);
    }
}
