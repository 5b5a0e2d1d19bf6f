//! A target is charged and does not come to be: something after quota admission refuses it. Here the store does, for the
//! name is taken; on OpenShift a ClusterResourceQuota, which is asked after the ResourceQuota, ends so.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use sluice_api::names;
use sluice_e2e::objects::pod;
use sluice_e2e::tenant::{SOON, Tenant, amount, spec_hard, used};
use sluice_testbed::kubevirt::{MigrationPhase, MigrationScript};
use sluice_testbed::wait;

use crate::faults::gate::{Gate, OWN_WEBHOOK};
use crate::faults::targets::try_target;
use crate::faults::world::{self, account};

const MEMORY: &str = "requests.memory";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_without_a_pod_is_no_thief_and_the_next_target_passes() {
    let world = world::shared().await;
    let own = [(OWN_WEBHOOK, "true")];
    let tenant = Tenant::with(world.bed, "uncounted", &own).await;
    let gate = Gate::start(world, &account(world.bed, names::WEBHOOK).await, &[]).await;
    gate.serve(world.bed, tenant.name(), &[world.bed.admin().unwrap()]).await;
    for (name, memory) in [("taken", "50Mi"), ("passing", "1Mi")] {
        tenant.pods.create(&PostParams::default(), &pod(name, &[("memory", memory)])).await.unwrap();
    }
    let vm = tenant.kubevirt.vm(tenant.name(), "web").script(MigrationScript::Hold).start().await.unwrap();
    let migration = vm.migrate().await.unwrap();
    migration.until(MigrationPhase::Running).await.unwrap();
    let full = tenant.full_quota("full", &[MEMORY]).await;
    tenant.unlimited().await;

    let refused = try_target(&tenant, &migration, "taken").await.unwrap_err();
    let kube::Error::Api(refused) = refused else { panic!("{refused}") };
    assert_eq!((refused.code, refused.reason.as_str()), (409, "AlreadyExists"));
    let ended = || async { (gate.endings("denied").await == 1).then_some(()) };
    wait::eventually(SOON, ended, "the session to end as denied").await.unwrap();
    tenant.until_clear().await;
    assert_eq!(gate.endings("taken").await, 0);
    let charged = tenant.quotas.get("full").await.unwrap();
    assert!(amount(&used(&charged), MEMORY) > amount(&spec_hard(&charged), MEMORY), "charged: {charged:#?}");

    // kube-controller-manager counts anew when a pod goes.
    tenant.pods.delete("passing", &DeleteParams::default().grace_period(0)).await.unwrap();
    let is_counted = |quota: &_| amount(&used(quota), MEMORY) < amount(&used(&full), MEMORY);
    tenant.until_quota("full", "what no pod takes to be given back", is_counted).await;
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let told = events.list(&ListParams::default().fields("reason=HeadroomTaken")).await.unwrap();
    assert!(told.items.is_empty(), "{told:#?}");
    // The namespace rests for a moment, as after any lock in vain.
    let entered = || async { try_target(&tenant, &migration, "target").await.ok() };
    wait::eventually(SOON, entered, "the next target to be let in").await.unwrap();
    let now = tenant.quotas.get("full").await.unwrap();
    assert!(amount(&used(&now), MEMORY) > amount(&spec_hard(&now), MEMORY), "above the quota: {now:#?}");
    tenant.until_clear().await;
}
