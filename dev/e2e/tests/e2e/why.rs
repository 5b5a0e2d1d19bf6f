//! `sluice why` and its neighbours on a real control plane: what holds a pod, by the rights of who asks, and with no leader.

use std::process::Output;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareResourceQuota, QuotaReview, QuotaReviewSpec, names};
use sluice_e2e::{Installation, Setup, build};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, idle_bed, shared};
use crate::team::Team;

/// Runs the command to its end.
pub async fn sluice(bed: &Bed, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(build::sluice().unwrap());
    command.args(arguments).arg("--kubeconfig").arg(bed.admin_kubeconfig()).kill_on_drop(true);
    tokio::time::timeout(Duration::from_secs(60), command.output()).await.unwrap().unwrap()
}

/// What it printed to standard output and standard error; its exit code has to be this.
pub async fn said(bed: &Bed, code: i32, arguments: &[&str]) -> (String, String) {
    let output = sluice(bed, arguments).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stdout}{stderr}");
    (stdout, stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_pod_is_explained_in_the_words_of_its_event_and_of_its_quota() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "why").await;
    let name = team.namespace.name.as_str();
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.pod("web", &[("cpu", "800m")]).await;
    team.until_released("web").await;
    team.until_used("compute", "requests.cpu", "800m").await;
    team.pod("train", &[("cpu", "300m")]).await;
    let words = "exceeded quota: compute, requested: requests.cpu=300m, used: requests.cpu=800m, limited: requests.cpu=1";
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(team.client.clone(), name);
    let told = || async {
        let all = events.list(&ListParams::default()).await.ok()?.items;
        let mut notes = all.into_iter().filter(|event| event.reason.as_deref() == Some("QuotaExceeded"));
        notes.find_map(|event| event.note)
    };
    let note = wait::eventually(SOON, told, "the event").await.unwrap();
    assert_eq!(note, words);

    let (text, _) = said(bed, 3, &["why", "pod", "train", "-n", name]).await;
    assert!(text.starts_with("train waits for quota: held "), "{text}");
    assert!(text.contains(&format!(", place 1 of 1 in {name}.\n")), "{text}");
    assert!(text.contains("  compute  requests.cpu  300m   800m  1      100m\n"), "{text}");
    assert!(text.contains("  Largest in compute: web 800m.\n"), "{text}");
    assert!(text.contains("  Source: leader "), "{text}");
    let (text, _) = said(bed, 3, &["why", "pods/train", "-n", name, "-o", "json"]).await;
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["apiVersion"], &value["source"]), (&json!("cli.sluice.dev/v1"), &json!("leader")));
    assert_eq!(value["explanations"][0]["message"], words);
    // What the leader says is what is found from lists.
    let (text, _) = said(bed, 3, &["why", "pods/train", "-n", name, "-o", "json", "--recompute"]).await;
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&found["source"], &found["whyRecomputed"]), (&json!("recomputed"), &Value::Null));
    assert_eq!(found["explanations"], value["explanations"]);
    let (text, _) = said(bed, 3, &["list", "held", "-n", name, "-o", "name"]).await;
    assert_eq!(text, "pod/train\n");
    said(bed, 0, &["why", "pod", "web", "-n", name]).await;
    let (_, error) = said(bed, 4, &["why", "pod", "trian", "-n", name]).await;
    assert!(error.contains("trian not found") && error.contains("is it train?"), "{error}");
    said(bed, 2, &["why", "node", "n", "-n", name]).await;

    let tells = |quota: Option<&ApplicationAwareResourceQuota>| {
        let status = quota.and_then(|quota| quota.status.as_ref());
        let held =
            status.and_then(|it| it.conditions.iter().find(|condition| condition.type_ == names::PODS_HELD));
        held.is_some_and(|it| it.message == "1 pod waits, the oldest is train: requests.cpu short by 100m")
            && status.is_some_and(|status| status.held_since.is_some())
    };
    wait::wait_for(&team.quotas, "compute", SOON, "the condition PodsHeld", tells).await.unwrap();
    let (text, _) = said(bed, 0, &["top", "-n", name, "--sort", "wait"]).await;
    assert!(text.contains("compute") && text.contains("80%"), "{text}");
}

