//! Writes the status of quotas: under Sluice's own name, or as kube-controller-manager's quota controller where a webhook
//! such as Rancher's lets no other account.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_index::{ResourceQuotaRecord, ResourceQuotaWire};
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::raw::{Call, JSON, Reply, send};

use crate::clock::ServerClock;
use crate::requests::{DEADLINE, quotas};

const MERGE_PATCH: &str = "application/merge-patch+json";
const STATUS: &str = "resourcequotas/status";

/// How a write went.
#[derive(Clone, Debug)]
pub enum Written {
    /// The quota as it is now, and the API server's clock.
    Done(Box<ResourceQuotaRecord>, Option<jiff::Timestamp>),
    /// The quota is another one by now, or gone.
    Conflict,
    /// The write may have been done, or be done yet.
    Unanswered(Arc<str>),
    /// An admission step or a missing right refuses the write; often, but not always, it will again.
    Refused(Arc<str>),
    /// Something else went wrong; nothing was written.
    Failed(Arc<str>),
}

/// Writes of one process. The way that was found to work is kept.
pub struct StatusWriter {
    client: Client,
    /// Sends requests as the quota controller.
    impersonating: Client,
    impersonates: AtomicBool,
    clock: Arc<ServerClock>,
    writes: ApiWrites,
}

impl std::fmt::Debug for StatusWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusWriter").field("impersonates", &self.impersonates).finish_non_exhaustive()
    }
}

impl StatusWriter {
    /// Writes with `client`; with `impersonating`, which sends the same as [`names::quota_controller_username`], where that
    /// is refused and allowed.
    #[must_use]
    pub fn new(client: Client, impersonating: Client, clock: Arc<ServerClock>, writes: ApiWrites) -> Self {
        Self { client, impersonating, impersonates: AtomicBool::new(false), clock, writes }
    }

    /// Whether writes are sent as the quota controller.
    #[must_use]
    pub fn impersonates(&self) -> bool {
        self.impersonates.load(Relaxed)
    }

    /// Applies a merge patch to the status of a quota that has the version which the patch names.
    pub async fn write(&self, namespace: &str, name: &str, patch: &Value) -> Written {
        if self.impersonates() {
            return self.put(namespace, name, patch).await;
        }
        let own = self.patch(namespace, name, patch).await;
        let Written::Refused(why) = &own else { return own };
        if !self.may_impersonate().await {
            return own;
        }
        let written = self.put(namespace, name, patch).await;
        if matches!(written, Written::Done(..)) && !self.impersonates.swap(true, Relaxed) {
            let user = names::quota_controller_username();
            tracing::info!(refused = %why, %user, "status of quotas is written as the quota controller");
        }
        written
    }

    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Written {
        let path = format!("{}/{name}/status?fieldManager={}", quotas(namespace), names::FIELD_MANAGER);
        let body = Some((MERGE_PATCH, patch.to_string().into_bytes()));
        self.send(&self.client, "patch", Call { method: Method::PATCH, path, body }).await
    }

    /// The quota controller's account may update, not patch: reads the quota and replaces its status.
    async fn put(&self, namespace: &str, name: &str, patch: &Value) -> Written {
        let path = format!("{}/{name}", quotas(namespace));
        let call = Call { method: Method::GET, path: path.clone(), body: None };
        let read = async { send(&self.client, call, DEADLINE).await?.decode::<Value>() };
        let mut quota = match read.await {
            Ok(quota) => quota,
            Err(kube::Error::Api(status)) if status.code == 404 => return Written::Conflict,
            Err(error) => return Written::Failed(format!("reading quota {name}: {error}").into()),
        };
        let of = |object: &Value, field: &str| object.pointer(&format!("/metadata/{field}")).cloned();
        if ["uid", "resourceVersion"].iter().any(|field| of(&quota, field) != of(patch, field)) {
            return Written::Conflict;
        }
        json_patch::merge(&mut quota, patch);
        let path = format!("{path}/status?fieldManager={}", names::FIELD_MANAGER);
        let body = Some((JSON, quota.to_string().into_bytes()));
        self.send(&self.impersonating, "update", Call { method: Method::PUT, path, body }).await
    }

    async fn send(&self, client: &Client, verb: &'static str, call: Call) -> Written {
        let sent = async {
            let reply = send(client, call, DEADLINE).await?;
            self.clock.observe(reply.date);
            let wire: ResourceQuotaWire = reply.decode()?;
            Ok((ResourceQuotaRecord::read(&wire), reply.date))
        };
        match self.writes.record(STATUS, verb, sent).await {
            Ok((record, date)) => Written::Done(Box::new(record), date),
            Err(error) => judge(&error),
        }
    }

    /// Whether this process may send exactly these writes as the quota controller (constrained impersonation, KEP-5284).
    async fn may_impersonate(&self) -> bool {
        let attributes = [
            json!({
                "group": "authentication.k8s.io", "resource": "serviceaccounts", "namespace": "kube-system",
                "name": names::QUOTA_CONTROLLER_ACCOUNT, "verb": "impersonate:serviceaccount",
            }),
            json!({
                "resource": "resourcequotas", "subresource": "status",
                "verb": "impersonate-on:serviceaccount:update",
            }),
        ];
        for attributes in attributes {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": { "resourceAttributes": attributes },
            });
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
            let call =
                Call { method: Method::POST, path, body: Some((JSON, review.to_string().into_bytes())) };
            let reply: kube::Result<Reply> = send(&self.client, call, DEADLINE).await;
            let allowed = reply.and_then(|reply| reply.decode::<Value>());
            if !allowed.is_ok_and(|review| review.pointer("/status/allowed") == Some(&Value::Bool(true))) {
                return false;
            }
        }
        true
    }
}

fn judge(error: &kube::Error) -> Written {
    use sluice_runtime::retry::{Failure, classify};
    let text: Arc<str> = error.to_string().into();
    match classify(error) {
        Failure::Conflict | Failure::AlreadyExists | Failure::NotFound => Written::Conflict,
        // A validating webhook without a code of its own answers 400; a policy without a reason 422.
        Failure::Forbidden | Failure::Invalid | Failure::Other(400) => Written::Refused(text),
        failure if failure.may_have_applied() => Written::Unanswered(text),
        _ => Written::Failed(text),
    }
}
