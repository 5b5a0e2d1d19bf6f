//! Migrations that nothing can be done for cost nothing.

use std::collections::BTreeSet;

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::Api;
use kube::api::PostParams;
use kube::runtime::watcher;
use serde_json::{Value, json};
use sluice_e2e::tenant::{self, SOON, Tenant};
use sluice_testbed::kubevirt::{CONTROLLER, Migration, Vm};
use sluice_testbed::{Bed, wait};

use crate::context::{MEMORY, OURS, is_ours, metric, turn, without_webhook};

/// As many namespaces, and as many blocked migrations in each.
const CROWDS: usize = 10;
const MACHINES: usize = 10;
/// Changes in the cluster that have nothing to do with any of it.
const UNRELATED: usize = 20;

/// A full namespace in which every machine is to migrate, and no budget.
struct Crowd<'b> {
    tenant: Tenant<'b>,
    migrations: Vec<Migration>,
}

impl<'b> Crowd<'b> {
    async fn of(bed: &'b Bed) -> Self {
        let tenant = Tenant::on(bed, "steady").await;
        let names: Vec<String> = (0..MACHINES).map(|number| format!("vm-{number}")).collect();
        let vms = join_all(names.iter().map(|name| tenant.vm(name))).await;
        tenant.full_quota("rq", &[MEMORY]).await;
        let migrations = try_join_all(vms.iter().map(Vm::migrate)).await.unwrap();
        Self { tenant, migrations }
    }

    async fn until_all_are_told(&self) {
        try_join_all(self.migrations.iter().map(Migration::until_rejected)).await.unwrap();
        let events: Api<Event> = Api::namespaced(self.tenant.client.clone(), self.tenant.name());
        let config = watcher::Config::default().fields("reason=NotEnoughHeadroom");
        let all = |events: &[Event]| events.len() >= 2 * MACHINES;
        wait::wait_for_all(&events, config, SOON, "everybody to be told", all).await.unwrap();
    }
}

/// What we asked of the API server, but for the lease and the watches.
async fn requests(bed: &Bed) -> Vec<Value> {
    let events = bed.audit_events_with(&OURS).await.unwrap();
    let counts = |event: &Value| {
        is_ours(event) && event["verb"] != "watch" && event["objectRef"]["resource"] != json!("leases")
    };
    events.into_iter().filter(counts).collect()
}

async fn write_unrelated_things(bed: &Bed) {
    let other = Tenant::on(bed, "other").await;
    let maps: Api<ConfigMap> = Api::namespaced(other.client.clone(), other.name());
    for number in 0..UNRELATED {
        let map = json!({ "metadata": { "name": format!("map-{number}") } });
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        other.quota(&format!("rq-{number}"), json!({ "requests.cpu": "1" })).await;
    }
}

/// The namespaces of targets that a quota has refused so far, in order.
async fn refused(bed: &Bed) -> Vec<Value> {
    let events = bed.audit_events_with("exceeded quota: rq").await.unwrap();
    let is_target = |event: &&Value| {
        event["verb"] == "create"
            && event["objectRef"]["resource"] == json!("pods")
            && event["user"]["username"] == json!(CONTROLLER)
    };
    events.iter().filter(is_target).map(|event| event["objectRef"]["namespace"].clone()).collect()
}

/// Waits until virt-controller has tried once more in each namespace, in vain.
async fn until_tried_again(bed: &Bed) {
    let before = refused(bed).await.len();
    let tried = || async {
        let tried: BTreeSet<String> =
            refused(bed).await.split_off(before).iter().map(Value::to_string).collect();
        (tried.len() == CROWDS).then_some(())
    };
    wait::eventually(SOON, tried, "virt-controller to try again").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_anything_while_nothing_changes() {
    let _turn = turn().await;
    let bed = tenant::own().await;
    let controller = without_webhook(&bed).await;
    let crowds = join_all((0..CROWDS).map(|_| Crowd::of(&bed))).await;
    join_all(crowds.iter().map(Crowd::until_all_are_told)).await;
    let blocked = (CROWDS * MACHINES) as f64;
    assert!((metric(&controller, "sluice_headroom_lacking_migrations").await - blocked).abs() < 0.5);

    // Who was told last is told by an event that is still on its way.
    let settled = || async {
        let before = requests(&bed).await.len();
        until_tried_again(&bed).await;
        (requests(&bed).await.len() == before).then_some(())
    };
    wait::eventually(2 * SOON, settled, "the last event to be written").await.unwrap();
    let before = requests(&bed).await.len();
    write_unrelated_things(&bed).await;
    until_tried_again(&bed).await;
    let after = requests(&bed).await;
    assert_eq!(after.len(), before, "{:#?}", after.get(before..));

    // They were blocked for want of a budget alone.
    let one = &crowds[0];
    one.tenant.unlimited().await;
    try_join_all(one.migrations.iter().map(Migration::until_succeeded)).await.unwrap();
    one.tenant.until_clear().await;
    assert!(metric(&controller, "sluice_headroom_reactive_windows_total").await >= 1.0);
}