/// A template of pods with this label.
fn template(app: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": { "restartPolicy": "Always", "containers": [{ "name": "main", "image": "none" }] },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_and_a_job_are_explained_by_the_pods_that_they_control() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "why-workload").await;
    let name = team.namespace.name.as_str();
    team.quota("none", &[("pods", "0")]).await;
    let mut once = template("web");
    once["spec"]["restartPolicy"] = json!("Never");
    // All pods have the same label.
    let deployment = |of: &str, replicas: u32| {
        let selector = json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["web"] }] });
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": of, "namespace": name },
            "spec": { "replicas": replicas, "selector": selector, "template": template("web") },
        })
    };
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "train", "namespace": name },
        "spec": { "template": once },
    });
    bed.apply_objects([deployment("web", 2), deployment("other", 1), job]).await.unwrap();
    let pods = team.until_pods(4).await;
    let of = |owner: &str| {
        let mut names: Vec<String> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        names.retain(|name| name.starts_with(owner));
        names.sort();
        names.iter().map(|name| format!("pod/{name}\n")).collect::<String>()
    };
    for (subject, owner, sentence) in [
        ("deployment/web", "web-", "web has 2 pods, held: 2.\n"),
        ("deploy/other", "other-", "other has 1 pod, held: 1.\n"),
        ("jobs/train", "train-", "train has 1 pod, held: 1.\n"),
    ] {
        let (text, _) = said(bed, 3, &["why", subject, "-n", name]).await;
        assert!(text.starts_with(sentence), "{text}");
        let (names, _) = said(bed, 3, &["why", subject, "-n", name, "-o", "name"]).await;
        assert_eq!(names, of(owner), "{subject}");
    }
    for (subject, near) in [("deployment/wbe", "is it web?"), ("job/trian", "is it train?")] {
        let (_, error) = said(bed, 4, &["why", subject, "-n", name]).await;
        assert!(error.contains("not found") && error.contains(near), "{error}");
    }
    let (_, error) = said(bed, 4, &["why", "deployment/web", "-n", name, "--as", "nobody"]).await;
    assert!(
        error.contains(&format!("missing right: get deployments.apps web in namespace {name}")),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_there_is_nothing_it_is_said_where_was_looked() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "why-nothing").await;
    let name = team.namespace.name.as_str();
    let none = |what: &str| (String::new(), format!("no {what} in namespace {name}\n"));
    assert_eq!(said(bed, 0, &["list", "held", "-n", name]).await, none("pods wait"));
    assert_eq!(said(bed, 0, &["top", "-n", name]).await, none("quotas"));
    let nodes = Api::<Node>::all(team.client.clone()).list(&ListParams::default()).await.unwrap();
    let node = nodes.items[0].metadata.name.as_deref().unwrap();
    let (text, _) = said(bed, 0, &["drain-check", node]).await;
    assert!(text.starts_with("0 VMs."), "{text}");
    // Its drain would be another one.
    let wrong = node[..node.len() - 1].to_owned();
    let (text, error) = said(bed, 4, &["drain-check", &wrong]).await;
    assert!(
        text.is_empty() && error.starts_with(&format!("error: node {wrong} not found: is it ")),
        "{error}"
    );
    let (_, error) = said(bed, 4, &["drain-check", node, "--as", "nobody"]).await;
    assert!(error.contains(&format!("missing right: get nodes {node}\n")), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_view_asks_about_its_own_namespace() {
    let bed = shared().await.bed;
    let (team, other) = (Team::on(bed, "why-own").await, Team::on(bed, "why-other").await);
    let name = team.namespace.name.as_str();
    for team in [&team, &other] {
        team.quota("none", &[("pods", "0")]).await;
        team.pod("held", &[]).await;
    }
    let bound = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "tenant", "namespace": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant-of-why" }],
    });
    bed.apply_objects([bound]).await.unwrap();
    let as_tenant =
        |namespace: &str| ["why", "pod", "held", "--as", "tenant-of-why", "-n", namespace].map(str::to_owned);
    let own = as_tenant(name);
    let asked = || async {
        let output = sluice(bed, &own.each_ref().map(String::as_str)).await;
        (output.status.code() == Some(3)).then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let text = wait::eventually(SOON, asked, "the tenant's answer").await.unwrap();
    assert!(text.contains("can never go") && text.contains("pods"), "{text}");
    assert!(!text.contains(&other.namespace.name), "{text}");
    let others = as_tenant(&other.namespace.name);
    let (_, error) = said(bed, 4, &others.each_ref().map(String::as_str)).await;
    assert!(error.contains("missing right: list pods in namespace"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_pod_is_explained_with_no_process_of_sluice_alive() {
    let bed = idle_bed().await;
    let setup = Setup { without_webhook: true, ..Setup::default() };
    let _installed = Installation::apply(&bed, setup).await.unwrap();
    let team = Team::plain(&bed, "why-alone").await;
    let name = team.namespace.name.as_str();
    team.quota("compute", &[("pods", "0")]).await;
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "schedulingGates": [{ "name": names::GATE }],
                "containers": [{ "name": "main", "image": "none" }],
            },
        })
    };
    let created = team.create(&pod("held")).await;
    assert!(created.is_ok(), "{created:?}");
    let label = [json!({ "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": { names::TARGET_LABEL: "" } } })];
    bed.apply_objects(label).await.unwrap();
    // The API server lets the first object of a kind wait until the kind is two seconds old
    // (`apiextensions-apiserver/pkg/apiserver/customresource_handler.go`); the command waits one for a leader.
    let review = QuotaReview::new("served", QuotaReviewSpec::default());
    let dry_run = kube::api::PostParams { dry_run: true, ..Default::default() };
    let reviews: Api<QuotaReview> = Api::namespaced(bed.admin().unwrap(), name);
    reviews.create(&dry_run, &review).await.unwrap();
    let (text, _) = said(&bed, 3, &["why", "pod", "held", "-n", name]).await;
    assert!(text.contains("held can never go: it asks for pods 1, quota compute allows 0 in all"), "{text}");
    let why = "the leader did not answer (the webhook was not reached, or is not asked here)";
    assert!(text.contains(&format!("  Source: recomputed from lists; {why}.\n")), "{text}");
    let (text, _) = said(&bed, 3, &["check"]).await;
    assert!(text.contains("failed   sluice-controller"), "{text}");

    let others = stream::iter(1..MANY).map(|number| {
        let (team, other) = (&team, pod(&format!("other-{number:04}")));
        async move { assert!(team.create(&other).await.is_ok(), "{number}") }
    });
    others.buffer_unordered(32).collect::<()>().await;
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let begin = Instant::now();
        let (text, _) = said(&bed, 3, &["why", "pod", "held", "-n", name]).await;
        best = best.min(begin.elapsed());
        assert!(text.contains("held can never go"), "{text}");
    }
    eprintln!("of {MANY} pods that wait one is explained without a leader in {best:?}");
    assert!(best <= Duration::from_secs(2), "{best:?}");
}

/// Pods of a namespace that are all read where no leader answers.
const MANY: usize = 3_000;
