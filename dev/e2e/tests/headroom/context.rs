//! What the tests share.

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Event;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde_json::{Value, json};
use sluice_api::{VirtualMachineMigrationResourceQuota as Vmmrq, names};
use sluice_e2e::installation::get;
use sluice_e2e::tenant::{self, SOON, Tenant, used};
use sluice_e2e::{Controller, Installation, Setup};
use sluice_engine::{Amount, Quantity};
use sluice_testbed::kubevirt::{Migration, Vm};
use sluice_testbed::{Bed, wait};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

/// The key whose appearance in `status.used` wakes virt-controller.
pub const MARK: &str = "count/migrationwindows.quota.sluice.dev";
/// The key of a full namespace.
pub const MEMORY: &str = "requests.memory";

/// KubeVirt and a controller of ours, without the webhook.
pub struct Cluster {
    pub bed: &'static Bed,
    pub controller: Controller,
}

/// The cluster that tests share, started by the first that asks.
pub async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    CLUSTER
        .get_or_init(|| async {
            let bed = Bed::shared_with_kubevirt().await.unwrap();
            tenant::prepare(bed).await;
            let controller = without_webhook(bed).await;
            Cluster { bed, controller }
        })
        .await
}

/// Starts a controller on a cluster that has no webhook, and waits until windows are enforced.
pub async fn without_webhook(bed: &Bed) -> Controller {
    let installation =
        Installation::apply(bed, Setup { without_webhook: true, ..Setup::default() }).await.unwrap();
    installation.until_locking().await.unwrap();
    installation.controller().await.unwrap()
}

/// A share of the machine for a cluster of one's own.
pub async fn turn() -> SemaphorePermit<'static> {
    static TURNS: Semaphore = Semaphore::const_new(2);
    TURNS.acquire().await.unwrap()
}

/// A sample of our metrics, or the sum if it has labels.
pub async fn metric(controller: &Controller, name: &str) -> f64 {
    let (code, text) = get(&controller.admin, names::PATH_METRICS).await.unwrap();
    assert_eq!(code, 200, "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        (series.split('{').next() == Some(name)).then(|| value.parse::<f64>().unwrap())
    });
    let samples: Vec<f64> = samples.collect();
    assert!(!samples.is_empty(), "no {name} in {text}");
    samples.into_iter().sum()
}

/// A namespace whose quota `rq` leaves room for less than one more virtual machine.
pub async fn crowded(prefix: &str) -> (Tenant<'static>, Vm) {
    let tenant = Tenant::on(cluster().await.bed, prefix).await;
    let vm = tenant.vm("web").await;
    tenant.quota("rq", json!({ MEMORY: "700Mi" })).await;
    tenant.until_quota("rq", "the machine to be counted", |quota| used(quota)[MEMORY].0 != "0").await;
    (tenant, vm)
}

/// How many bytes more than 700Mi one more target of the same size takes.
pub async fn missing(tenant: &Tenant<'_>) -> i128 {
    let used = used(&tenant.quotas.get("rq").await.unwrap())[MEMORY].0.clone();
    let used: i128 = used.parse().unwrap_or_else(|_| panic!("whole bytes: {used}"));
    2 * used - 700 * 1024 * 1024
}

/// A migration that a quota has rejected.
pub async fn rejected(vm: &Vm) -> Migration {
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    migration
}

/// Creates or replaces the grant `grant`.
pub async fn grant(tenant: &Tenant<'_>, memory: &str) {
    let grant = json!({
        "apiVersion": "mtq.kubevirt.io/v1alpha1", "kind": "VirtualMachineMigrationResourceQuota",
        "metadata": { "name": "grant" }, "spec": { "additionalMigrationResources": { MEMORY: memory } },
    });
    let apply = PatchParams::apply("test").force();
    vmmrqs(tenant).patch("grant", &apply, &Patch::Apply(grant)).await.unwrap();
}

pub fn vmmrqs(tenant: &Tenant<'_>) -> Api<Vmmrq> {
    Api::namespaced(tenant.client.clone(), tenant.name())
}

/// Waits until a condition of the grant has this status and a message with this end.
pub async fn until_condition(tenant: &Tenant<'_>, kind: &str, status: &str, end: &str) {
    let what = format!("{kind}={status}, {end}");
    until_said(tenant, &what, |said, is, message| said == kind && is == status && message.ends_with(end))
        .await;
}

/// Waits until the grant says that so many bytes are missing.
pub async fn until_missing(tenant: &Tenant<'_>, bytes: i128) {
    let missing = Amount::from(Quantity::parse(&bytes.to_string()).unwrap());
    let is_so = |message: &str| {
        let said = message.rsplit(' ').next().and_then(|amount| Quantity::parse(amount).ok());
        said.map(Amount::from) == Some(missing)
    };
    let what = format!("{bytes} bytes to be missing");
    until_said(tenant, &what, |said, is, message| said == "NotEnough" && is == "True" && is_so(message))
        .await;
}

async fn until_said(tenant: &Tenant<'_>, what: &str, is_so: impl Fn(&str, &str, &str) -> bool) {
    let says = |vmmrq: Option<&Vmmrq>| {
        let conditions = vmmrq.and_then(|vmmrq| Some(vmmrq.status.as_ref()?.conditions.clone()));
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| is_so(&condition.type_, &condition.status, &condition.message))
    };
    wait::wait_for(&vmmrqs(tenant), "grant", SOON, what, says).await.unwrap();
}

/// Waits for an event with this reason on this kind of object.
pub async fn until_told(tenant: &Tenant<'_>, kind: &str, reason: &str) -> Event {
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let config = watcher::Config::default().fields(&format!("reason={reason},involvedObject.kind={kind}"));
    let what = format!("event {reason} on a {kind}");
    let told = wait::wait_for_all(&events, config, SOON, &what, |events| !events.is_empty()).await;
    told.unwrap().into_iter().next().unwrap()
}

/// Who our controller is for the API server.
pub static OURS: LazyLock<String> =
    LazyLock::new(|| format!("system:serviceaccount:{}:{}", names::INSTALL_NAMESPACE, names::CONTROLLER));

/// Whether a request was made by our controller.
pub fn is_ours(event: &Value) -> bool {
    event["user"]["username"] == json!(*OURS)
}

/// The migrations for which windows were opened in a namespace, in order.
pub async fn windows_opened(tenant: &Tenant<'_>) -> Vec<String> {
    let events = tenant.bed.audit_events().await.unwrap();
    let opened = events.iter().filter(|event| {
        event["verb"] == "create"
            && event["objectRef"]["resource"] == json!(names::MIGRATION_WINDOWS)
            && event["objectRef"]["namespace"] == json!(tenant.name())
            && event["requestObject"]["metadata"]["name"] == json!(names::WINDOW_NAME)
            && event["responseStatus"]["code"] == json!(201)
    });
    let migration = |event: &Value| {
        event["requestObject"]["spec"]["migration"]["name"].as_str().unwrap_or_default().to_owned()
    };
    opened.map(migration).collect()
}

/// Gives a migration a priority.
pub async fn prioritise(tenant: &Tenant<'_>, migration: &Migration, priority: &str) {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstanceMigration");
    let kind = ApiResource::from_gvk_with_plural(&kind, "virtualmachineinstancemigrations");
    let api: Api<DynamicObject> = Api::namespaced_with(tenant.client.clone(), tenant.name(), &kind);
    let patch = Patch::Merge(json!({ "spec": { "priority": priority } }));
    let patched = api.patch(migration.name(), &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data["spec"]["priority"], json!(priority), "{:?}", patched.meta());
}
