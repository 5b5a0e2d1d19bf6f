//! What the audit log says happened in a namespace.

use serde_json::Value;
use sluice_api::names;
use sluice_e2e::tenant::Tenant;
use sluice_testbed::kubevirt::CONTROLLER;

/// The requests of one namespace.
pub struct Trail(Vec<Value>);

/// A request to create a pod that was let in.
#[derive(Debug)]
#[allow(dead_code, reason = "read when an assertion prints it")]
pub struct Entry {
    pub pod: String,
    pub received: String,
    pub done: String,
}

/// When a quota was raised, and when the window that it was raised in was deleted.
#[derive(Debug)]
struct Raised<'t> {
    from: &'t str,
    to: &'t str,
}

impl Trail {
    /// Everything that was answered before this call.
    pub async fn of(tenant: &Tenant<'_>) -> Self {
        let mut events = tenant.bed.audit_events().await.unwrap();
        events.retain(|event| text(event, "/objectRef/namespace") == tenant.name());
        Self(events)
    }

    fn done<'t>(&'t self, verb: &'t str, resource: &'t str) -> impl Iterator<Item = &'t Value> {
        self.0.iter().filter(move |event| {
            text(event, "/verb") == verb
                && text(event, "/objectRef/resource") == resource
                && event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300)
                && !text(event, "/requestURI").contains("dryRun")
        })
    }

    /// When virt-controller was refused a pod, and why.
    pub fn rejected_attempts(&self) -> Vec<(&str, &str)> {
        let rejected = |event: &&Value| {
            text(event, "/verb") == "create"
                && text(event, "/objectRef/resource") == "pods"
                && text(event, "/objectRef/subresource").is_empty()
                && text(event, "/user/username") == CONTROLLER
                && event["responseStatus"]["code"] == 403
        };
        let told = |event| (text(event, RECEIVED), text(event, "/responseStatus/message"));
        self.0.iter().filter(rejected).map(told).collect()
    }

    /// How many windows were opened.
    pub fn windows(&self) -> usize {
        self.done("create", names::MIGRATION_WINDOWS).count()
    }

    /// How often Sluice tried to write the status of a quota.
    pub fn status_writes(&self) -> usize {
        let ours = |event: &&Value| {
            text(event, "/objectRef/resource") == "resourcequotas"
                && text(event, "/objectRef/subresource") == "status"
                && !text(event, "/requestURI").contains("dryRun")
                && is_sluice(event)
        };
        self.0.iter().filter(ours).count()
    }

    fn raised(&self) -> Vec<Raised<'_>> {
        let mut ends: Vec<&str> =
            self.done("delete", names::MIGRATION_WINDOWS).map(|event| text(event, RECEIVED)).collect();
        ends.sort_unstable();
        let raises = self.done("patch", "resourcequotas").filter(|event| {
            is_sluice(event)
                && event["responseObject"]["status"]["hard"] != event["responseObject"]["spec"]["hard"]
        });
        raises
            .map(|event| {
                let from = text(event, RECEIVED);
                let to = ends.iter().find(|end| **end > from).copied().unwrap_or("9");
                Raised { from, to }
            })
            .collect()
    }

    /// How many raises there were.
    pub fn raises(&self) -> usize {
        self.raised().len()
    }

    /// Pods of `user` that were asked for and let in between a raise and the end of its window.
    pub fn let_in_while_raised(&self, user: &str) -> Vec<Entry> {
        let raised = self.raised();
        let entries = self.done("create", "pods").filter(|event| {
            text(event, "/user/username") == user && text(event, "/objectRef/subresource").is_empty()
        });
        let entries = entries.map(|event| Entry {
            pod: text(event, "/objectRef/name").to_owned(),
            received: text(event, RECEIVED).to_owned(),
            done: text(event, "/stageTimestamp").to_owned(),
        });
        // Times of one clock, written alike: they compare as texts.
        entries
            .filter(|entry| {
                raised
                    .iter()
                    .any(|raised| raised.from < entry.received.as_str() && entry.done.as_str() < raised.to)
            })
            .collect()
    }
}

const RECEIVED: &str = "/requestReceivedTimestamp";

fn is_sluice(event: &Value) -> bool {
    text(event, "/user/username").starts_with(&format!("system:serviceaccount:{}:", names::INSTALL_NAMESPACE))
}

fn text<'v>(event: &'v Value, pointer: &str) -> &'v str {
    event.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Not one target of so many migrations was refused: room was made before it was looked for.
pub async fn assert_none_rejected(tenant: &Tenant<'_>, migrations: usize) {
    let rejected = tenant.rejected_attempts().await;
    assert_eq!(rejected, 0, "rejected attempts in {migrations} migrations in {}", tenant.name());
}
