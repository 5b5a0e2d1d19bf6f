//! The controller is killed.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_api::{MigrationWindow, names};
use sluice_e2e::Installation;
use sluice_e2e::tenant::{Tenant, used};
use sluice_testbed::Bed;
use sluice_testbed::kubevirt::Migration;
use sluice_testbed::proxy::FaultProxy;

use super::When;
use crate::account::Account;
use crate::scene::Scene;
use crate::steps::{Step, steps};
use crate::world::{controller_proxy, forget_leader, installed};

const SOON: Duration = Duration::from_secs(60);

/// A namespace as a dead process leaves it: a raised quota under a window whose time is over.
async fn left_behind(bed: &'static Bed) -> Tenant<'static> {
    let tenant = Tenant::on(bed, "left").await;
    tenant.quota("a", json!({"pods": "4"})).await;
    tenant.until_quota("a", "to be counted", |quota| !used(quota).is_empty()).await;
    tenant
}

async fn leave(tenant: &Tenant<'_>) {
    let until = Timestamp::now().checked_sub(SignedDuration::from_secs(10)).unwrap();
    let until = Timestamp::from_second(until.as_second()).unwrap().to_string();
    let window: MigrationWindow = serde_json::from_value(json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "MigrationWindow",
        "metadata": { "name": names::WINDOW_NAME },
        "spec": {
            "holder": "dead", "nonce": "n-1", "creator": "system:serviceaccount:kubevirt:kubevirt-controller",
            "until": until, "migration": { "name": "mig", "uid": "6a1e", "vmi": "web" },
        },
    }))
    .unwrap();
    let raised = Patch::Merge(json!({ "status": { "hard": { "pods": "9" } } }));
    tenant.quotas.patch_status("a", &PatchParams::default(), &raised).await.unwrap();
    let windows: Api<MigrationWindow> = tenant.windows.clone();
    windows.create(&PostParams::default(), &window).await.unwrap();
}

/// Starts a controller that dies at this write, has it come there, and makes room for the next one.
async fn killed_at(
    bed: &Bed,
    installation: &Installation<'_>,
    proxy: &FaultProxy,
    (namespace, step, when): (&str, &Step, When),
    begin: impl Future<Output = ()>,
) {
    forget_leader(bed).await;
    let controller = Arc::new(installation.controller_with(proxy.kubeconfig(), &[]).await.unwrap());
    let victim = Arc::clone(&controller);
    let rule = step.rule(namespace, when.action()).times(1).then(move |_| victim.program.kill());
    let killed = proxy.add(rule);
    begin.await;
    let waited = killed.wait_applied(1, SOON).await;
    waited.unwrap_or_else(|error| panic!("{step:?} {when:?}: {error}\n{}", controller.program.log()));
    controller.program.wait().await;
    proxy.remove(&killed);
}

/// The writes of a controller that does something in a namespace once.
async fn recorded(
    bed: &Bed,
    installation: &Installation<'_>,
    namespace: &str,
    done: impl Future<Output = ()>,
) -> Vec<Step> {
    let proxy = controller_proxy(bed).await;
    let controller = installation.controller_with(proxy.kubeconfig(), &[]).await.unwrap();
    done.await;
    controller.program.kill();
    controller.program.wait().await;
    let mut steps = steps(&proxy.requests(), namespace);
    steps.retain(|step| step.is_write() && step.is_certain());
    steps
}

fn cases(steps: &[Step]) -> Vec<(Step, When)> {
    steps.iter().flat_map(|step| When::BOTH.map(|when| (step.clone(), when))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_is_killed_at_each_write_of_a_window_and_of_a_sweep() {
    let bed: &'static Bed = Box::leak(Box::new(sluice_e2e::tenant::own().await));
    let installation = installed(bed).await;
    installation.until_locking().await.unwrap();
    every_write_of_a_window(bed, &installation).await;
    every_write_of_a_sweep(bed, &installation).await;
}

async fn every_write_of_a_window(bed: &'static Bed, installation: &Installation<'_>) {
    let (scene, migration) = Scene::rejected(bed, "reactive").await;
    let steps = recorded(bed, installation, scene.tenant.name(), async {
        scene.tenant.unlimited().await;
        scene.through(&migration).await;
    })
    .await;
    assert!(steps.len() >= 8, "{steps:#?}");
    let cases = cases(&steps);
    let scenes: Vec<(Scene, Migration)> =
        stream::iter(&cases).map(|_| Scene::rejected(bed, "reactive")).buffer_unordered(6).collect().await;
    let proxy = controller_proxy(bed).await;
    for ((step, when), (scene, _)) in cases.iter().zip(&scenes) {
        let begin = scene.tenant.unlimited();
        killed_at(bed, installation, &proxy, (scene.tenant.name(), step, *when), begin).await;
    }
    forget_leader(bed).await;
    let last = installation.controller().await.unwrap();
    for ((step, when), (scene, migration)) in cases.iter().zip(&scenes) {
        let account = scene.through(migration).await;
        assert!(account.raises() >= 2, "{step:?} {when:?}: {account:#?}");
    }
    last.program.kill();
    last.program.wait().await;
}

async fn every_write_of_a_sweep(bed: &'static Bed, installation: &Installation<'_>) {
    let tenant = left_behind(bed).await;
    forget_leader(bed).await;
    let steps = recorded(bed, installation, tenant.name(), async {
        leave(&tenant).await;
        tenant.until_clear().await;
    })
    .await;
    assert!(steps.len() >= 2, "{steps:#?}");
    let proxy = controller_proxy(bed).await;
    let mut tenants = Vec::new();
    for (step, when) in cases(&steps) {
        let tenant = left_behind(bed).await;
        killed_at(bed, installation, &proxy, (tenant.name(), &step, when), leave(&tenant)).await;
        tenants.push(tenant);
    }
    forget_leader(bed).await;
    let last = installation.controller().await.unwrap();
    for tenant in tenants {
        tenant.until_clear().await;
        Account::of(bed, tenant.name()).await.holds();
    }
    last.program.kill();
    last.program.wait().await;
}
