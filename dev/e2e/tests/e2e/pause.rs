//! Pauses: what waits goes in order and at the rate, also without any process of Sluice; administrators alone order one.

use std::collections::BTreeMap;
use std::process::Output;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareResourceQuota, names};
use sluice_e2e::call::{JSON_PATCH, MERGE, Response, call, get, post};
use sluice_e2e::history::History;
use sluice_e2e::metrics::Samples;
use sluice_e2e::objects::{apply_aaq, is_held};
use sluice_e2e::{Running, Setup, build, objects};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, gates, idle_bed, shared, used_of};
use crate::team::Team;

/// Number of pods that go without any process of Sluice, 200 if nothing is said.
const PODS: &str = "SLUICE_PAUSED_PODS";

/// Runs the command to its end.
async fn sluice(bed: &Bed, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(build::sluice().unwrap());
    command.args(arguments).arg("--kubeconfig").arg(bed.admin_kubeconfig()).kill_on_drop(true);
    tokio::time::timeout(Duration::from_secs(180), command.output()).await.unwrap().unwrap()
}

/// What it printed; its exit code has to be this.
async fn said(bed: &Bed, code: i32, arguments: &[&str]) -> String {
    let output = sluice(bed, arguments).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stdout}{stderr}");
    stdout + &stderr
}

async fn create(team: &Team, count: usize, at_a_time: usize) {
    let create = |n: usize| async move { team.pod(&format!("p{n:03}"), &[]).await };
    stream::iter(0..count).map(create).buffered(at_a_time).collect::<Vec<_>>().await;
}

