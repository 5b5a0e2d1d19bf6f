//! Reviews as the API server sends them.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sluice_api::Endpoint;
use sluice_index::Observed;
use sluice_webhook::endpoints::QuotaEndpoint;
use sluice_webhook::{
    App, AsyncEndpoint, AsyncEndpoints, BodyLimits, HeldBody, Review, Settings, Verdict, WebhookMetrics,
    decisions, router,
};
use tower::ServiceExt as _;

pub const GATE: &str = "ApplicationAwareQuotaGate";
pub const STAMP: &str = "quota.sluice.dev/created-by";
pub const TENANT: &str = "alice";
pub const CONTROLLER: &str = "system:serviceaccount:sluice-system:sluice-controller";

pub const CDI: &str = "system:serviceaccount:cdi:cdi-sa";

pub fn settings() -> Settings {
    let mut settings = Settings::new("sluice-system");
    settings.platform_accounts.insert(CDI.to_owned());
    settings
}

/// A review as kube-apiserver 1.36 writes it.
pub fn review(kind: &str, operation: &str, user: &str, object: &Value, old: &Value) -> Value {
    let (group, version, resource) = match kind {
        "Pod" => ("", "v1", "pods"),
        "VirtualMachineInstance" => ("kubevirt.io", "v1", "virtualmachineinstances"),
        "VirtualMachine" => ("kubevirt.io", "v1", "virtualmachines"),
        "ApplicationAwareClusterResourceQuota" => {
            ("aaq.kubevirt.io", "v1alpha1", "applicationawareclusterresourcequotas")
        }
        "QuotaReview" => ("quota.sluice.dev", "v1alpha1", "quotareviews"),
        "Evaluator" => ("quota.sluice.dev", "v1alpha1", "evaluators"),
        "AAQ" => ("aaq.kubevirt.io", "v1alpha1", "aaqs"),
        _ => ("aaq.kubevirt.io", "v1alpha1", "applicationawareresourcequotas"),
    };
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": resource},
            "requestKind": {"group": group, "version": version, "kind": kind},
            "requestResource": {"group": group, "version": version, "resource": resource},
            "name": "a",
            "namespace": "team-a",
            "operation": operation,
            "userInfo": {"username": user, "uid": "u", "groups": ["system:authenticated"], "extra": {"k": ["v"]}},
            "object": object,
            "oldObject": old,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

pub fn pod_create(user: &str, pod: &Value) -> Value {
    review("Pod", "CREATE", user, pod, &Value::Null)
}

pub fn pod_update(user: &str, old: &Value, new: &Value) -> Value {
    review("Pod", "UPDATE", user, new, old)
}

/// The verdict of one endpoint on a review.
pub fn judge(endpoint: fn(&Review<'_>, &Settings) -> Verdict, review: &Value) -> Verdict {
    judge_with(endpoint, review, &settings())
}

pub fn judge_with(
    endpoint: impl FnOnce(&Review<'_>, &Settings) -> Verdict,
    review: &Value,
    settings: &Settings,
) -> Verdict {
    let body = serde_json::to_vec(review).unwrap();
    endpoint(&Review::decode(&body).unwrap(), settings)
}

/// The object after the verdict's patch.
pub fn patched(object: &Value, verdict: &Verdict) -> Value {
    let patch: json_patch::Patch =
        serde_json::from_value(serde_json::to_value(&verdict.patch).unwrap()).unwrap();
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).expect("the patch applies");
    object
}

pub const SERVE: &str = "/serve-path";
pub const VM_SIZE: &str = Endpoint::VmSize.path();

pub fn app() -> Arc<App> {
    App::new(settings(), BodyLimits::default(), WebhookMetrics::default())
}

/// An asynchronous endpoint that has nothing to ask.
struct Alone;

impl AsyncEndpoint for Alone {
    fn decide(
        self: Arc<Self>,
        _review: &Review<'_>,
        _settings: &Settings,
        _body: &HeldBody,
    ) -> BoxFuture<'static, Verdict> {
        ready(Verdict::deny("alone")).boxed()
    }
}

/// All endpoints, of which the asynchronous ones are [`Alone`].
pub fn serving(app: &Arc<App>) -> axum::Router {
    let quotas = Arc::new(QuotaEndpoint::new(Observed::new(Vec::new(), false)));
    let [growth, explain, target, headroom] = [(); 4].map(|()| -> Arc<dyn AsyncEndpoint> { Arc::new(Alone) });
    router(app, decisions(&AsyncEndpoints { quotas, growth, explain, target, headroom }))
}

pub fn service() -> axum::Router {
    serving(&app())
}

pub fn request(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header("content-type", "application/json").body(body.into()).unwrap()
}

pub async fn send(service: axum::Router, request: Request<Body>) -> (StatusCode, String, Bytes) {
    let response = service.oneshot(request).await.unwrap();
    let status = response.status();
    let kind = response.headers().get("content-type").map(|v| v.to_str().unwrap().to_owned());
    (status, kind.unwrap_or_default(), response.into_body().collect().await.unwrap().to_bytes())
}
