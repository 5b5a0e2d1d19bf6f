//! Migrations that nothing can be done for cost nothing.

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::Api;
use kube::api::PostParams;
use kube::runtime::watcher;
use serde_json::{Value, json};
use sluice_e2e::tenant::{self, SOON, Tenant};
use sluice_testbed::wait;

use crate::context::{MEMORY, is_ours, metric, turn, without_webhook};

/// As many as a small machine starts in reasonable time.
const MACHINES: usize = 30;
/// Changes in the cluster that have nothing to do with any of it.
const UNRELATED: usize = 20;

/// What we asked of the API server, but for the lease and the watches.
async fn requests(tenant: &Tenant<'_>) -> Vec<Value> {
    let events = tenant.bed.audit_events().await.unwrap();
    let counts = |event: &Value| {
        is_ours(event) && event["verb"] != "watch" && event["objectRef"]["resource"] != json!("leases")
    };
    events.into_iter().filter(counts).collect()
}

async fn until_all_are_told(tenant: &Tenant<'_>) {
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let config = watcher::Config::default().fields("reason=NotEnoughHeadroom");
    let all = |events: &[Event]| events.len() >= 2 * MACHINES;
    wait::wait_for_all(&events, config, SOON, "everybody to be told", all).await.unwrap();
}

async fn write_unrelated_things(tenant: &Tenant<'_>) {
    let other = Tenant::on(tenant.bed, "other").await;
    let maps: Api<ConfigMap> = Api::namespaced(other.client.clone(), other.name());
    for number in 0..UNRELATED {
        let map = json!({ "metadata": { "name": format!("map-{number}") } });
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        other.quota(&format!("rq-{number}"), json!({ "requests.cpu": "1" })).await;
    }
}

/// Waits until virt-controller has tried once more, in vain.
async fn until_tried_again(tenant: &Tenant<'_>) {
    let attempts = tenant.rejected_attempts().await;
    let tried = || async { (tenant.rejected_attempts().await > attempts).then_some(()) };
    wait::eventually(SOON, tried, "virt-controller to try again").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_anything_while_nothing_changes() {
    let _turn = turn().await;
    let bed = tenant::own().await;
    let controller = without_webhook(&bed).await;
    let tenant = Tenant::on(&bed, "steady").await;
    let names: Vec<String> = (0..MACHINES).map(|number| format!("vm-{number}")).collect();
    let vms = join_all(names.iter().map(|name| tenant.vm(name))).await;
    tenant.full_quota("rq", &[MEMORY]).await;
    let migrations = try_join_all(vms.iter().map(sluice_testbed::kubevirt::Vm::migrate)).await.unwrap();
    try_join_all(migrations.iter().map(sluice_testbed::kubevirt::Migration::until_rejected)).await.unwrap();
    until_all_are_told(&tenant).await;
    assert!((metric(&controller, "sluice_headroom_lacking_migrations").await - MACHINES as f64).abs() < 0.5);

    // Who was told last is told by an event that is still on its way.
    let settled = || async {
        let before = requests(&tenant).await.len();
        until_tried_again(&tenant).await;
        (requests(&tenant).await.len() == before).then_some(())
    };
    wait::eventually(2 * SOON, settled, "the last event to be written").await.unwrap();
    let before = requests(&tenant).await.len();
    write_unrelated_things(&tenant).await;
    until_tried_again(&tenant).await;
    let after = requests(&tenant).await;
    assert_eq!(after.len(), before, "{:#?}", after.get(before..));

    tenant.unlimited().await;
    try_join_all(migrations.iter().map(sluice_testbed::kubevirt::Migration::until_succeeded)).await.unwrap();
    tenant.until_clear().await;
    assert!(metric(&controller, "sluice_headroom_reactive_windows_total").await >= 1.0);
}
