//! What the audit log says that Sluice and KubeVirt's controller did in a namespace.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::tenant::{SOON, Tenant};
use sluice_engine::headroom::MARK;
use sluice_testbed::kubevirt::CONTROLLER;
use sluice_testbed::{Bed, wait};

/// The key of `status.used` that the controller counts when it wakes KubeVirt's controller.
pub const NUDGE: &str = "count/headroomnudges.quota.sluice.dev";

/// The requests of one namespace, in the order of their answers.
pub struct Trail(Vec<Value>);

/// A time in which a quota had a mark: from the answer to the raise to the request that restored it.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Lock {
    pub fn duration(self) -> SignedDuration {
        self.to.duration_since(self.from)
    }
}

impl Trail {
    /// Everything that was answered before this call.
    pub async fn of(bed: &Bed, namespace: &str) -> Self {
        let mut events = bed.audit_events_with(namespace).await.unwrap();
        events.retain(|event| text(event, "/objectRef/namespace") == namespace);
        events.sort_by_key(answered);
        Self(events)
    }

    pub async fn of_tenant(tenant: &Tenant<'_>) -> Self {
        Self::of(tenant.bed, tenant.name()).await
    }

    /// Requests of Sluice's accounts to write the status of quotas; dry runs are none.
    pub fn status_writes(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(|event| {
            text(event, "/objectRef/resource") == "resourcequotas"
                && text(event, "/objectRef/subresource") == "status"
                && !["get", "list", "watch"].contains(&text(event, "/verb"))
                && !text(event, "/requestURI").contains("dryRun")
                && is_ours(event)
        })
    }

    /// Writes that set a mark and were done.
    pub fn raises(&self) -> Vec<&Value> {
        let sets_mark = |event: &&Value| event["requestObject"]["status"]["hard"][MARK].is_string();
        self.status_writes().filter(sets_mark).filter(|event| is_done(event)).collect()
    }

    /// What the controller wrote, all of it done: it only counts nudges. Returns how often.
    pub fn nudges(&self) -> usize {
        let nudges = self.status_writes().filter(|event| is_by(event, names::CONTROLLER));
        let written = nudges.map(|event| &event["requestObject"]["status"]);
        written
            .inspect(|status| {
                let count = status["used"][NUDGE].as_str().unwrap_or_else(|| panic!("{status}"));
                assert_eq!(**status, json!({ "hard": {}, "used": { NUDGE: count } }));
            })
            .count()
    }

    /// When the quota was marked, in order. A lock that was not ended is an error.
    pub fn locks(&self, quota: &str) -> Vec<Lock> {
        let (mut locks, mut since) = (Vec::new(), None);
        let writes = self.status_writes().filter(|event| is_done(event));
        for event in writes.filter(|event| text(event, "/objectRef/name") == quota) {
            let is_marked = event["responseObject"]["status"]["hard"][MARK].is_string();
            match since {
                None if is_marked => since = Some(answered(event)),
                Some(from) if !is_marked => {
                    since = None;
                    locks.push(Lock { from, to: received(event) });
                }
                _ => {}
            }
        }
        assert_eq!(since, None, "every lock was ended");
        locks
    }

    /// Requests of KubeVirt's controller to create a pod.
    pub fn attempts(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(|event| {
            text(event, "/verb") == "create"
                && text(event, "/objectRef/resource") == "pods"
                && text(event, "/objectRef/subresource").is_empty()
                && text(event, "/user/username") == CONTROLLER
        })
    }

    /// The uids of migrations in the order in which their targets were created.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        let uid = format!("/requestObject/metadata/labels/{}", names::MIGRATION_JOB_LABEL.replace('/', "~1"));
        let done = self.attempts().filter(|event| is_done(event)).map(move |event| text(event, &uid));
        // Launchers of machines that start are for no migration.
        done.filter(|uid| !uid.is_empty())
    }

    /// How many of them were refused.
    pub fn refused(&self) -> usize {
        self.attempts().filter(|event| !is_done(event)).count()
    }

    /// How long it took from the request for the migration with this uid, the last one before its target, to that target.
    pub fn way_to_target(&self, uid: &str) -> Duration {
        let is_target = |event: &&Value| {
            is_done(event) && event["requestObject"]["metadata"]["labels"][names::MIGRATION_JOB_LABEL] == uid
        };
        let target = self.attempts().find(is_target).expect("the target in the audit log");
        let mut asked = self.0.iter().filter(|event| {
            text(event, "/objectRef/resource") == "virtualmachineinstancemigrations"
                && text(event, "/verb") == "create"
                && received(event) < received(target)
        });
        let asked = received(asked.next_back().expect("the migration in the audit log"));
        Duration::try_from(answered(target).duration_since(asked)).unwrap_or_default()
    }
}

/// Waits until KubeVirt's controller was refused so many pods of the namespace.
pub async fn until_refused(tenant: &Tenant<'_>, count: usize) {
    let refused = || async { (Trail::of_tenant(tenant).await.refused() >= count).then_some(()) };
    wait::eventually(SOON, refused, &format!("{count} attempts to be refused")).await.unwrap();
}

/// Whether the account that authenticated is one of Sluice's.
pub fn is_ours(event: &Value) -> bool {
    is_by(event, names::CONTROLLER) || is_by(event, names::WEBHOOK)
}

/// Whether it is this one of Sluice's.
pub fn is_by(event: &Value, account: &str) -> bool {
    let user = format!("system:serviceaccount:{}:{account}", names::INSTALL_NAMESPACE);
    text(event, "/user/username") == user
}

pub fn received(event: &Value) -> Timestamp {
    text(event, "/requestReceivedTimestamp").parse().unwrap()
}

pub fn answered(event: &Value) -> Timestamp {
    text(event, "/stageTimestamp").parse().unwrap()
}

pub fn is_done(event: &Value) -> bool {
    event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300)
}

pub fn text<'v>(event: &'v Value, pointer: &str) -> &'v str {
    event.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
