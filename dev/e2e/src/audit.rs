//! What Sluice and KubeVirt's controller did, as the API server's audit log tells.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "helpers of tests, which fail by panicking"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_engine::headroom::MARK;
use sluice_testbed::audit::AuditEvent;
use sluice_testbed::kubevirt::CONTROLLER;
use sluice_testbed::{Bed, wait};

use crate::tenant::{SOON, Tenant};

/// The key of `status.used` that the controller counts when it wakes KubeVirt's controller.
pub const NUDGE: &str = "count/headroomnudges.quota.sluice.dev";

/// Whether this user is one of Sluice's accounts.
#[must_use]
pub fn is_sluice(user: &str) -> bool {
    user.starts_with(&format!("system:serviceaccount:{}:", names::INSTALL_NAMESPACE))
}

/// What a write of a quota's status is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkWrite {
    /// To set a mark, which ends by itself then.
    Raise {
        /// `None` if the mark is no time.
        end: Option<Timestamp>,
    },
    /// To leave `status.hard` without a mark.
    Restore,
}

/// What an audit event is to Sluice.
pub trait AuditEventExt {
    /// Whether one of Sluice's programs sent it: the account that authenticated, also where it impersonates another one.
    fn is_ours(&self) -> bool;
    /// Whether this one of Sluice's accounts sent it.
    fn is_by(&self, account: &str) -> bool;
    /// Uid of the migration whose target pod is in the body.
    fn migration(&self) -> Option<&str>;
    /// Whether it tried to create a migration's target.
    fn is_target(&self) -> bool;
    /// Whether the pod in the answer has the gate of Sluice.
    fn is_gated(&self) -> bool;
    /// What it asks for a quota's status; `None` for what leaves `status.hard` as it is.
    fn asked_mark(&self) -> Option<MarkWrite>;
    /// What one of Sluice's programs has done to a quota's status.
    fn done_mark(&self) -> Option<MarkWrite>;
    /// When the mark of the quota in the answer ends; `None` without a mark.
    fn mark_end(&self) -> Option<Timestamp>;
}

impl AuditEventExt for AuditEvent {
    fn is_ours(&self) -> bool {
        is_sluice(&self.user)
    }

    fn is_by(&self, account: &str) -> bool {
        self.user == format!("system:serviceaccount:{}:{account}", names::INSTALL_NAMESPACE)
    }

    fn migration(&self) -> Option<&str> {
        self.request.pointer("/metadata/labels")?.get(names::MIGRATION_JOB_LABEL)?.as_str()
    }

    fn is_target(&self) -> bool {
        self.is("create", "pods") && self.migration().is_some() && !self.is_dry_run()
    }

    fn is_gated(&self) -> bool {
        crate::targets::is_gated(&self.response)
    }

    fn asked_mark(&self) -> Option<MarkWrite> {
        if self.resource != "resourcequotas/status" || !matches!(self.verb.as_str(), "patch" | "update") {
            return None;
        }
        // A patch that is no object says nothing by itself.
        let body = if self.request.is_object() { &self.request } else { &self.response };
        Some(match body.pointer("/status/hard")?.get(MARK).filter(|mark| !mark.is_null()) {
            Some(mark) => MarkWrite::Raise { end: end_of(mark) },
            None => MarkWrite::Restore,
        })
    }

    fn done_mark(&self) -> Option<MarkWrite> {
        self.asked_mark().filter(|_| self.is_ours() && !self.is_dry_run() && self.succeeded())
    }

    fn mark_end(&self) -> Option<Timestamp> {
        end_of(self.response.pointer("/status/hard")?.get(MARK)?)
    }
}

/// The time in a mark: milliseconds since 1970.
fn end_of(mark: &Value) -> Option<Timestamp> {
    let number = mark.as_str().and_then(|text| text.parse().ok()).or_else(|| mark.as_i64())?;
    Timestamp::from_millisecond(number).ok()
}

/// A time in which a quota had a live mark.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    /// The answer to the raise.
    pub from: Timestamp,
    /// What the last mark names.
    pub end: Timestamp,
    /// When the request came that restored the quota.
    pub restored: Option<Timestamp>,
}

impl Lock {
    /// When it was over: restored, or ended by itself.
    #[must_use]
    pub fn to(self) -> Timestamp {
        self.restored.map_or(self.end, |restored| restored.min(self.end))
    }

    /// How long it lasted.
    #[must_use]
    pub fn duration(self) -> SignedDuration {
        self.to().duration_since(self.from)
    }
}

/// The requests of one namespace, in the order of their answers.
pub struct AuditTrail(Vec<AuditEvent>);

impl AuditTrail {
    /// Everything that was answered in a tenant's namespace before this call.
    pub async fn of(tenant: &Tenant<'_>) -> Self {
        Self::of_namespace(tenant.bed, tenant.name()).await
    }

