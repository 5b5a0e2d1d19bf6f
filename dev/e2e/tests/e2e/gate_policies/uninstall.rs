//! Sluice is removed while pods wait and pods are created: by `sluice uninstall`, and by hand as before there was that.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use serde_json::Value;

use sluice_api::names;
use sluice_e2e::call::{get, post};
use sluice_e2e::removal::{OURS, assert_nothing_of_ours, command, items, killed_after, rows, uninstall};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, gates, idle_bed};
use crate::gate_policies::world::policy_path;
use crate::pods::{pod, with_gates};
use crate::team::Team;

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/install.yaml");
const GATE_NOTHING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/uninstall/gate-nothing.yaml");

const KINDS: [&str; 6] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_released_and_nothing_is_refused_meanwhile_or_left_behind() {
    let bed = idle_bed().await;
    let _world = Running::on(&bed, Setup::default()).await.unwrap();
    let team = Team::on(&bed, "leaving").await;
    let quota = serde_json::json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota",
        "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } },
    });
    let arqs = format!("/apis/{}/namespaces/{}/{}", names::API_VERSION, team.namespace, names::ARQS);
    assert!(post(&team.client, &arqs, &quota).await.unwrap().is_ok());
    for n in 0..3 {
        assert_eq!(gates(&team.create(&pod(&format!("waits-{n}"))).await.body), [names::GATE]);
    }
    kubectl(&bed, &["apply", "--filename", GATE_NOTHING]).await;
    team.until_all_released(3).await;
    let ungated = || async {
        let answer = team.tries(&pod("probe")).await;
        (answer.is_ok() && gates(&answer.body).is_empty()).then_some(())
    };
    wait::eventually(SOON, ungated, "nothing to be gated any more").await.unwrap();

    // As a version left them that did not own them.
    for kind in KINDS {
        let list = get(&team.client, policy_path(kind, "").trim_end_matches('/')).await.unwrap();
        for object in list.body["items"].as_array().unwrap() {
            let name = object["metadata"]["name"].as_str().unwrap();
            let patch = r#"{"metadata":{"ownerReferences":null}}"#;
            kubectl(&bed, &["patch", kind, name, "--type=merge", "--patch", patch]).await;
        }
    }
    let owned = || async {
        for kind in KINDS {
            let list = get(&team.client, policy_path(kind, "").trim_end_matches('/')).await.ok()?;
            let mut objects = list.body["items"].as_array()?.iter();
            objects
                .all(|object| object["metadata"]["ownerReferences"][0]["name"] == names::OPERATOR)
                .then_some(())?;
        }
        Some(())
    };
    wait::eventually(SOON, owned, "what gates to belong to the operator's role").await.unwrap();

    let over = AtomicBool::new(false);
    let creating = async {
        let mut count = 0;
        while !over.load(SeqCst) {
            let answer = team.create(&pod(&format!("p-{count}"))).await;
            assert!(answer.is_ok() && gates(&answer.body).is_empty(), "{count}: {answer:?}");
            count += 1;
        }
        count
    };
    let removing = async {
        // The Deployments are processes here, which go on: the operator must not put back what it sees vanish.
        kubectl(&bed, &["delete", "--wait=false", "--ignore-not-found", "--filename", MANIFEST]).await;
        over.store(true, SeqCst);
    };
    let (created, ()) = tokio::join!(creating, removing);
    assert!(created > 0);
    // The garbage collector takes what belongs to the operator's role.
    let gone = || async {
        for kind in KINDS {
            let list = get(&team.client, policy_path(kind, "").trim_end_matches('/')).await.ok()?;
            list.body["items"].as_array().filter(|items| items.is_empty())?;
        }
        Some(())
    };
    wait::eventually(SOON, gone, "what gates to be gone").await.unwrap();
    // Longer than the operator takes to see that something is gone, and to put it back.
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        for kind in KINDS {
            let list = get(&team.client, policy_path(kind, "").trim_end_matches('/')).await.unwrap();
            assert_eq!(list.body["items"].as_array().map(Vec::len), Some(0), "{kind}: {list:?}");
        }
    }
}

