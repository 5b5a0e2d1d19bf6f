//! Requests as the API server's audit log tells them, with its clock.

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::names;
use sluice_engine::headroom::MARK;

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
    /// What it asks for a quota's status.
    pub(super) ask: Option<Ask>,
}

/// What a write of a quota's status is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// To set a mark, which ends by itself then.
    Raise { end: Option<Timestamp> },
    /// To leave it without one.
    Restore,
}

impl Ask {
    /// `None` for what leaves `status.hard` as it is.
    fn read(event: &Value) -> Option<Self> {
        let hard = |side: &str| event.pointer(&format!("/{side}/status/hard"));
        // A patch that is no object says nothing by itself.
        let asked = event.get("requestObject").is_some_and(Value::is_object);
        let hard = hard(if asked { "requestObject" } else { "responseObject" })?;
        Some(match hard.get(MARK).filter(|mark| !mark.is_null()) {
            Some(mark) => Self::Raise { end: end(mark) },
            None => Self::Restore,
        })
    }
}

/// The time in a mark.
fn end(mark: &Value) -> Option<Timestamp> {
    let number = mark.as_str().and_then(|text| text.parse().ok()).or_else(|| mark.as_i64())?;
    Timestamp::from_millisecond(number).ok()
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
        let resource = match text("/objectRef/subresource") {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource.to_owned(),
        };
        let migration = event
            .pointer("/requestObject/metadata/labels")
            .and_then(|labels| labels.get(names::MIGRATION_JOB_LABEL))
            .and_then(Value::as_str);
        let writes_quota =
            resource == "resourcequotas/status" && matches!(text("/verb"), Some("patch" | "update"));
        Some(Self {
            user: owned("/user/username"),
            verb: owned("/verb"),
            resource,
            namespace: owned("/objectRef/namespace"),
            name: owned("/objectRef/name"),
            code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
            dry_run: text("/requestURI").is_some_and(|uri| uri.contains("dryRun=")),
            received: text("/requestReceivedTimestamp")?.parse().ok()?,
            answered: text("/stageTimestamp")?.parse().ok()?,
            migration: migration.map(str::to_owned),
            ask: writes_quota.then(|| Ask::read(event)).flatten(),
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

    /// Whether it tried to create a migration's target.
    pub(super) fn is_target(&self) -> bool {
        self.is("create", "pods") && self.migration.is_some() && !self.dry_run
    }

    pub(super) const fn succeeded(&self) -> bool {
        self.code >= 200 && self.code < 300
    }

    /// What one of Sluice's programs has done to a quota's status.
    pub(super) fn done(&self) -> Option<Ask> {
        self.ask.filter(|_| self.is_ours() && !self.dry_run && self.succeeded())
    }

    /// Whether something was to be changed. A lease is renewed by the clock, whether a machine migrates or not.
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
    use serde_json::{Value, json};

    use super::{Ask, MARK, Request};

    pub(in super::super) const WEBHOOK: &str = "system:serviceaccount:sluice-system:sluice-webhook";

    pub(in super::super) fn moment(ms: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_millis(ms)
    }

    /// A request that was received and answered at these milliseconds.
    pub(in super::super) fn request(
        user: &str,
        verb: &str,
        resource: &str,
        name: &str,
        at: [i64; 2],
    ) -> Request {
        let [received, answered] = at.map(moment);
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
            ask: None,
        }
    }

    /// One of Sluice's writes of a quota's status.
    pub(in super::super) fn write(ask: Ask, quota: &str, at: [i64; 2]) -> Request {
        Request { ask: Some(ask), ..request(WEBHOOK, "patch", "resourcequotas/status", quota, at) }
    }

    fn event(verb: &str, resource: [&str; 2], asked: Value, answer: Value) -> Value {
        let [resource, subresource] = resource;
        json!({
            "stage": "ResponseComplete", "verb": verb, "requestURI": "/x?fieldManager=a",
            "user": {"username": WEBHOOK},
            "objectRef": {"resource": resource, "subresource": subresource, "namespace": "ns", "name": "full"},
            "responseStatus": {"code": 200}, "requestObject": asked, "responseObject": answer,
            "requestReceivedTimestamp": "2026-01-01T00:00:01.000250Z", "stageTimestamp": "2026-01-01T00:00:01.002750Z",
        })
    }

    fn done(asked: Value, answer: Value) -> Option<Ask> {
        Request::read(&event("patch", ["resourcequotas", "status"], asked, answer)).unwrap().done()
    }

    #[test]
    fn an_event_is_read() {
        let asked = json!({"metadata": {"labels": {"kubevirt.io/migrationJobUID": "m"}}});
        let mut event = event("create", ["pods", "binding"], asked, json!({}));
        event["requestURI"] = json!("/x?fieldManager=a&dryRun=All");
        let request = Request::read(&event).unwrap();
        assert!(request.is_ours() && request.dry_run && request.succeeded() && request.is_write());
        assert!(request.is("create", "pods/binding"));
        assert_eq!((request.migration.as_deref(), request.ask), (Some("m"), None));
        assert!((request.took_ms() - 2.5).abs() < 1e-9);
        assert_eq!(Request::read(&json!({"stage": "ResponseStarted"})), None);
    }

    #[test]
    fn a_raise_sets_a_mark_and_a_restore_leaves_none() {
        let marked = json!({"status": {"hard": {"pods": "2", MARK: "1772500000001"}, "used": {MARK: "1772500000001"}}});
        let plain = json!({"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}});
        let raise = Some(Ask::Raise { end: Some(moment(1_772_500_000_001)) });
        assert_eq!(done(marked.clone(), marked.clone()), raise);
        let removed = json!({"status": {"hard": {"pods": "1", MARK: null}, "used": {MARK: null}}});
        assert_eq!(done(removed, plain.clone()), Some(Ask::Restore));
        // A whole object, and a patch that is a list.
        assert_eq!(done(plain.clone(), plain.clone()), Some(Ask::Restore));
        assert_eq!(done(json!([{"op": "add"}]), marked.clone()), raise);
        // A nudge leaves the limits alone, whether there is a mark or not.
        let nudge = json!({"status": {"used": {"count/headroomnudges.quota.sluice.dev": "7"}}});
        assert_eq!(done(nudge.clone(), marked.clone()), None);
        assert_eq!(done(nudge, plain), None);

        let raise =
            Request::read(&event("patch", ["resourcequotas", "status"], marked.clone(), marked)).unwrap();
        assert_eq!(Request { code: 409, ..raise.clone() }.done(), None);
        assert_eq!(Request { dry_run: true, ..raise.clone() }.done(), None);
        assert_eq!(Request { user: "admin".to_owned(), ..raise }.done(), None);
    }
}