    /// Everything that was answered in a namespace before this call.
    pub async fn of_namespace(bed: &Bed, namespace: &str) -> Self {
        let mut events = bed.audit_events_with(namespace).await.unwrap();
        events.retain(|event| event.namespace == namespace);
        events.sort_by_key(|event| event.answered);
        Self(events)
    }

    /// Sluice's writes of quotas or of their status; dry runs are none.
    fn quota_writes<'t>(&'t self, resource: &'t str) -> impl Iterator<Item = &'t AuditEvent> {
        let written = move |event: &&AuditEvent| event.resource == resource && event.is_write();
        self.0.iter().filter(written).filter(|event| !event.is_dry_run() && event.is_ours())
    }

    /// Sluice's writes of the status of quotas, done or refused.
    pub fn status_writes(&self) -> impl Iterator<Item = &AuditEvent> {
        self.quota_writes("resourcequotas/status")
    }

    /// Sluice never writes a quota itself, only its status.
    pub fn assert_no_spec_written(&self) {
        let writes: Vec<_> = self.quota_writes("resourcequotas").collect();
        assert!(writes.is_empty(), "{writes:#?}");
    }

    /// Writes that set a mark and were done.
    #[must_use]
    pub fn raises(&self) -> Vec<&AuditEvent> {
        let sets_mark = |event: &&AuditEvent| event.request["status"]["hard"][MARK].is_string();
        self.status_writes().filter(sets_mark).filter(|event| event.succeeded()).collect()
    }

    /// What the controller wrote, all of it done: it only counts nudges. Returns how often.
    #[must_use]
    pub fn nudges(&self) -> usize {
        let nudges = self.status_writes().filter(|event| event.is_by(names::CONTROLLER));
        let written = nudges.map(|event| &event.request["status"]);
        written
            .inspect(|status| {
                let count = status["used"][NUDGE].as_str().unwrap_or_else(|| panic!("{status}"));
                assert_eq!(**status, json!({ "hard": {}, "used": { NUDGE: count } }));
            })
            .count()
    }

    /// When quotas of the namespace were marked, in order.
    #[must_use]
    pub fn locks(&self) -> Vec<Lock> {
        let (mut live, mut locks) = (BTreeMap::<&str, Lock>::new(), Vec::new());
        for event in self.status_writes().filter(|event| event.succeeded()) {
            let quota = event.name.as_str();
            match (live.remove(quota), event.mark_end()) {
                (None, Some(end)) => {
                    live.insert(quota, Lock { from: event.answered, end, restored: None });
                }
                (Some(lock), Some(end)) => {
                    live.insert(quota, Lock { end, ..lock });
                }
                (Some(lock), None) => locks.push(Lock { restored: Some(event.received), ..lock }),
                (None, None) => {}
            }
        }
        locks.extend(live.into_values());
        locks.sort_by_key(|lock| lock.from);
        locks
    }

    /// Whether a target was admitted while the quota was locked.
    #[must_use]
    pub fn let_target_in(&self, lock: &Lock) -> bool {
        let mut admitted = self.attempts().filter(|event| event.succeeded());
        admitted.any(|event| event.answered >= lock.from && event.received <= lock.to())
    }

    fn creations(&self) -> impl Iterator<Item = &AuditEvent> {
        self.0.iter().filter(|event| event.is("create", "pods"))
    }

    /// Requests of KubeVirt's controller to create a pod.
    pub fn attempts(&self) -> impl Iterator<Item = &AuditEvent> {
        self.creations().filter(|event| event.user == CONTROLLER)
    }

    /// Why they were refused, each time.
    #[must_use]
    pub fn rejections(&self) -> Vec<&str> {
        self.attempts().filter(|event| !event.succeeded()).map(|event| event.message.as_str()).collect()
    }

    /// The uids of migrations in the order in which their targets were created.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        // Launchers of machines that start are for no migration.
        self.attempts().filter(|event| event.succeeded()).filter_map(AuditEventExt::migration)
    }

    /// How long it took from the request for the migration with this uid, the last one before its target, to that target.
    #[must_use]
    pub fn way_to_target(&self, uid: &str) -> Duration {
        let mut done = self.attempts().filter(|event| event.succeeded());
        let target = done.find(|event| event.migration() == Some(uid));
        let target = target.unwrap_or_else(|| panic!("the audit log does not tell of the target of {uid}"));
        let mut asked = self.0.iter().filter(|event| {
            event.is("create", "virtualmachineinstancemigrations") && event.received < target.received
        });
        let asked = asked.next_back();
        let asked = asked.unwrap_or_else(|| panic!("the audit log does not tell of migration {uid}"));
        Duration::try_from(target.answered.duration_since(asked.received)).unwrap_or_default()
    }

    /// The creation of this pod.
    #[must_use]
    pub fn creation_of(&self, pod: &str) -> &AuditEvent {
        let creation = self.creations().find(|event| created_pod(event) == pod);
        creation.unwrap_or_else(|| panic!("the audit log does not tell of the creation of pod {pod}"))
    }

    /// When a probe first showed that the API server knows this lock; `None` if none did.
    #[must_use]
    pub fn known(&self, lock: &Lock) -> Option<Timestamp> {
        let mut denied =
            self.0.iter().filter(|event| event.is("create", names::HEADROOM_PROBES) && event.code == 403);
        let known = denied.find(|event| event.answered >= lock.from && event.received <= lock.to());
        known.map(|event| event.answered)
    }

    /// When pods with this name were asked for, of those that were admitted.
    pub fn admitted<'t>(&'t self, pod: &'t str) -> impl Iterator<Item = Timestamp> {
        let admitted = self.creations().filter(move |event| event.succeeded() && created_pod(event) == pod);
        admitted.map(|event| event.received)
    }

    /// Pods of `user` that were asked for and admitted while a quota was marked: name, asked for, answered.
    #[must_use]
    pub fn admitted_while_locked(&self, user: &str) -> Vec<(&str, Timestamp, Timestamp)> {
        let locks = self.locks();
        let admitted = self.creations().filter(|event| event.user == user && event.succeeded());
        let within = |event: &&AuditEvent| {
            locks.iter().any(|lock| lock.from < event.received && event.answered < lock.to())
        };
        admitted.filter(within).map(|event| (created_pod(event), event.received, event.answered)).collect()
    }
}