/// Reason of the condition that a quota does not limit pods.
fn unenforced(quota: Option<&ApplicationAwareResourceQuota>) -> Option<String> {
    let status = serde_json::to_value(quota?.status.as_ref()?).unwrap();
    let conditions = status["conditions"].as_array()?.clone();
    let enforced = conditions.iter().find(|condition| condition["type"] == names::ENFORCED)?;
    Some(enforced["reason"].as_str()?.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_wait_go_in_order_at_the_rate_and_the_pause_ends_by_itself() {
    let shared = shared().await;
    let team = Team::on(shared.bed, "paused").await;
    team.quota("none", &[("pods", "0")]).await;
    create(&team, 100, 1).await;
    let held = wait::wait_for(&team.quotas, "none", SOON, "100 pods to be held", |quota| {
        quota.and_then(|quota| quota.status.as_ref()?.held) == Some(100)
    });
    held.await.unwrap();
    let history = History::of(team.pods.clone()).await;
    let begin = Instant::now();
    let name = team.namespace.name.as_str();
    let told = said(shared.bed, 0, &["pause", "-n", name, "--for", "20s", "--rate", "20"]).await;
    assert!(told.contains(&format!("namespace {} is paused until ", team.namespace.name)), "{told}");
    assert!(told.contains("100 pods wait, 20 of them go in a second"), "{told}");
    let says = |quota: Option<&ApplicationAwareResourceQuota>| unenforced(quota).as_deref() == Some("Paused");
    wait::wait_for(&team.quotas, "none", SOON, "the condition", says).await.unwrap();
    let metrics = Samples::of(&shared.controller.admin).await.unwrap();
    assert!(metrics.sum("sluice_paused_namespaces", &[]) >= Some(1.0));
    team.until_all_released(100).await;
    assert!(begin.elapsed() >= Duration::from_millis(4_900), "{:?}: faster than the rate", begin.elapsed());
    assert_order(history, 100).await;
    team.until_used("none", "pods", "100").await;

    wait::wait_for(&team.quotas, "none", SOON, "its end", |quota| unenforced(quota).is_none()).await.unwrap();
    team.pod("late", &[]).await;
    wait::wait_for(&team.quotas, "none", SOON, "a pod to be held again", |quota| {
        quota.and_then(|quota| quota.status.as_ref()?.held) == Some(1)
    })
    .await
    .unwrap();
    assert_eq!(team.held().await, ["late"], "none is evicted, and none is held but the new one");
    let quota = team.quotas.get("none").await.unwrap();
    assert_eq!(used_of(Some(&quota), "pods").as_deref(), Some("100"));
    assert_eq!(told_of(&team.client, &team.namespace.name).await, ["PauseEnded", "Paused"]);
}

/// Those that were created first went first. Releases are requests of which many are under way, so neighbours may change
/// places.
async fn assert_order(history: History<Pod>, count: usize) {
    // So many releases of one namespace are under way at most, and a busy API server takes them in any order.
    const NEAR: usize = 32;
    let seen = history.end().await;
    let (mut created, mut released) = (Vec::new(), BTreeMap::new());
    for n in 0..count {
        let name = format!("p{n:03}");
        let first = seen.versions(&name).find(|pod| !is_held(pod)).unwrap();
        let version: u64 = first.metadata.resource_version.as_ref().unwrap().parse().unwrap();
        released.insert(version, name.clone());
        let key = (first.metadata.creation_timestamp.clone().unwrap().0, first.metadata.uid.clone().unwrap());
        created.push((key, name));
    }
    created.sort();
    for (place, name) in released.values().enumerate() {
        let expected = created.iter().position(|(_, other)| other == name).unwrap();
        assert!(place.abs_diff(expected) <= NEAR, "{name} went as number {place} in place of {expected}");
    }
}

/// Reasons of the events about a namespace, in the order of the alphabet.
async fn told_of(client: &Client, namespace: &str) -> Vec<String> {
    let reasons = || async {
        let events = get(client, "/apis/events.k8s.io/v1/namespaces/default/events").await.ok()?;
        let is_about = |event: &&Value| {
            event["regarding"]["kind"] == "Namespace" && event["regarding"]["name"] == namespace
        };
        let about = events.body["items"].as_array()?.iter().filter(is_about);
        let mut reasons: Vec<_> =
            about.filter_map(|event| Some(event["reason"].as_str()?.to_owned())).collect();
        reasons.sort();
        (reasons.len() == 2).then_some(reasons)
    };
    wait::eventually(SOON, reasons, "two events about the namespace").await.unwrap()
}

async fn annotate(client: &Client, path: &str, annotations: &Value) -> Response {
    let patch = json!({ "metadata": { "annotations": annotations } });
    call(client, Method::PATCH, path, MERGE, &patch).await.unwrap()
}

#[tokio::test]
async fn who_may_not_configure_sluice_pauses_nothing() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "unpaused").await;
    let tenant = bed.client_as_user("labeller", &["labellers"]).unwrap().client().unwrap();
    let verbs = ["get", "create", "update", "patch"];
    let resources = ["namespaces", "namespaces/status", "namespaces/finalize"];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "labellers" },
        "rules": [{ "apiGroups": [""], "resources": resources, "verbs": verbs }],
    });
    let bound = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "labellers" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "labellers" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "labellers" }],
    });
    bed.apply_objects([role, bound]).await.unwrap();
    let path = format!("/api/v1/namespaces/{}", team.namespace.name);
    let may = || async { annotate(&tenant, &path, &json!({ "note": "x" })).await.is_ok().then_some(()) };
    wait::eventually(SOON, may, "the tenant's rights").await.unwrap();
    let until =
        |seconds| (Timestamp::now() + SignedDuration::from_secs(seconds)).strftime("%FT%TZ").to_string();
    for annotations in [
        json!({ names::PAUSED_ANNOTATION: until(60), names::PAUSED_SINCE_ANNOTATION: until(0) }),
        json!({ names::PAUSED_ANNOTATION: "" }),
        json!({ names::PAUSED_SINCE_ANNOTATION: until(0) }),
        json!({ names::PAUSE_RATE_ANNOTATION: "500" }),
    ] {
        for by in ["", "/status"] {
            let answer = annotate(&tenant, &format!("{path}{by}"), &annotations).await;
            assert!(answer.code == 403 && answer.message().contains(names::PAUSE_POLICY), "{by}: {answer:?}");
            assert!(answer.message().contains("have an administrator set or change it"), "{answer:?}");
        }
    }
    let created = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "born-paused",
        "annotations": { names::PAUSED_ANNOTATION: until(60), names::PAUSED_SINCE_ANNOTATION: until(0) },
    } });
    let answer = post(&tenant, "/api/v1/namespaces?dryRun=All", &created).await.unwrap();
    assert!(answer.code == 403 && answer.message().contains(names::PAUSE_POLICY), "{answer:?}");

    // An administrator too is told what is no time and no rate.
    for (key, wrong) in [
        (names::PAUSED_ANNOTATION, "2h"),
        (names::PAUSED_ANNOTATION, "2026-01-01T00:00:00"),
        (names::PAUSED_ANNOTATION, "2026-13-01T00:00:00Z"),
        (names::PAUSE_RATE_ANNOTATION, "0"),
        (names::PAUSE_RATE_ANNOTATION, "501"),
        (names::PAUSE_RATE_ANNOTATION, "fast"),
    ] {
        let mut annotations = json!({ names::PAUSED_SINCE_ANNOTATION: "2026-01-01T00:00:00Z" });
        annotations[key] = json!(wrong);
        let answer = annotate(&team.client, &path, &annotations).await;
        assert!(answer.code == 403 && answer.message().contains(key), "{wrong}: {answer:?}");
    }
    let query = format!("{path}?dryRun=All");
    let midnight = || "2026-01-01T00:00:00.5+02:00".to_owned();
    for (since, right, is_right) in [
        (Some(until(0)), until(60), true),
        (Some(midnight()), midnight(), true),
        (Some(midnight()), "2026-01-01T22:00:00.5Z".to_owned(), true),
        (Some(midnight()), "2026-01-01T22:00:01Z".to_owned(), false),
        (Some("now".to_owned()), until(60), false),
        (None, until(60), false),
    ] {
        let all = json!({
            names::PAUSED_ANNOTATION: right, names::PAUSED_SINCE_ANNOTATION: since, names::PAUSE_RATE_ANNOTATION: "500",
        });
        let answer = annotate(&team.client, &query, &all).await;
        assert_eq!(answer.is_ok(), is_right, "{all}: {answer:?}");
    }
    // What is set may stay when a tenant writes the namespace, and be taken away.
    let over = json!({
        names::PAUSED_ANNOTATION: "2026-01-01T00:00:00Z", names::PAUSED_SINCE_ANNOTATION: "2026-01-01T00:00:00Z",
        names::PAUSE_RATE_ANNOTATION: "1",
    });
    assert!(annotate(&team.client, &path, &over).await.is_ok());
    assert!(annotate(&tenant, &path, &json!({ "note": "y" })).await.is_ok());
    // It goes no faster, and no longer.
    for key in [names::PAUSE_RATE_ANNOTATION, names::PAUSED_SINCE_ANNOTATION] {
        let answer = annotate(&tenant, &path, &json!({ key: null })).await;
        assert!(answer.code == 403 && answer.message().contains(names::PAUSE_POLICY), "{key}: {answer:?}");
    }
    assert!(annotate(&tenant, &path, &json!({ names::PAUSED_ANNOTATION: null })).await.is_ok());
}

