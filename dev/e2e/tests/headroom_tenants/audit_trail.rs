//! What the audit log says happened in a namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::names;
use sluice_e2e::tenant::Tenant;
use sluice_engine::headroom::MARK;
use sluice_testbed::kubevirt::CONTROLLER;

/// The requests of one namespace.
pub struct AuditTrail(Vec<Value>);

/// A time in which a quota had a live mark: from the answer to the raise to the request that restored the quota, or to the
/// end that the mark names.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Lock {
    pub fn duration(self) -> Duration {
        Duration::try_from(self.to.duration_since(self.from)).unwrap_or_default()
    }
}

/// A request to create a pod.
#[derive(Debug)]
pub struct Creation {
    pub pod: String,
    pub received: Timestamp,
    pub answered: Timestamp,
}

impl AuditTrail {
    /// Everything that was answered before this call.
    pub async fn of(tenant: &Tenant<'_>) -> Self {
        let mut events = tenant.bed.audit_events_with(tenant.name()).await.unwrap();
        events.retain(|event| text(event, "/objectRef/namespace") == tenant.name());
        events.sort_by_key(answered);
        Self(events)
    }

    /// Writes of quotas or of their status by Sluice; dry runs are none.
    fn quota_writes<'t>(&'t self, subresource: &'t str) -> impl Iterator<Item = &'t Value> {
        self.0.iter().filter(move |event| {
            text(event, "/objectRef/resource") == "resourcequotas"
                && text(event, "/objectRef/subresource") == subresource
                && ["create", "update", "patch", "delete"].contains(&text(event, "/verb"))
                && !text(event, "/requestURI").contains("dryRun")
                && is_sluice(event)
        })
    }

    /// How often Sluice tried to write the status of a quota.
    pub fn status_writes(&self) -> usize {
        self.quota_writes("status").count()
    }

    /// Sluice never writes a quota itself, only its status.
    pub fn assert_no_spec_written(&self) {
        let writes: Vec<_> = self.quota_writes("").collect();
        assert!(writes.is_empty(), "{writes:#?}");
    }

    /// When quotas of the namespace were marked, in their order.
    pub fn locks(&self) -> Vec<Lock> {
        let (mut live, mut locks) = (BTreeMap::<&str, Lock>::new(), Vec::new());
        for event in self.quota_writes("status").filter(|event| is_done(event)) {
            let quota = text(event, "/objectRef/name");
            let mark = event["responseObject"]["status"]["hard"][MARK].as_str();
            let end = mark.map(|end| Timestamp::from_millisecond(end.parse().unwrap()).unwrap());
            match (live.remove(quota), end) {
                (None, Some(end)) => drop(live.insert(quota, Lock { from: answered(event), to: end })),
                (Some(lock), Some(end)) => drop(live.insert(quota, Lock { to: end, ..lock })),
                (Some(lock), None) => locks.push(Lock { to: lock.to.min(received(event)), ..lock }),
                (None, None) => {}
            }
        }
        locks.extend(live.into_values());
        locks.sort_by_key(|lock| lock.from);
        locks
    }

    fn creations(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(|event| {
            text(event, "/verb") == "create"
                && text(event, "/objectRef/resource") == "pods"
                && text(event, "/objectRef/subresource").is_empty()
        })
    }

    /// When the API server received and answered the creation of this pod.
    pub fn creation_of(&self, pod: &str) -> Creation {
        let all = self.creations().map(creation);
        all.into_iter().find(|creation| creation.pod == pod).expect("the pod's creation in the audit log")
    }

    /// Pods of `user` that were asked for and admitted while a quota was marked.
    pub fn admitted_while_locked(&self, user: &str) -> Vec<Creation> {
        let locks = self.locks();
        let admitted =
            self.creations().filter(|event| text(event, "/user/username") == user && is_done(event));
        let within = |creation: &Creation| {
            locks.iter().any(|lock| lock.from < creation.received && creation.answered < lock.to)
        };
        admitted.map(creation).filter(within).collect()
    }

    /// Why virt-controller was refused a target, each time.
    pub fn rejections(&self) -> Vec<&str> {
        let rejected = |event: &&Value| text(event, "/user/username") == CONTROLLER && !is_done(event);
        self.creations().filter(rejected).map(|event| text(event, "/responseStatus/message")).collect()
    }
}

fn creation(event: &Value) -> Creation {
    let named = [text(event, "/objectRef/name"), text(event, "/requestObject/metadata/name")];
    let pod = named.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    Creation { pod: pod.to_owned(), received: received(event), answered: answered(event) }
}

fn received(event: &Value) -> Timestamp {
    text(event, "/requestReceivedTimestamp").parse().unwrap()
}

fn answered(event: &Value) -> Timestamp {
    text(event, "/stageTimestamp").parse().unwrap()
}

fn is_done(event: &Value) -> bool {
    event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300)
}

/// The account that authenticated: also in requests that impersonate another one.
fn is_sluice(event: &Value) -> bool {
    text(event, "/user/username").starts_with(&format!("system:serviceaccount:{}:", names::INSTALL_NAMESPACE))
}

fn text<'v>(event: &'v Value, pointer: &str) -> &'v str {
    event.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Not one target was refused: room was made before the quota was asked.
pub async fn assert_none_rejected(tenant: &Tenant<'_>) {
    let trail = AuditTrail::of(tenant).await;
    assert!(trail.rejections().is_empty(), "in {}: {:#?}", tenant.name(), trail.rejections());
}
