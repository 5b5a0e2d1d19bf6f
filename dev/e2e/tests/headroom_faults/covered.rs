//! A target that a window of the controller was opened for does not wait behind one that waits for this window's end.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::intruders::intruder;
use sluice_e2e::tenant::{Tenant, own};
use sluice_testbed::kubevirt::{self, Migration, MigrationPhase, MigrationScript};
use sluice_testbed::proxy::Action;
use sluice_testbed::{Bed, Component, wait};

use crate::account::Account;
use crate::gate::{Entry, Gate};
use crate::steps::Step;
use crate::stop::Stop;
use crate::world::{World, controller_proxy, installed};

const SOON: Duration = Duration::from_secs(60);
/// Well below what a lock holds, with room for a busy machine. Usually it is some milliseconds.
const QUICK: SignedDuration = SignedDuration::from_secs(2);

async fn uid(migration: &Migration) -> String {
    migration.object().await.unwrap().metadata.uid.unwrap()
}

/// One more target for a migration, and who creates such. virt-controller makes one target after the other; after it was
/// started anew, one of the former process may still wait at the webhook.
async fn one_more_target(bed: &Bed, namespace: &str, migration: &Migration) -> (Api<Pod>, Pod) {
    let (_, account) = kubevirt::CONTROLLER.rsplit_once(':').unwrap();
    let identity = bed.service_account(kubevirt::NAMESPACE, account).await.unwrap();
    let pod = intruder(json!({
        "name": "late",
        "labels": { names::MIGRATION_JOB_LABEL: uid(migration).await },
        "annotations": { names::MIGRATION_NAME_ANNOTATION: migration.name() },
    }));
    (Api::namespaced(identity.client().unwrap(), namespace), pod)
}

/// When the first request that is meant was received, and when it was answered.
fn times(events: &[Value], is_meant: impl Fn(&Value) -> bool) -> (Timestamp, Timestamp) {
    let event = events.iter().find(|event| is_meant(event)).unwrap();
    let time = |key: &str| event[key].as_str().unwrap().parse().unwrap();
    (time("requestReceivedTimestamp"), time("stageTimestamp"))
}

/// When the raise that wakes was asked for, and when the two targets were created.
async fn in_the_log(tenant: &Tenant<'_>, woken: &str) -> (Timestamp, Timestamp, Timestamp) {
    let events = tenant.bed.audit_events_with(tenant.name()).await.unwrap();
    let is_raise = |event: &Value| {
        let patch = event["requestObject"].as_array();
        let tests_usage = |line: &Value| line["op"] == "test" && line["path"] == "/status/used";
        event["verb"] == "patch" && patch.is_some_and(|patch| patch.iter().any(tests_usage))
    };
    let is_created = |event: &Value| {
        event["verb"] == "create"
            && event["objectRef"]["resource"] == "pods"
            && event["responseStatus"]["code"] == 201
    };
    let (raised, _) = times(&events, is_raise);
    let is_woken = |event: &Value| {
        is_created(event) && event["requestObject"]["metadata"]["labels"][names::MIGRATION_JOB_LABEL] == woken
    };
    let (_, woken) = times(&events, is_woken);
    let is_late = |event: &Value| is_created(event) && event["requestObject"]["metadata"]["name"] == "late";
    let (_, late) = times(&events, is_late);
    (raised, woken, late)
}

/// A migration that a full quota has rejected, and one that is under way.
async fn migrations(tenant: &Tenant<'_>) -> (Migration, Migration) {
    let vm = tenant.vm("web").await;
    let held =
        tenant.kubevirt.vm(tenant.name(), "other").script(MigrationScript::Hold).start().await.unwrap();
    let other = held.migrate().await.unwrap();
    other.until(MigrationPhase::Running).await.unwrap();
    tenant.full_quota("full", &["requests.memory"]).await;
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    (migration, other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_was_woken_passes_another_one_that_waits_for_its_window() {
    let bed: &'static Bed = Box::leak(Box::new(own().await));
    let installation = installed(bed).await;
    let proxy = controller_proxy(bed).await;
    let controller = installation.controller_with(proxy.kubeconfig(), &[]).await.unwrap();
    installation.until_locking().await.unwrap();
    let world = World::of(bed, installation, controller);
    let tenant = Tenant::on(bed, "woken").await;
    let (migration, other) = migrations(&tenant).await;
    let gate = Gate::behind(&world, &[]).await;
    let entry = Entry::new(bed, gate.port, &[tenant.name()]);
    entry.in_force(bed, &[tenant.name()], std::slice::from_ref(&gate)).await;
    let (pods, late) = one_more_target(bed, tenant.name(), &other).await;

    // The controller's window is there and has raised nothing; the migration is not tried again by itself.
    bed.pause(Component::VirtController);
    tenant.until_clear().await;
    let stop = Stop::default();
    stop.hold_all(&proxy, tenant.name(), Action::Pass, Step::is_raise);
    let before = gate.proxy.requests().len();
    tenant.unlimited().await;
    stop.until_all_stand().await;
    let once = PostParams::default();
    let late = pods.create(&once, &late);
    let waits = async {
        let asked = || async {
            let is_lock = |step: Step| step.is_lock().then_some(());
            let requests = gate.proxy.requests();
            requests[before..].iter().find_map(|request| Step::of(request, tenant.name()).and_then(is_lock))
        };
        wait::eventually(SOON, asked, "the late target to wait for the window").await.unwrap();
        stop.let_go();
        bed.resume(Component::VirtController);
        migration.until(MigrationPhase::Scheduling).await.unwrap();
    };
    let (late, ()) = tokio::join!(late, waits);
    late.unwrap();
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;

    Account::of(bed, tenant.name()).await.holds();
    let (raised, woken, late) = in_the_log(&tenant, &uid(&migration).await).await;
    println!("after the raise: woken {}, late {}", woken - raised, late - raised);
    assert!(woken.duration_since(raised) < QUICK, "raised {raised}, created {woken}");
    assert!(late.duration_since(raised) < QUICK, "raised {raised}, created {late}");
    let refused = bed.rejected_attempts(tenant.name()).await.unwrap();
    let received = |event: &Value| event["requestReceivedTimestamp"].as_str().unwrap().parse::<Timestamp>();
    let after: Vec<_> = refused.iter().filter(|event| received(event).unwrap() > raised).collect();
    assert!(after.is_empty(), "refused although there was room: {after:#?}");
    assert_eq!(gate.endings("covered").await, 1, "the controller's window was enough for it");
    assert_eq!(gate.endings("entered").await, 1, "the late one had its own");
}