async fn kubectl(bed: &Bed, arguments: &[&str]) {
    let output = bed.kubectl(arguments).await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// How many pods wait, in place of 300.
const PODS: &str = "SLUICE_REMOVED_PODS";
/// Longer each time, so that the kills fall between all steps: API servers are given two seconds three times.
const KILLS: u32 = 14;
const LONGER: Duration = Duration::from_millis(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_the_command_refuses_nothing_and_ends_with_nothing_of_ours() {
    let waiting = std::env::var(PODS).map_or(300, |pods| pods.parse().unwrap());
    let bed = idle_bed().await;
    let _world = Running::on(&bed, Setup::default()).await.unwrap();
    let team = Team::on(&bed, "leaving").await;
    team.quota("none", &[("pods", "0")]).await;
    team.quota("managed", &[("services", "5")]).await;
    let managed = format!("/api/v1/namespaces/{}/resourcequotas", team.namespace);
    let there = || async { (items(&get(&team.client, &managed).await.ok()?.body) == 1).then_some(()) };
    wait::eventually(SOON, there, "the managed quota").await.unwrap();
    let create = |n| {
        let team = &team;
        async move { assert_eq!(gates(&team.create(&pod(&format!("waits-{n}"))).await.body), [names::GATE]) }
    };
    stream::iter(0..waiting).map(create).buffer_unordered(8).collect::<()>().await;

    let over = AtomicBool::new(false);
    let creating = async {
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        let mut count = 0;
        while !over.load(SeqCst) {
            tick.tick().await;
            let answer = team.create(&pod(&format!("p-{count}"))).await;
            assert!(answer.is_ok(), "pod {count} is refused: {answer:?}");
            count += 1;
        }
        count
    };
    let removing = async {
        for n in 1..=KILLS {
            killed_after(&bed, n * LONGER).await;
        }
        let report = uninstall(&bed, 3, &[]).await;
        over.store(true, SeqCst);
        report
    };
    let (created, report) = tokio::join!(creating, removing);
    assert!(created > 100, "{created}");
    // The account that reads metrics in tests is not Sluice's, so the namespace is left, and the report says why.
    let left = rows(&report, "leave");
    assert_eq!(left.len(), 1, "{report:#}");
    assert_eq!(left[0]["kind"], "Namespace", "{report:#}");
    assert!(
        left[0]["note"].as_str().unwrap().contains("object of others: ServiceAccount scraper"),
        "{report:#}"
    );

    let pods = get(&team.client, &team.path("pods")).await.unwrap();
    assert_eq!(items(&pods.body), waiting + created);
    let held = pods.body["items"].as_array().unwrap().iter().filter(|pod| !gates(pod).is_empty()).count();
    assert_eq!(held, 0, "pods that are held");
    assert_nothing_of_ours(&team.client).await;
    assert_eq!(items(&get(&team.client, &managed).await.unwrap().body), 0, "managed quotas");
    let quotas = format!("/apis/{}/namespaces/{}/{}", names::API_VERSION, team.namespace, names::ARQS);
    assert_eq!(items(&get(&team.client, &quotas).await.unwrap().body), 2, "quotas stay");
    // Longer than the operator takes to see that something is gone, and to put it back.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(gates(&team.tries(&pod("probe")).await.body).is_empty());
    quotas_go_when_two_flags_say_so(&bed, &team, &quotas).await;
    who_creates_gates_itself_does_not_keep_the_command_from_its_end(&bed, &team).await;
}

async fn who_creates_gates_itself_does_not_keep_the_command_from_its_end(bed: &Bed, team: &Team) {
    let over = AtomicBool::new(false);
    let creating = async {
        let mut count = 0;
        while !over.load(SeqCst) {
            let gated = with_gates(pod(&format!("gated-{count}")), &[names::GATE]);
            assert!(team.create(&gated).await.is_ok(), "{count}");
            count += 1;
        }
    };
    let removing = async {
        let report = uninstall(bed, 3, &[]).await;
        over.store(true, SeqCst);
        report
    };
    let ((), report) = tokio::join!(creating, removing);
    let left = rows(&report, "leave");
    let is_told = |row: &&Value| {
        row["kind"] == "Pod"
            && row["note"].as_str().is_some_and(|note| note.contains("creates pods with the gate"))
    };
    assert!(left.iter().any(is_told), "{report:#}");
    assert!(left.iter().any(|row| row["kind"] == "Namespace"), "{report:#}");
    let report = uninstall(bed, 3, &[]).await;
    assert!(rows(&report, "leave").iter().all(|row| row["kind"] == "Namespace"), "{report:#}");
}

async fn quotas_go_when_two_flags_say_so(bed: &Bed, team: &Team, quotas: &str) {
    let told = uninstall(bed, 2, &["--delete-quotas"]).await;
    assert_eq!(rows(&told, "delete")[0]["count"], 2, "{told:#}");
    assert_eq!(items(&get(&team.client, quotas).await.unwrap().body), 2, "only told");
    // A plan needs no consent; the namespace would be left.
    let planned = uninstall(bed, 3, &["--delete-quotas", "--dry-run"]).await;
    assert_eq!(rows(&planned, "delete")[0]["count"], 2, "{planned:#}");
    assert_eq!(items(&get(&team.client, quotas).await.unwrap().body), 2, "only planned");
    uninstall(bed, 3, &["--delete-quotas", "--yes"]).await;
    assert_eq!(items(&get(&team.client, quotas).await.unwrap().body), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_writes_nothing_and_a_missing_right_is_named_before_anything_is_written() {
    let bed = idle_bed().await;
    let _world = Running::on(&bed, Setup::default()).await.unwrap();
    let client = bed.admin().unwrap();
    let versions = || async {
        let mut all = Vec::new();
        for kind in OURS.iter().filter(|kind| !kind.contains("leases")) {
            let list = get(&client, kind).await.unwrap();
            let items = list.body["items"].as_array().unwrap().clone();
            all.extend(items.into_iter().map(|item| item["metadata"]["resourceVersion"].clone()));
        }
        all
    };
    let before = versions().await;
    let plan = uninstall(&bed, 3, &["--dry-run"]).await;
    assert!(plan["dryRun"] == true && !rows(&plan, "delete").is_empty(), "{plan:#}");

    // It reads all that the command reads, and writes nothing.
    let reader = bed.service_account(names::INSTALL_NAMESPACE, names::OPERATOR).await.unwrap();
    let role = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "reads" },
        "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"] }],
    });
    let binding = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "reads" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads" },
        "subjects": [{ "kind": "ServiceAccount", "name": names::OPERATOR, "namespace": names::INSTALL_NAMESPACE }],
    });
    bed.apply_objects([role, binding]).await.unwrap();
    let named = || async {
        let output = command(reader.kubeconfig()).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code() == Some(1)
            && said.contains("patch pods")
            && said.contains("Nothing was changed"))
        .then_some(())
    };
    wait::eventually(SOON, named, "the sentence about missing rights").await.unwrap();
    let after = versions().await;
    assert!(before.iter().all(|version| after.contains(version)), "something was written");
}
