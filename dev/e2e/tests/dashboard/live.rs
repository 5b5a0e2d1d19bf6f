//! The pages follow the cluster: pods that are held and released, VMs, migrations, drains; in two tabs, light, dark,
//! narrow.

use std::time::Instant;

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareClusterResourceQuota as Acrq, ApplicationAwareResourceQuota as Arq, names};
use sluice_e2e::browser::Browser;
use sluice_e2e::objects::{self, TARGETED, from_json};
use sluice_e2e::tenant::{Tenant, own};
use sluice_e2e::{Running, Setup, build};
use sluice_testbed::{Bed, wait};

use crate::context::{Dashboard, SOON, assert_clean, assert_fits, screenshot};

const OWNER: (&str, &str) = ("example.com/owner", "research");

async fn pod(tenant: &Tenant<'_>, name: &str, cpu: &str) {
    objects::create(&tenant.client, tenant.name(), &objects::pod(name, &[("cpu", cpu)])).await.unwrap();
}

/// Waits until the cluster says that so many pods wait for a quota.
async fn until_held(tenant: &Tenant<'_>, quota: &str, held: i64) {
    let quotas: Api<Arq> = Api::namespaced(tenant.client.clone(), tenant.name());
    let says = |quota: Option<&Arq>| {
        quota.and_then(|quota| quota.status.as_ref()).is_some_and(|it| it.held.unwrap_or_default() == held)
    };
    wait::wait_for(&quotas, quota, SOON, &format!("{held} pods to wait"), says).await.unwrap();
}

async fn until_used(tenant: &Tenant<'_>, quota: &str, key: &str, used: &str) {
    let quotas: Api<Arq> = Api::namespaced(tenant.client.clone(), tenant.name());
    let says = |quota: Option<&Arq>| {
        let status = quota.and_then(|quota| quota.status.as_ref());
        status.and_then(|status| status.used.get(key)).is_some_and(|is| is.0 == used)
    };
    wait::wait_for(&quotas, quota, SOON, &format!("{used} {key} to be used"), says).await.unwrap();
}

/// True where the overview says that so many pods wait for a quota.
fn row_says(namespace: &str, quota: &str, held: &str) -> String {
    format!(
        "[...document.querySelectorAll('#quotas tbody tr')].some(row => \
         row.querySelector('a').getAttribute('href') === 'q/{namespace}/{quota}' && \
         row.querySelector('.held').innerText.split(' ')[0] === '{held}')"
    )
}

/// True where the page of a quota shows these pods in this order.
fn queue_is(pods: &[String]) -> String {
    let shown = "[...document.querySelectorAll('#queue tbody th')].map(it => it.innerText).join()";
    format!("{shown} === '{}'", pods.join(","))
}