/// The `AAQ` says it for all namespaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_of_all_namespaces_lets_go_what_waits_and_ends_for_all() {
    let bed = idle_bed().await;
    let _running = Running::on(&bed, Setup::default()).await.unwrap();
    let client = bed.admin().unwrap();
    apply_aaq(&client, json!({ "configuration": {} })).await.unwrap();
    let teams = [Team::on(&bed, "one").await, Team::on(&bed, "two").await];
    for team in &teams {
        team.quota("none", &[("pods", "0")]).await;
        create(team, 5, 5).await;
        assert_eq!(team.held().await.len(), 5);
    }
    let told = said(&bed, 0, &["pause", "--all", "--yes", "--for", "10m", "--rate", "50"]).await;
    assert!(told.contains("all namespaces"), "{told}");
    for team in &teams {
        team.until_all_released(5).await;
    }
    let paused = || async {
        let aaq = get(&client, &format!("/apis/{}/{}/aaq", names::API_VERSION, names::AAQS)).await.ok()?.body;
        let conditions = aaq["status"]["conditions"].as_array()?.clone();
        let is_paused = |said: &Value| said["type"] == names::PAUSED && said["status"] == "True";
        conditions.iter().any(is_paused).then_some(())
    };
    wait::eventually(SOON, paused, "the condition of the AAQ").await.unwrap();

    said(&bed, 0, &["resume", "--all"]).await;
    for team in &teams {
        let is_over =
            |quota: Option<&ApplicationAwareResourceQuota>| quota.is_some() && unenforced(quota).is_none();
        wait::wait_for(&team.quotas, "none", SOON, "the end of the pause", is_over).await.unwrap();
        team.pod("late", &[]).await;
        wait::wait_for(&team.quotas, "none", SOON, "a pod to be held again", |quota| {
            quota.and_then(|quota| quota.status.as_ref()?.held) == Some(1)
        })
        .await
        .unwrap();
        assert_eq!(team.held().await, ["late"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_every_process_gone_the_command_lets_pods_go_itself() {
    let count = std::env::var(PODS).map_or(200, |pods| pods.parse().unwrap());
    let bed = idle_bed().await;
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    let (team, other) = (Team::on(&bed, "offline").await, Team::on(&bed, "not-paused").await);
    for team in [&team, &other] {
        team.quota("none", &[("pods", "0")]).await;
    }
    create(&team, count, 8).await;
    create(&other, 1, 1).await;
    running.kill_all().await.unwrap();
    // Where no pause is ordered an administrator takes no gate.
    let removal = json!([{ "op": "remove", "path": "/spec/schedulingGates" }]);
    let answer =
        call(&other.client, Method::PATCH, &other.path("pods/p000"), JSON_PATCH, &removal).await.unwrap();
    assert!(answer.code == 403 && answer.message().contains(names::GUARD_POLICY), "{answer:?}");

    let history = History::of(team.pods.clone()).await;
    let name = &team.namespace.name;
    let begin = Instant::now();
    let arguments = ["pause", "--offline", "-n", name, "--for", "10m", "--rate", "100"];
    let told = said(&bed, 0, &arguments).await;
    assert!(told.contains(&format!("released {count} pods; none waits")), "{told}");
    // 100 a second; the first goes at once.
    let least = Duration::from_millis(10 * u64::try_from(count).unwrap() - 100);
    assert!(begin.elapsed() >= least, "{:?}: faster than the rate", begin.elapsed());
    assert_order(history, count).await;
    let pods: Api<Pod> = team.pods.clone();
    let all = pods.list(&kube::api::ListParams::default()).await.unwrap();
    assert_eq!((all.items.len(), all.items.iter().filter(|pod| is_held(pod)).count()), (count, 0));
    assert_eq!(other.held().await, ["p000"]);
    // The gate goes on: a pod that comes now waits, or is refused where the webhook gates.
    let pod = serde_json::to_value(objects::pod("late", &[])).unwrap();
    let answer = team.create(&pod).await;
    assert!(!answer.is_ok() || gates(&answer.body) == [names::GATE], "{answer:?}");
    assert!(said(&bed, 0, &["resume", "-n", name]).await.contains("pods wait for quota"));
    let namespace = get(&team.client, &format!("/api/v1/namespaces/{name}")).await.unwrap();
    assert!(
        namespace.body["metadata"]["annotations"].get(names::PAUSED_ANNOTATION).is_none(),
        "{namespace:?}"
    );
    // What went is counted by who comes next.
    let _controller = running.installation.controller().await.unwrap();
    // As Kubernetes writes a number.
    let used = if count.is_multiple_of(1000) { format!("{}k", count / 1000) } else { count.to_string() };
    team.until_used("none", "pods", &used).await;
    assert!(said(&bed, 2, &["pause", "--all", "--for", "1m"]).await.contains("add --yes"));
}
