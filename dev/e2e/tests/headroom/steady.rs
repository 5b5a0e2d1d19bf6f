//! Migrations that nothing can be done for cost nothing.

use std::collections::BTreeSet;

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use sluice_api::names;
use sluice_e2e::audit::{AuditEventExt as _, AuditTrail};
use sluice_e2e::tenant::{self, SOON, Tenant};
use sluice_e2e::{Running, Setup};
use sluice_testbed::audit::AuditEvent;
use sluice_testbed::kubevirt::{CONTROLLER, Migration, Vm};
use sluice_testbed::{Bed, wait};

use crate::context::{MEMORY, metric, turn};

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
        wait::wait_for_all(&events, config, SOON, "each migration to be told", all).await.unwrap();
    }
}

/// What one of Sluice's accounts asked of the API server, but for Leases, watches and the proof of the admission policies,
/// which is repeated each minute.
async fn requests(bed: &Bed, account: &str) -> Vec<AuditEvent> {
    let events = bed.audit_events_with(account).await.unwrap();
    let counts = |event: &AuditEvent| {
        event.is_by(account) && event.verb != "watch" && event.resource != "leases" && !event.is_dry_run()
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
async fn refused(bed: &Bed) -> Vec<String> {
    let events = bed.audit_events_with("exceeded quota: rq").await.unwrap();
    let targets = events.into_iter().filter(|event| event.is("create", "pods") && event.user == CONTROLLER);
    targets.map(|event| event.namespace).collect()
}

/// Has virt-controller try once more in each namespace, in vain: it does so whenever a quota changes in whatever way.
async fn try_again(bed: &Bed, crowds: &[Crowd<'_>]) {
    let before = refused(bed).await.len();
    for crowd in crowds {
        let touch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": before.to_string() } } }));
        crowd.tenant.quotas.patch("rq", &PatchParams::default(), &touch).await.unwrap();
    }
    let tried = || async {
        let tried: BTreeSet<String> = refused(bed).await.split_off(before).into_iter().collect();
        (tried.len() == CROWDS).then_some(())
    };
    wait::eventually(SOON, tried, "virt-controller to try again").await.unwrap();
}

/// All requests of a controller and a webhook are counted, so the cluster is this test's own.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_asked_or_written_while_nothing_changes() {
    let _turn = turn().await;
    let bed = tenant::own().await;
    // Where nothing changes, a new leader lists pods once more when requests of its predecessor are dead.
    let controller_args = vec!["--in-flight-grace=3600".to_owned()];
    let running = Running::on(&bed, Setup { controller_args, ..Setup::default() }).await.unwrap();
    let admin = &running.controller.admin;
    let crowds = join_all((0..CROWDS).map(|_| Crowd::of(&bed))).await;
    join_all(crowds.iter().map(Crowd::until_all_are_told)).await;
    let blocked = (CROWDS * MACHINES) as f64;
    // The webhook may have told them before the controller has looked.
    let counted = || async {
        let waiting = metric(admin, "sluice_blocked_migrations").await;
        ((waiting - blocked).abs() < 0.5).then_some(())
    };
    wait::eventually(SOON, counted, "all migrations to be counted").await.unwrap();

    // The last event may still be on its way.
    let accounts = [names::CONTROLLER, names::WEBHOOK];
    let count = || async {
        let all = join_all(accounts.map(|account| requests(&bed, account))).await;
        all.iter().map(Vec::len).sum::<usize>()
    };
    let settled = || async {
        let before = count().await;
        try_again(&bed, &crowds).await;
        (count().await == before).then_some(())
    };
    wait::eventually(SOON, settled, "the last event to be written").await.unwrap();
    let before = join_all(accounts.map(|account| requests(&bed, account))).await;
    write_unrelated_things(&bed).await;
    try_again(&bed, &crowds).await;
    let after = join_all(accounts.map(|account| requests(&bed, account))).await;
    for crowd in &crowds {
        let trail = AuditTrail::of(&crowd.tenant).await;
        assert_eq!(trail.status_writes().count(), 0, "neither raised, nor locked, nor nudged");
    }

    // They were blocked for want of a budget alone.
    let one = &crowds[0];
    one.tenant.unlimited().await;
    try_join_all(one.migrations.iter().map(Migration::until_succeeded)).await.unwrap();
    one.tenant.until_clear().await;
    assert!(metric(admin, "sluice_headroom_nudges_total").await >= 1.0);
    for (before, after) in before.iter().zip(&after) {
        let asked = after[before.len()..].iter().map(|event| event.uri.as_str());
        // Each API server is asked for its version once a minute: no watch tells of an upgrade in place.
        let asked: Vec<&str> = asked.filter(|uri| *uri != "/version").collect();
        assert!(asked.is_empty(), "{asked:#?}");
    }
}
