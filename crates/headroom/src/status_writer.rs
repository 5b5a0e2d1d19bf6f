//! Writes the status of quotas: under Sluice's own name, or as kube-controller-manager's quota controller where a webhook
//! such as Rancher's lets no other account.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::Value;
use sluice_api::names;
use sluice_index::{ResourceQuotaRecord, ResourceQuotaWire};
use sluice_runtime::client::with_deadline;
use sluice_runtime::clock::ServerClock;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::request::{Built, objects, send};

use crate::requests::DEADLINE;

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
        let params =
            PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let quotas = objects::<ResourceQuota>(Some(namespace));
        let request = quotas.patch_subresource("status", name, &params, &Patch::Merge(patch));
        self.send(&self.client, "patch", request).await
    }

    /// The quota controller's account may update, not patch: reads the quota and replaces its status.
    async fn put(&self, namespace: &str, name: &str, patch: &Value) -> Written {
        let quotas = objects::<ResourceQuota>(Some(namespace));
        let current = quotas.get(name, &GetParams::default());
        let read = async { send(&self.client, current, DEADLINE).await?.decode::<Value>() };
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
        let params =
            PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let request = quotas.replace_subresource("status", name, &params, quota.to_string().into_bytes());
        self.send(&self.impersonating, "update", request).await
    }

    async fn send(&self, client: &Client, verb: &'static str, request: Built) -> Written {
        let sent = async {
            let reply = send(client, request, DEADLINE).await?;
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
        let text = |text: &str| Some(text.to_owned());
        let account = ResourceAttributes {
            group: text("authentication.k8s.io"),
            resource: text("serviceaccounts"),
            namespace: text("kube-system"),
            name: text(names::QUOTA_CONTROLLER_ACCOUNT),
            verb: text("impersonate:serviceaccount"),
            ..ResourceAttributes::default()
        };
        let write = ResourceAttributes {
            resource: text("resourcequotas"),
            subresource: text("status"),
            verb: text("impersonate-on:serviceaccount:update"),
            ..ResourceAttributes::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        for attributes in [account, write] {
            let spec = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let answer = with_deadline(DEADLINE, reviews.create(&PostParams::default(), &review)).await;
            if !answer.is_ok_and(|review| review.status.is_some_and(|status| status.allowed)) {
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

    /// An API server that allows everything but patches.
    fn refusing_patches() -> (Client, Asked) {
        let asked = Asked::default();
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let kind = parts.headers.get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
                let (code, answer) = match parts.method.as_str() {
                    "PATCH" => (403, json!({ "kind": "Status", "code": 403, "message": "webhook" })),
                    "POST" => (201, json!({ "status": { "allowed": true } })),
                    _ => (200, json!({ "metadata": { "name": "rq", "uid": "u", "resourceVersion": "7" } })),
                };
                let sent = serde_json::from_slice(&body).unwrap_or_default();
                log.lock().push((format!("{} {}", parts.method, parts.uri), kind.unwrap_or_default(), sent));
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn a_refused_patch_is_sent_again_as_an_update_of_the_quota_controller() {
        let ((own, asked), (other, impersonated)) = (refusing_patches(), refusing_patches());
        let writer = StatusWriter::new(own, other, Arc::default(), ApiWrites::default());
        let patch = json!({ "metadata": { "uid": "u", "resourceVersion": "7" }, "status": { "hard": {} } });
        assert!(matches!(writer.write("ns", "rq", &patch).await, Written::Done(..)));
        assert!(writer.impersonates());
        let (asked, impersonated) = (asked.lock(), impersonated.lock());
        let status = "/api/v1/namespaces/ns/resourcequotas/rq/status?&fieldManager=sluice";
        let merge = "application/merge-patch+json".to_owned();
        assert_eq!(asked[0], (format!("PATCH {status}"), merge, patch));
        let rights = asked[1..3].iter().map(|(path, _, review)| {
            assert!(
                path.starts_with("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
                "{path}"
            );
            review.pointer("/spec/resourceAttributes").unwrap().clone()
        });
        let expected = [
            json!({
                "group": "authentication.k8s.io", "resource": "serviceaccounts", "namespace": "kube-system",
                "name": names::QUOTA_CONTROLLER_ACCOUNT, "verb": "impersonate:serviceaccount",
            }),
            json!({
                "resource": "resourcequotas", "subresource": "status",
                "verb": "impersonate-on:serviceaccount:update",
            }),
        ];
        assert_eq!(rights.collect::<Vec<_>>(), expected);
        assert_eq!(asked[3].0, "GET /api/v1/namespaces/ns/resourcequotas/rq");
        let [(path, kind, quota)] = impersonated.as_slice() else { panic!("{impersonated:?}") };
        assert_eq!((path.as_str(), kind.as_str()), (&*format!("PUT {status}"), "application/json"));
        assert_eq!(quota.pointer("/status/hard"), Some(&json!({})));
    }
}