/// Pods in the order in which they go, as `sluice why` tells it.
async fn in_turn(bed: &Bed, tenant: &Tenant<'_>, pods: &[&str]) -> Vec<String> {
    let mut placed = Vec::new();
    for pod in pods {
        let mut command = tokio::process::Command::new(build::sluice().unwrap());
        command.args(["why", "pod", pod, "-n", tenant.name(), "-o", "json"]);
        let output = command.arg("--kubeconfig").arg(bed.admin_kubeconfig()).output().await.unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        placed.push((told["explanations"][0]["wait"]["place"].as_u64().unwrap(), (*pod).to_owned()));
    }
    placed.sort();
    placed.into_iter().map(|(_, pod)| pod).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_sees_what_waits_and_why_as_it_happens() {
    let bed = &own().await;
    let running = Running::on(bed, Setup::default()).await.unwrap();
    let counted = json!({ "configuration": {
        "vmiCalculatorConfiguration": { "configName": "DedicatedVirtualResources" },
        "allowApplicationAwareClusterResourceQuota": true,
    } });
    objects::apply_aaq(&bed.admin().unwrap(), counted).await.unwrap();
    bed.add_nodes(1, &[("cpu", "100"), ("memory", "400Gi"), ("pods", "200")]).await.unwrap();

    let owned = [TARGETED, &[OWNER]].concat();
    let compute = Tenant::with(bed, "compute", &owned).await;
    let research = Tenant::with(bed, "research", &owned).await;
    let machines = Tenant::with(bed, "machines", TARGETED).await;
    let native = Tenant::on(bed, "native").await;

    let quota = async |tenant: &Tenant<'_>, name: &str, hard: &[(&str, &str)]| {
        objects::create(&tenant.client, tenant.name(), &objects::quota(name, hard)).await.unwrap();
    };
    quota(&compute, "compute", &[("requests.cpu", "8"), ("pods", "10")]).await;
    quota(&research, "half", &[("requests.cpu", "10")]).await;
    quota(&machines, "two-vms", &[("requests.instances/vmi", "1")]).await;
    let acrqs: Api<Acrq> = Api::all(compute.client.clone());
    let tenants = from_json(json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
        "metadata": { "name": "tenants" },
        "spec": {
            "quota": { "hard": { "pods": "20" } },
            "selector": { "labels": { "matchLabels": { OWNER.0: OWNER.1 } } },
        },
    }));
    acrqs.create(&PostParams::default(), &tenants).await.unwrap();
    for (name, cpu) in [("web", "3"), ("report", "2"), ("import-a", "1"), ("import-b", "1"), ("api", "1")] {
        pod(&compute, name, cpu).await;
    }
    until_used(&compute, "compute", "requests.cpu", "8").await;
    pod(&research, "notebook", "5").await;
    // Each takes what `report` gives back, so that exactly one goes then. Pods of one second go in an order of
    // their own.
    for name in ["train", "nightly", "backup"] {
        pod(&compute, name, "2").await;
    }
    until_held(&compute, "compute", 3).await;

    let running_vm = machines.vm("db-1").await;
    let held_vm = machines.kubevirt.vm(machines.name(), "db-2").create().await.unwrap();
    until_held(&machines, "two-vms", 1).await;
    let moved = native.vm("shop").await;
    native.full_quota("full", &["requests.memory"]).await;
    let migration = moved.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();

    let dashboard = Dashboard::start(bed, "dashboard", bed.admin_kubeconfig()).await;
    let browser = Browser::start(bed).await.unwrap();
    browser.show(1_100, 820, false).await.unwrap();
    let begun = Instant::now();
    browser.open(&dashboard.entrance).await.unwrap();
    browser.until(&row_says(compute.name(), "compute", "3"), "three pods wait").await.unwrap();
    eprintln!("first picture after {:?}", begun.elapsed());

    // What happens in the cluster is seen without a reload.
    browser.run("window.sameDocument = true").await.unwrap();
    pod(&compute, "late", "2").await;
    until_held(&compute, "compute", 4).await;
    let known = Instant::now();
    browser.until(&row_says(compute.name(), "compute", "4"), "a fourth pod waits").await.unwrap();
    eprintln!("a pod that is held is seen {:?} after the cluster says so", known.elapsed());
    let mut expected = in_turn(bed, &compute, &["train", "nightly", "backup", "late"]).await;
    let released = expected.remove(0);
    compute.pods.delete("report", &DeleteParams::default()).await.unwrap();
    until_held(&compute, "compute", 3).await;
    let known = Instant::now();
    browser.until(&row_says(compute.name(), "compute", "3"), "a pod is released").await.unwrap();
    eprintln!("a pod that is released is seen {:?} after the cluster says so", known.elapsed());
    assert_eq!(browser.run("return window.sameDocument").await.unwrap(), true);
    let overview = browser.text().await.unwrap();
    for told in ["tenants", "of the cluster", "two-vms", "Migrations without room\n1 of 1"] {
        assert!(overview.contains(told), "{told}: {overview}");
    }
    screenshot(&browser, "overview-light").await;
    browser.show(1_100, 820, true).await.unwrap();
    screenshot(&browser, "overview-dark").await;
    browser.show(320, 820, false).await.unwrap();
    assert_fits(&browser).await;
    screenshot(&browser, "overview-narrow").await;

    // The quota: who takes it, who waits for it in which order.
    browser.show(1_100, 1_420, false).await.unwrap();
    browser.open(&dashboard.url(&format!("/q/{}/compute", compute.name()))).await.unwrap();
    browser.until_text("Who takes requests.cpu").await.unwrap();
    let queue: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!(
        in_turn(bed, &compute, &queue).await,
        expected,
        "{released} went, the others keep their order"
    );
    browser.until(&queue_is(&expected), "the queue in the order that the command tells").await.unwrap();
    let pictures =
        browser.run("return document.querySelectorAll('svg[role=img][aria-label]').length").await.unwrap();
    assert_eq!(pictures, 2, "shares and the last ten minutes");
    screenshot(&browser, "quota-light").await;
    browser.show(1_100, 1_420, true).await.unwrap();
    screenshot(&browser, "quota-dark").await;
    browser.show(320, 1_420, false).await.unwrap();
    assert_fits(&browser).await;
    screenshot(&browser, "quota-narrow").await;
    browser.show(1_100, 820, false).await.unwrap();

    // Why: the words of the command, and the way from the VM to its quota.
    let waits = expected[0].clone();
    browser.open(&dashboard.url(&format!("/why/pod/{}/{waits}", compute.name()))).await.unwrap();
    browser.until_text(&format!("{waits} waits for quota: held ")).await.unwrap();
    browser.until_text("Largest in compute: web 3").await.unwrap();
    browser.open(&dashboard.url(&format!("/why/vm/{}/db-2", machines.name()))).await.unwrap();
    browser.until_text("db-2 does not start: its pod ").await.unwrap();
    let chain = "[...document.querySelectorAll('.chain li')].map(it => it.querySelector('small').innerText).join() \
                 === 'VM,pod,quota'";
    browser.until(chain, "the way from the VM to the quota").await.unwrap();
    browser.show(1_100, 520, false).await.unwrap();
    screenshot(&browser, "why-light").await;
    browser.show(320, 820, false).await.unwrap();
    assert_fits(&browser).await;
    browser.show(1_100, 820, false).await.unwrap();
    browser.open(&dashboard.url(&format!("/why/vm/{}/none", machines.name()))).await.unwrap();
    browser.until_text("none not found in namespace").await.unwrap();

    // It is told when the VM starts after all.
    browser.open(&dashboard.url(&format!("/why/vm/{}/db-2", machines.name()))).await.unwrap();
    browser.until_text("db-2 does not start: its pod ").await.unwrap();
    running_vm.delete().await.unwrap();
    browser.until_text("is not held.").await.unwrap();
    held_vm.until_running().await.unwrap();

    browser.open(&dashboard.url("/migrations")).await.unwrap();
    browser.until_text("no room in a quota").await.unwrap();
    screenshot(&browser, "migrations-light").await;
    let node = moved.node().await.unwrap();
    browser.open(&dashboard.url(&format!("/drain?node={node}"))).await.unwrap();
    browser.until_text("VMs of ").await.unwrap();
    let drain = browser.text().await.unwrap();
    assert!(drain.contains("shop") && drain.contains("STUCK"), "{drain}");
    screenshot(&browser, "drain-light").await;

    // Two tabs, each with its page; the one that is not seen is up to date once it is.
    browser.open(&dashboard.url("/")).await.unwrap();
    browser.until(&row_says(compute.name(), "compute", "3"), "three pods wait").await.unwrap();
    let first = browser.this_tab().await.unwrap();
    let second = browser.new_tab().await.unwrap();
    browser.open(&dashboard.url(&format!("/q/{}/compute", compute.name()))).await.unwrap();
    browser.until(&queue_is(&expected), "the queue").await.unwrap();
    compute.pods.delete(&expected.remove(1), &DeleteParams::default()).await.unwrap();
    until_held(&compute, "compute", 2).await;
    browser.until(&queue_is(&expected), "the queue without the pod that has gone").await.unwrap();
    assert_clean(&browser).await;
    browser.tab(&first).await.unwrap();
    browser.until(&row_says(compute.name(), "compute", "2"), "two pods wait").await.unwrap();
    assert_clean(&browser).await;
    browser.tab(&second).await.unwrap();

    // The command ends, and says so on the page that it leaves.
    dashboard.program.terminate();
    assert_eq!(dashboard.program.wait().await.code, 0, "{}", dashboard.program.log());
    browser.until_text("the command sluice dashboard does not answer").await.unwrap();
    browser.close().await.unwrap();
    drop(running);
}
