//! What the tests share.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::json;
use sluice_api::{VirtualMachineMigrationResourceQuota as Vmmrq, names};
use sluice_e2e::metrics::Samples;
use sluice_e2e::tenant::{self, SOON, Tenant, shared, used};
use sluice_e2e::{Controller, Installation, Setup, Webhook};
use sluice_engine::{Amount, Quantity};
use sluice_testbed::kubevirt::{Migration, Vm};
use sluice_testbed::{Bed, wait};
use tokio::sync::{Mutex, MutexGuard, OnceCell, Semaphore, SemaphorePermit};

/// The key of a full namespace.
pub const MEMORY: &str = "requests.memory";
/// A mebibyte.
pub const MI: i128 = 1024 * 1024;

/// A share of the machine for a cluster of one's own.
pub async fn turn() -> SemaphorePermit<'static> {
    static TURNS: Semaphore = Semaphore::const_new(2);
    TURNS.acquire().await.unwrap()
}

/// A second cluster with KubeVirt and a controller, for tests that change what counts everywhere: the webhook, KubeVirt's
/// configuration, the Leases of API servers. One test at a time has it.
pub struct Alone {
    pub bed: &'static Bed,
    pub controller: &'static Controller,
    installation: &'static Installation<'static>,
    _turn: MutexGuard<'static, ()>,
}

/// Waits until no other test has the second cluster.
pub async fn alone() -> Alone {
    static CLUSTER: OnceCell<(Installation<'static>, Controller, &'static Bed)> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let start = || async {
        let bed = tenant::own_shared().await;
        let installation = Installation::apply(bed, Setup::default()).await.unwrap();
        let controller = installation.controller().await.unwrap();
        installation.until_guarded().await.unwrap();
        (installation, controller, bed)
    };
    let (installation, controller, bed) = CLUSTER.get_or_init(start).await;
    Alone { bed, controller, installation, _turn: turn }
}

impl Alone {
    /// A webhook with further arguments; it ends when it is dropped.
    pub async fn webhook(&self, args: &[&str]) -> Webhook {
        let identity = self.bed.service_account(names::INSTALL_NAMESPACE, names::WEBHOOK).await.unwrap();
        let address = self.installation.webhook_address();
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        let webhook = self.installation.webhook_with(identity.kubeconfig(), port, args).await.unwrap();
        self.installation.until_gating().await.unwrap();
        webhook
    }
}

/// A sample of the metrics at this address, or the sum if it has labels.
pub async fn metric(admin: &str, name: &str) -> f64 {
    let samples = Samples::of(admin).await.unwrap();
    samples.sum(name, &[]).unwrap_or_else(|| panic!("no {name} in {samples:#?}"))
}

/// A sample of the shared controller's metrics.
pub async fn shared_metric(name: &str) -> f64 {
    metric(&shared().await.controller.admin, name).await
}

/// A namespace whose quota `rq` leaves room for less than one more virtual machine.
pub async fn crowded(prefix: &str) -> (Tenant<'static>, Vm) {
    let tenant = Tenant::on(shared().await.bed, prefix).await;
    let vm = tenant.vm("web").await;
    tenant.quota("rq", json!({ MEMORY: "700Mi" })).await;
    tenant.until_quota("rq", "the machine to be counted", |quota| used(quota)[MEMORY].0 != "0").await;
    (tenant, vm)
}

/// How many bytes more than 700Mi one more target of the same size takes.
pub async fn missing(tenant: &Tenant<'_>) -> i128 {
    2 * used_memory(tenant).await - 700 * MI
}

/// How many bytes the quota `rq` counts.
pub async fn used_memory(tenant: &Tenant<'_>) -> i128 {
    let used = used(&tenant.quotas.get("rq").await.unwrap())[MEMORY].0.clone();
    used.parse().unwrap_or_else(|_| panic!("whole bytes: {used}"))
}

/// A migration that a quota has rejected.
pub async fn rejected(vm: &Vm) -> Migration {
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    migration
}

/// Sets the limit of the quota `rq`.
pub async fn set_limit(tenant: &Tenant<'_>, memory: &str) {
    let spec = Patch::Merge(json!({ "spec": { "hard": { MEMORY: memory } } }));
    tenant.quotas.patch("rq", &PatchParams::default(), &spec).await.unwrap();
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

/// Waits until an event says that so many bytes are missing.
pub async fn until_missing(tenant: &Tenant<'_>, bytes: i128) {
    until_missing_amount(tenant, &bytes.to_string()).await;
}

/// As [`until_missing`], of any amount.
pub async fn until_missing_amount(tenant: &Tenant<'_>, amount: &str) {
    let missing = Amount::from(Quantity::parse(amount).unwrap());
    let is_so = |event: &Event| {
        let said = event.message.as_deref().unwrap_or_default().rsplit(' ').next();
        said.and_then(|amount| Quantity::parse(amount).ok()).map(Amount::from) == Some(missing)
    };
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let selector = "reason=NotEnoughHeadroom,involvedObject.kind=VirtualMachineInstanceMigration";
    let config = watcher::Config::default().fields(selector);
    let what = format!("{amount} to be missing");
    wait::wait_for_all(&events, config, SOON, &what, |events| events.iter().any(is_so)).await.unwrap();
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
    until_all_told(tenant, kind, reason, 1).await.remove(0)
}

/// Waits for so many events with this reason on this kind of object.
pub async fn until_all_told(tenant: &Tenant<'_>, kind: &str, reason: &str, count: usize) -> Vec<Event> {
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let config = watcher::Config::default().fields(&format!("reason={reason},involvedObject.kind={kind}"));
    let what = format!("{count} events {reason} on a {kind}");
    let told = wait::wait_for_all(&events, config, SOON, &what, |events| events.len() >= count).await;
    told.unwrap()
}