/// The name of a pod that is created; empty if it is generated and the pod was refused.
fn created_pod(event: &AuditEvent) -> &str {
    let names = [event.response.pointer("/metadata/name"), event.request.pointer("/metadata/name")];
    let name = names.into_iter().flatten().find_map(Value::as_str);
    name.unwrap_or(&event.name)
}

/// Waits until KubeVirt's controller was refused so many pods of the namespace.
pub async fn until_refused(tenant: &Tenant<'_>, count: usize) {
    let refused = || async { (AuditTrail::of(tenant).await.rejections().len() >= count).then_some(()) };
    wait::eventually(SOON, refused, &format!("{count} attempts to be refused")).await.unwrap();
}

/// Not one target was refused: room was made before the quota was asked.
pub async fn assert_none_rejected(tenant: &Tenant<'_>) {
    let trail = AuditTrail::of(tenant).await;
    assert!(trail.rejections().is_empty(), "in {}: {:#?}", tenant.name(), trail.rejections());
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use sluice_testbed::audit::AuditEvent;

    use super::{AuditEventExt as _, MARK, MarkWrite};

    fn write(request: Value, response: Value) -> AuditEvent {
        AuditEvent {
            user: "system:serviceaccount:sluice-system:sluice-webhook".to_owned(),
            verb: "patch".to_owned(),
            resource: "resourcequotas/status".to_owned(),
            code: 200,
            request,
            response,
            ..AuditEvent::default()
        }
    }

    #[test]
    fn a_target_names_its_migration() {
        let request = json!({"metadata": {"labels": {"kubevirt.io/migrationJobUID": "m"}}});
        let pod = AuditEvent {
            verb: "create".to_owned(),
            resource: "pods".to_owned(),
            ..write(request, Value::Null)
        };
        assert!(pod.is_ours() && pod.is_target());
        assert_eq!((pod.migration(), pod.asked_mark()), (Some("m"), None));
        assert!(!AuditEvent { uri: "/x?dryRun=All".to_owned(), ..pod }.is_target());
    }

    #[test]
    fn a_raise_sets_a_mark_and_a_restore_leaves_none() {
        let done = |request, response| write(request, response).done_mark();
        let marked = json!({"status": {"hard": {"pods": "2", MARK: "1772500000001"}, "used": {MARK: "1772500000001"}}});
        let plain = json!({"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}});
        let end = Timestamp::from_millisecond(1_772_500_000_001).unwrap();
        let raise = Some(MarkWrite::Raise { end: Some(end) });
        assert_eq!(done(marked.clone(), marked.clone()), raise);
        let removed = json!({"status": {"hard": {"pods": "1", MARK: null}, "used": {MARK: null}}});
        assert_eq!(done(removed, plain.clone()), Some(MarkWrite::Restore));
        // A whole object, and a patch that is a list.
        assert_eq!(done(plain.clone(), plain.clone()), Some(MarkWrite::Restore));
        assert_eq!(done(json!([{"op": "add"}]), marked.clone()), raise);
        // A nudge leaves the limits alone, whether there is a mark or not.
        let nudge = json!({"status": {"used": {"count/headroomnudges.quota.sluice.dev": "7"}}});
        assert_eq!(done(nudge.clone(), marked.clone()), None);
        assert_eq!(done(nudge, plain), None);

        let raise = write(marked.clone(), marked);
        assert_eq!(raise.mark_end(), Some(end));
        assert_eq!(AuditEvent { code: 409, ..raise.clone() }.done_mark(), None);
        assert_eq!(AuditEvent { uri: "/x?dryRun=All".to_owned(), ..raise.clone() }.done_mark(), None);
        assert_eq!(AuditEvent { user: "admin".to_owned(), ..raise }.done_mark(), None);
    }
}
