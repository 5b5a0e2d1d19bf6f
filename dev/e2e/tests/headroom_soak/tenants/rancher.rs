//! Rancher itself: the simulated one keeps to the rules of the real one; without the rights of `deploy/rancher.yaml` its
//! denial is told; a quota that is opted out is left alone.

use std::time::Instant;

use http::Method;
use k8s_openapi::api::core::v1::{Event, ResourceQuota};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::{VirtualMachineMigrationResourceQuota as Vmmrq, names};
use sluice_e2e::audit::{AuditTrail, assert_none_rejected};
use sluice_e2e::call::{self, JSON, MERGE, Response};
use sluice_e2e::metrics::Samples;
use sluice_e2e::simulated_rancher::{MARKER, STATUS_IS_IMMUTABLE, SimulatedRancher, Validator};
use sluice_e2e::tenant::{SOON, Tenant, shared, spec_hard};
use sluice_testbed::{Bed, wait};

use crate::tenants::quota_history::QuotaHistory;
use crate::tenants::scene::{Amounts, Scene, amounts, machine};

const QUOTA: &str = "default-z4g94";
const MANAGED: &str = "managed by Rancher";

fn limits() -> Amounts {
    amounts(&[("limits.cpu", "3"), ("limits.memory", "5000Mi")])
}

async fn ask(tenant: &Tenant<'_>, method: Method, path: &str, body: &Value) -> Response {
    let path = format!("/api/v1/namespaces/{}/resourcequotas{path}", tenant.name());
    let content = if method == Method::PATCH { MERGE } else { JSON };
    call::call(&tenant.client, method, &path, content, body).await.unwrap()
}

/// As on Rancher 2.14.6 and 2.15.2. Kubernetes itself goes on: usage is counted.
#[tokio::test(flavor = "multi_thread")]
async fn ranchers_webhook_refuses_what_users_do_to_its_quota_and_to_any_status() {
    let bed = Bed::shared_with_kubevirt().await.unwrap();
    let tenant = Tenant::on(bed, "validator").await;
    let rancher = SimulatedRancher::start(bed, tenant.name(), Validator::Present).await.unwrap();
    rancher.create_quota(QUOTA, &amounts(&[("pods", "2")])).await.unwrap();
    tenant.quota("own", json!({ "pods": "5" })).await;
    let label = |value: Value| json!({ "metadata": { "labels": { MARKER: value } } });
    let hard = json!({ "hard": { "pods": "9" } });
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": { "name": "made", "labels": { MARKER: "true" } }, "spec": hard,
    });
    let (managed, own) = (format!("/{QUOTA}"), "/own".to_owned());
    for (method, path, body, message) in [
        (Method::POST, String::new(), quota, MANAGED),
        (Method::PATCH, managed.clone(), json!({ "spec": hard }), MANAGED),
        (Method::PATCH, managed.clone(), label(Value::Null), MANAGED),
        (Method::PATCH, own.clone(), label(json!("true")), "promoting resources to Rancher management"),
        (Method::PATCH, format!("{managed}/status"), json!({ "status": hard }), STATUS_IS_IMMUTABLE),
        (Method::PATCH, format!("{own}/status"), json!({ "status": hard }), STATUS_IS_IMMUTABLE),
        (Method::DELETE, managed, json!({}), MANAGED),
    ] {
        let answer = ask(&tenant, method.clone(), &path, &body).await;
        assert_eq!(answer.code, 400, "{method} {path}: {answer:?}");
        assert!(answer.message().contains(message), "{method} {path}: {answer:?}");
        let webhook = "admission webhook \"rancher.cattle.io.resourcequotas\" denied the request";
        assert!(answer.message().contains(webhook), "{answer:?}");
    }
    assert_eq!(rancher.denials(), 7);
    assert!(ask(&tenant, Method::PATCH, &own, &json!({ "spec": { "hard": { "pods": "6" } } })).await.is_ok());
    let pod = sluice_e2e::intruders::intruder(json!({ "name": "counted" }));
    tenant.pods.create(&Default::default(), &pod).await.unwrap();
    for quota in [QUOTA, "own"] {
        let counted = |quota: &ResourceQuota| sluice_e2e::tenant::used(quota)["pods"].0 == "1";
        tenant.until_quota(quota, "the pod to be counted", counted).await;
    }
}

/// The report's test with a namespace of 2 cores: the quota is changed by hand, and back when Rancher's agent starts.
#[tokio::test(flavor = "multi_thread")]
async fn ranchers_agent_makes_changes_and_removes_its_quota_as_the_annotation_says() {
    let tenant = Tenant::on(Bed::shared_with_kubevirt().await.unwrap(), "test1sub1").await;
    let rancher = SimulatedRancher::start(tenant.bed, tenant.name(), Validator::Absent).await.unwrap();
    rancher.want(Some(&json!({ "limitsCpu": "2000m" }))).await.unwrap();
    rancher.synchronize().await.unwrap();
    let only = || async { tenant.quotas.list(&Default::default()).await.unwrap().items };
    let name = only().await[0].metadata.name.clone().unwrap();
    assert!(name.starts_with("default-"));
    let more = Patch::Merge(json!({ "spec": { "hard": { "limits.cpu": "3" } } }));
    tenant.quotas.patch(&name, &PatchParams::default(), &more).await.unwrap();
    rancher.synchronize().await.unwrap();
    assert_eq!(spec_hard(&only().await[0])["limits.cpu"].0, "2");
    rancher.want(None).await.unwrap();
    rancher.synchronize().await.unwrap();
    assert!(only().await.is_empty());
}

