//! What docs/tenants.md and docs/why.md show, by their own commands: first as a user of a namespace, then as administrator.

use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::tenant;
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, TestNamespace};

use crate::context::kubectl;
use crate::documented::{Page, Programs};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
/// Needs a cluster of krew's.
const NOT_RUN: &str = "kubectl krew ";
/// As the page names it.
const NODE: &str = "node-7";

async fn example(bed: &Bed, files: &[&str]) {
    for file in files {
        bed.apply(&std::fs::read_to_string(format!("{EXAMPLES}/{file}")).unwrap()).await.unwrap();
    }
}

async fn namespace(bed: &Bed, name: &str, labels: &Value) {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
    bed.apply_objects([namespace]).await.unwrap();
    kubectl(bed, &["-n", name, "wait", "--for=create", "--timeout=2m", "serviceaccount/default"]).await;
}

/// Waits until a field of an object is this.
async fn until(bed: &Bed, object: &[&str], field: &str, value: &str) {
    let is = format!("--for=jsonpath={{{field}}}={value}");
    kubectl(bed, &[&["wait", "--timeout=2m", &is], object].concat()).await;
}

async fn set(bed: &Bed, object: &[&str], spec: &Value) {
    let patch = json!({ "spec": spec }).to_string();
    kubectl(bed, &[&["patch", "--type=merge", "-p", &patch], object].concat()).await;
}

/// A team whose quota is full, and that shares a cluster quota with another one. Three pods wait.
async fn teams(bed: &Bed) {
    let allow = json!({ names::TARGET_LABEL: "true", "tenant": "shop" });
    example(bed, &["cluster-quota/00-allow.yaml", "01-priority.yaml"]).await;
    for name in ["team-a", "shop-web"] {
        namespace(bed, name, &allow).await;
    }
    example(bed, &["cluster-quota/20-quota.yaml", "10-quota.yaml"]).await;
    set(bed, &["acrq", "shop"], &json!({ "quota": { "hard": { "requests.cpu": "20" } } })).await;
    let quota = ["-n", "team-a", "arq/compute"];
    set(bed, &quota, &json!({ "hard": { "requests.cpu": "6" } })).await;
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "shop-web" },
            "spec": { "containers": [{
                "name": "main", "image": "none", "resources": { "requests": { "cpu": "1" } },
            }] },
        })
    };
    bed.apply_objects(["front", "search"].map(pod)).await.unwrap();
    example(bed, &["20-web.yaml", "21-report.yaml", "30-import.yaml"]).await;
    until(bed, &quota, ".status.used.requests\\.cpu", "6").await;
    until(bed, &["acrq/shop"], ".status.total.used.pods", "7").await;
    example(bed, &["31-train.yaml", "40-urgent.yaml", "50-huge.yaml"]).await;
}

/// VMs on a node of their own: those of one namespace have room, those of the second take turns, that of the third stays.
async fn machines(bed: &Bed, node: &str) {
    let kubevirt = bed.kubevirt().unwrap();
    let targeted = json!({ names::TARGET_LABEL: "true" });
    for (name, labels) in [("vms-a", &targeted), ("vms-b", &json!({})), ("vms-c", &json!({}))] {
        namespace(bed, name, labels).await;
    }
    let quota = json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota",
        "metadata": { "name": "compute", "namespace": "vms-a" }, "spec": { "hard": { "requests.memory": "2Gi" } },
    });
    bed.apply_objects([quota]).await.unwrap();
    for (namespace, name) in [("vms-a", "vm-0"), ("vms-b", "vm-0"), ("vms-b", "vm-1"), ("vms-c", "vm-0")] {
        kubevirt.vm(namespace, name).node(node).start().await.unwrap();
    }
    // Both are full; for the first one is granted what one VM takes, and not two.
    for (name, limit) in [("vms-b", "1200Mi"), ("vms-c", "600Mi")] {
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "memory", "namespace": name },
            "spec": { "hard": { "requests.memory": limit } },
        });
        bed.apply_objects([quota]).await.unwrap();
        let counted = ["-n", name, "resourcequota/memory"];
        until(bed, &counted, ".status.hard.requests\\.memory", limit).await;
    }
    let policy = json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomPolicy", "metadata": { "name": "vms-b" },
        "spec": {
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "vms-b" } },
            "budget": { "mode": "PerNamespace", "resources": { "requests.memory": "600Mi" } },
        },
    });
    bed.apply_objects([policy]).await.unwrap();
}

async fn shows(path: &str, programs: &Programs) {
    let mut page = Page::open(path);
    let steps: Vec<_> = page.steps().into_iter().filter(|step| !step.command.starts_with(NOT_RUN)).collect();
    assert!(steps.len() >= 5, "{path}: {steps:#?}");
    for step in &steps {
        page.check(programs, step).await;
    }
    page.finish();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_for_people_who_wait_show_what_is_printed() {
    let bed = tenant::own().await;
    bed.add_nodes(2, &[("cpu", "32"), ("memory", "64Gi")]).await.unwrap();
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    teams(&bed).await;
    let user = bed.tenant(&TestNamespace { name: "team-a".to_owned() }).await.unwrap();
    let programs = Programs::of(&bed, &user);
    assert_eq!(programs.run(0, "kubectl config set-context --current --namespace=team-a").await.0, 0);
    shows("docs/tenants.md", &programs).await;

    // From now on the other quota is full too.
    set(&bed, &["acrq", "shop"], &json!({ "quota": { "hard": { "pods": "7" } } })).await;
    until(&bed, &["acrq/shop"], ".status.total.hard.pods", "7").await;
    let node = bed.kubevirt().unwrap().add_nodes(1).await.unwrap().remove(0);
    machines(&bed, &node).await;
    running.webhook.until_proven().await.unwrap();
    let mut programs = Programs::on(&bed);
    programs.call(NODE, &node);
    programs.file("review.yaml", REVIEW);
    shows("docs/why.md", &programs).await;
}

const REVIEW: &str = "\
apiVersion: quota.sluice.dev/v1alpha1
kind: QuotaReview
metadata:
  generateName: why-
spec:
  pod: train
";