/// Rights of `deploy/rancher.yaml`: a PUT of the status as kube-controller-manager's account passes, nothing else does.
#[tokio::test(flavor = "multi_thread")]
async fn with_the_rights_for_rancher_sluice_may_write_a_status_and_nothing_else() {
    let scene = Scene::new("rights", Validator::Present).await;
    let quota = scene.quota(QUOTA, &limits()).await;
    let account = scene.tenant.bed.service_account(names::INSTALL_NAMESPACE, names::WEBHOOK).await.unwrap();
    let mut config = account.config();
    config.auth_info.impersonate =
        Some("system:serviceaccount:kube-system:resourcequota-controller".to_owned());
    let client = kube::Client::try_from(config).unwrap();
    let path = format!("/api/v1/namespaces/{}/resourcequotas/{QUOTA}", scene.tenant.name());
    let body = json!(quota);
    for (method, path, content, passes) in [
        (Method::PUT, format!("{path}/status"), JSON, true),
        (Method::PATCH, format!("{path}/status"), MERGE, false),
        (Method::PUT, path.clone(), JSON, false),
        (Method::DELETE, path.clone(), JSON, false),
        (Method::POST, format!("/api/v1/namespaces/{}/pods", scene.tenant.name()), JSON, false),
    ] {
        let answer = call::call(&client, method.clone(), &path, content, &body).await.unwrap();
        let refused = answer.code == 403;
        assert_eq!((answer.is_ok(), refused), (passes, !passes), "{method} {path}: {answer:?}");
    }
    assert_eq!(scene.rancher.denials(), 0, "it was RBAC that refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rights_a_denial_by_ranchers_webhook_is_told_and_only_its_namespace_suffers() {
    let cluster = shared().await;
    let tenant = Tenant::on(cluster.bed, "denied").await;
    let rancher = SimulatedRancher::start(cluster.bed, tenant.name(), Validator::Present).await.unwrap();
    rancher.create_quota(QUOTA, &limits()).await.unwrap();
    tenant.until_quota(QUOTA, "its first status", |quota| !sluice_e2e::tenant::used(quota).is_empty()).await;
    let vm = machine(&tenant, "vm1", (2, "4Gi"), ("125m", "2730Mi")).start().await.unwrap();
    tenant.vmmrq("grant", json!({ "limits.cpu": "10", "limits.memory": "20Gi" })).await;
    let begun = Instant::now();
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    until_told(&tenant, "HeadroomForbidden", STATUS_IS_IMMUTABLE).await;
    let vmmrqs: Api<Vmmrq> = Api::namespaced(tenant.client.clone(), tenant.name());
    let not_ready = |vmmrq: Option<&Vmmrq>| {
        let conditions = vmmrq.and_then(|vmmrq| Some(vmmrq.status.as_ref()?.conditions.clone()));
        conditions.into_iter().flatten().any(|condition| {
            let (is_ready, told) = (condition.status == "True", condition.message);
            condition.type_ == "Ready" && !is_ready && told.contains(STATUS_IS_IMMUTABLE)
        })
    };
    wait::wait_for(&vmmrqs, "grant", SOON, "the condition", not_ready).await.unwrap();
    let samples = Samples::of(&cluster.controller.admin).await.unwrap();
    assert!(samples.sum("sluice_headroom_forbidden_total", &[]) >= Some(1.0), "{samples:#?}");
    others_migrate(cluster.bed).await;
    assert!(migration.target_pod().await.unwrap().is_none());
    // Each attempt of virt-controller may cost one write; the controller's own pauses begin with a second and double.
    let nudges = 2 + (begun.elapsed().as_secs() + 1).ilog2() as usize;
    let trail = AuditTrail::of(&tenant).await;
    let (writes, attempts) = (trail.status_writes().count(), trail.rejections().len());
    assert!(
        writes <= attempts + nudges,
        "{writes} writes for {attempts} attempts and {nudges} nudges at most"
    );
}

async fn others_migrate(bed: &Bed) {
    let tenant = Tenant::on(bed, "free").await;
    let vm = tenant.vm("web").await;
    tenant.full_quota("full", &["requests.memory"]).await;
    tenant.unlimited().await;
    for _ in 0..3 {
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
    }
    tenant.until_clear().await;
    assert_none_rejected(&tenant).await;
}

/// Waits for an event about the quota, or that names it, with this reason and text.
async fn until_told(tenant: &Tenant<'_>, reason: &str, text: &str) {
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let told = |events: &[Event]| {
        events.iter().any(|event| {
            let message = event.message.as_deref().unwrap_or_default();
            let is_about = event.involved_object.name.as_deref() == Some(QUOTA) || message.contains(QUOTA);
            event.reason.as_deref() == Some(reason) && is_about && message.contains(text)
        })
    };
    wait::wait_for_all(&events, Default::default(), SOON, reason, told).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_is_opted_out_is_left_alone_until_it_is_not() {
    let scene = Scene::new("opted", Validator::Absent).await;
    let tenant = &scene.tenant;
    scene.quota(QUOTA, &limits()).await;
    let opt = |value: Option<&str>| {
        let patch = json!({ "metadata": { "annotations": { names::OWN_OPT_OUT: value } } });
        let quotas = tenant.quotas.clone();
        async move {
            quotas.patch(QUOTA, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    };
    opt(Some("true")).await;
    tenant.unlimited().await;
    let vm = machine(tenant, "vm1", (2, "4Gi"), ("125m", "2730Mi")).start().await.unwrap();
    let history = QuotaHistory::of(tenant).await;
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    until_told(tenant, "NoHeadroom", "").await;
    assert!(migration.target_pod().await.unwrap().is_none());
    assert_eq!(history.end().await.raises(QUOTA), 0);
    opt(None).await;
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
}
