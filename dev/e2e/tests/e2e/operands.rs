//! What the operator makes it keeps: it puts back what others change, writes nothing when nothing differs, and answers who
//! insists ever more slowly.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, JSON_PATCH, MERGE, call, get};
use sluice_e2e::metrics::Samples;
use sluice_testbed::{Bed, BedOptions, wait};

use crate::context::SOON;
use crate::operator_cr::{
    AAQS, DRIFT, created, deployment_path, installed, patch, until_condition, until_rolled, until_told,
    writes_since,
};

/// Seconds without a write, two minutes if nothing is said: `make soak` says ten.
const QUIET: &str = "SLUICE_QUIET_SECONDS";
/// The most that the operator may have of its own after that time, in KiB. Pages of the program's file are left out: a test
/// build has many more than what is shipped.
const MEMORY: u64 = 32 * 1024;
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
/// So long another client insists, and how often it looks.
const FIGHT: Duration = Duration::from_secs(40);
const INSISTS: Duration = Duration::from_millis(200);

fn path(group: &str, resource: &str, name: &str) -> String {
    format!("/{group}/namespaces/{}/{resource}/{name}", names::INSTALL_NAMESPACE)
}

/// Waits until the object is there and as `is` says.
async fn until(client: &Client, path: &str, deadline: Duration, what: &str, is: impl Fn(&Value) -> bool) {
    let seen = || async {
        let answer = get(client, path).await.ok().filter(sluice_e2e::call::Response::is_ok)?;
        is(&answer.body).then_some(())
    };
    wait::eventually(deadline, seen, &format!("{path}: {what}")).await.unwrap();
}

/// Changes what is at `pointer` of the object, and waits until it is back.
async fn put_back(client: &Client, path: &str, pointer: &str, change: &Value) {
    let before = get(client, path).await.unwrap().body;
    let wanted = before.pointer(pointer).unwrap();
    patch(client, path, change).await;
    until(client, path, DRIFT, pointer, |object| object.pointer(pointer) == Some(wanted)).await;
}

/// Deletes the object, and waits until there is another one.
async fn made_again(client: &Client, path: &str) {
    let uid = get(client, path).await.unwrap().body["metadata"]["uid"].clone();
    let answer =
        call(client, Method::DELETE, path, JSON, &json!({ "propagationPolicy": "Background" })).await;
    assert!(answer.unwrap().is_ok());
    until(client, path, DRIFT, "made again", |object| object["metadata"]["uid"] != uid).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_put_back() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    let (webhook, controller) = (deployment_path(names::WEBHOOK), deployment_path(names::CONTROLLER));
    let service = path("api/v1", "services", names::WEBHOOK);
    let policy = path("apis/networking.k8s.io/v1", "networkpolicies", names::WEBHOOK);
    let budget = path("apis/policy/v1", "poddisruptionbudgets", names::WEBHOOK);
    let schema = format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{}", names::FLOW);
    for object in [&webhook, &controller, &service, &policy, &budget, &schema] {
        let is_ours = |object: &Value| object["metadata"]["ownerReferences"][0]["name"] == names::OPERATOR;
        until(&client, object, SOON, "made", is_ours).await;
    }
    let foreign = json!({ "metadata": { "labels": { "team": "a" }, "annotations": { "note": "b" } } });
    for object in [&webhook, &service] {
        patch(&client, object, &foreign).await;
    }
    // As `kubectl scale` does it.
    patch(&client, &format!("{webhook}/scale"), &json!({ "spec": { "replicas": 0 } })).await;
    until(&client, &webhook, DRIFT, "replicas", |object| object["spec"]["replicas"] == 2).await;
    put_back(&client, &service, "/spec/selector", &json!({ "spec": { "selector": { "app": "theirs" } } }))
        .await;
    put_back(&client, &policy, "/spec/ingress", &json!({ "spec": { "ingress": [] } })).await;
    let exempt = json!({ "spec": { "priorityLevelConfiguration": { "name": "exempt" } } });
    put_back(&client, &schema, "/spec/priorityLevelConfiguration", &exempt).await;
    made_again(&client, &budget).await;
    made_again(&client, &controller).await;
    for object in [&webhook, &service] {
        let metadata = get(&client, object).await.unwrap().body["metadata"].clone();
        assert_eq!(
            (&metadata["labels"]["team"], &metadata["annotations"]["note"]),
            (&json!("a"), &json!("b"))
        );
    }
}

/// What gates is back as soon as what runs.
#[tokio::test(flavor = "multi_thread")]
async fn drift_of_what_gates_is_put_back() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    let hooks = [
        format!("{ADMISSION}/mutatingwebhookconfigurations/{}", names::MUTATING_CONFIG),
        format!("{ADMISSION}/validatingwebhookconfigurations/{}", names::VALIDATING_CONFIG),
    ];
    for hook in &hooks {
        const BUNDLE: &str = "/webhooks/0/clientConfig/caBundle";
        let bundle = get(&client, hook).await.unwrap().body.pointer(BUNDLE).cloned().unwrap();
        for emptied in [json!({ "op": "remove", "path": BUNDLE }), replaced(BUNDLE, "b3RoZXI=")] {
            let answer = call(&client, Method::PATCH, hook, JSON_PATCH, &json!([emptied])).await.unwrap();
            assert!(answer.is_ok(), "{answer:?}");
            until(&client, hook, DRIFT, "its bundle", |object| object.pointer(BUNDLE) == Some(&bundle)).await;
        }
    }
    let policies = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
    let named = |name: &str| policies.map(|kind| format!("{ADMISSION}/{kind}/{name}"));
    let policies = [named(names::GUARD_POLICY), named(names::GATED_POLICY)].concat();
    for object in policies.iter().chain(&hooks) {
        made_again(&client, object).await;
    }
}

fn replaced(path: &str, value: &str) -> Value {
    json!({ "op": "replace", "path": path, "value": value })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admission_object_names_its_writer_and_is_left_to_a_newer_one() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    let policy = format!("{ADMISSION}/validatingadmissionpolicies/{}", names::GUARD_POLICY);
    let writer = |object: &Value| object["metadata"]["annotations"][names::WRITER_VERSION_ANNOTATION].clone();
    let own = env!("CARGO_PKG_VERSION");
    until(&client, &policy, SOON, "names its writer", |object| writer(object) == own).await;

    let newer = |version: Value| json!({ "metadata": { "annotations": { names::WRITER_VERSION_ANNOTATION: version } } });
    let mut change = newer(json!("99.0.0"));
    change["spec"] = json!({ "failurePolicy": "Ignore" });
    patch(&client, &policy, &change).await;
    let aaq = format!("{AAQS}/{}", names::AAQ_NAME);
    until_told(&client, &aaq, "Deployed", (names::DEGRADED, "True", "LeftToNewerVersion")).await;
    // What is said was planned with this object in sight.
    let left = get(&client, &policy).await.unwrap().body;
    assert_eq!((&left["spec"]["failurePolicy"], writer(&left)), (&json!("Ignore"), json!("99.0.0")));
    let said = get(&client, &aaq).await.unwrap().body["status"]["conditions"].to_string();
    assert!(said.contains(&format!("ValidatingAdmissionPolicy {} of 99.0.0", names::GUARD_POLICY)), "{said}");

    patch(&client, &policy, &newer(Value::Null)).await;
    let is_back = |object: &Value| object["spec"]["failurePolicy"] == "Fail" && writer(object) == own;
    until(&client, &policy, DRIFT, "put back", is_back).await;
    until_told(&client, &aaq, "Deployed", (names::DEGRADED, "False", "DeployCompleted")).await;
}

/// What `/proc` says of the memory of a process, in KiB.
fn memory(pid: i32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_in_quiet_minutes() {
    let quiet = std::env::var(QUIET).map_or(120, |seconds| seconds.parse().unwrap());
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    until_rolled(&bed).await;
    until_condition(&bed, "aaq/aaq", "Progressing=False").await;
    // The controller says it, when it has asked each API server who gates.
    until_condition(&bed, "aaq/aaq", "Gating").await;
    let from = Timestamp::now();
    tokio::time::sleep(Duration::from_secs(quiet)).await;
    assert_eq!(writes_since(&bed, from).await, Vec::<String>::new());
    let operator = running.installation.operator().unwrap().pid();
    let (own, most) = (memory(operator, "RssAnon"), memory(operator, "VmHWM"));
    println!(
        "nothing is written in {quiet} s; the operator has {own} KiB, with the program's file at most {most} KiB"
    );
    assert!(own <= MEMORY, "{own} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fight_is_told_and_slowed_down() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    let service = path("api/v1", "services", names::METRICS_SERVICE);
    let selector = get(&client, &service).await.unwrap().body["spec"]["selector"].clone();
    let from = Timestamp::now();
    let insisting = async {
        let theirs = json!({ "spec": { "selector": { "app": "theirs" } } });
        let mut tick = tokio::time::interval(INSISTS);
        loop {
            tick.tick().await;
            if get(&client, &service).await.unwrap().body["spec"]["selector"] == selector {
                let path = format!("{service}?fieldManager=fighter");
                assert!(call(&client, Method::PATCH, &path, MERGE, &theirs).await.unwrap().is_ok());
            }
        }
    };
    let _ = tokio::time::timeout(FIGHT, insisting).await;
    let answers = writes_since(&bed, from).await;
    let answers =
        answers.iter().filter(|write| write.ends_with(&format!(" services {}", names::METRICS_SERVICE)));
    let count = answers.count();
    // Three at once, then after 2, 4, 8, 16 seconds and so on.
    assert!((4..=8).contains(&count), "{count} answers");
    let aaq = format!("{AAQS}/{}", names::AAQ_NAME);
    until_told(&client, &aaq, "Deployed", (names::DEGRADED, "True", names::OBJECT_CONTESTED)).await;
    let said = get(&client, &aaq).await.unwrap().body["status"]["conditions"].to_string();
    assert!(said.contains("Service sluice-metrics: fighter changes it"), "{said}");
    let events = format!("/apis/events.k8s.io/v1/namespaces/{}/events", names::INSTALL_NAMESPACE);
    let told = || async {
        let all = get(&client, &events).await.ok()?.body["items"].as_array()?.clone();
        let is_it = |event: &&Value| event["reason"] == names::OBJECT_CONTESTED;
        let note = all.iter().find(is_it)?["note"].as_str()?.to_owned();
        note.contains("fighter").then_some(())
    };
    wait::eventually(SOON, told, "an event about the fight").await.unwrap();
    // The pause after the last answer is half a minute at most.
    until(&client, &service, SOON, "put back", |object| object["spec"]["selector"] == selector).await;
}

/// What gates pods is put back at once many times in a row, so this takes longer to be told; no pod is let in meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_fight_over_what_gates_is_told_and_leaves_no_pod_ungated() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    let configuration = format!("{ADMISSION}/validatingwebhookconfigurations/{}", names::VALIDATING_CONFIG);
    let webhooks = get(&client, &configuration).await.unwrap().body["webhooks"].clone();
    let timeout = webhooks[0]["timeoutSeconds"].clone();
    let patches = AtomicU32::new(0);
    let insisting = async {
        let theirs = json!([{ "op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 29 }]);
        let path = format!("{configuration}?fieldManager=fighter");
        let mut tick = tokio::time::interval(INSISTS);
        loop {
            tick.tick().await;
            if get(&client, &configuration).await.unwrap().body["webhooks"][0]["timeoutSeconds"] == timeout {
                assert!(call(&client, Method::PATCH, &path, JSON_PATCH, &theirs).await.unwrap().is_ok());
                patches.fetch_add(1, SeqCst);
            }
        }
    };
    let aaq = format!("{AAQS}/{}", names::AAQ_NAME);
    let told = async {
        until_told(&client, &aaq, "Deployed", (names::DEGRADED, "True", names::OBJECT_CONTESTED)).await;
        let said = get(&client, &aaq).await.unwrap().body["status"]["conditions"].to_string();
        let sentence = format!("ValidatingWebhookConfiguration {}: ", names::VALIDATING_CONFIG);
        assert!(said.contains(&sentence), "{said}");
        let events = format!("/apis/events.k8s.io/v1/namespaces/{}/events", names::INSTALL_NAMESPACE);
        let event = || async {
            let all = get(&client, &events).await.ok()?.body["items"].as_array()?.clone();
            let is_it = |event: &&Value| event["reason"] == names::OBJECT_CONTESTED;
            all.iter().filter(is_it).any(|event| event["note"].to_string().contains(&sentence)).then_some(())
        };
        wait::eventually(SOON, event, "an event about the fight").await.unwrap();
    };
    tokio::select! {
        () = insisting => unreachable!("it goes on"),
        () = told => {}
    }
    let metrics = Samples::of(running.installation.operator_admin()).await.unwrap();
    let object = format!("validatingwebhookconfigurations/{}", names::VALIDATING_CONFIG);
    let labels = [("object", object.as_str()), ("manager", "fighter")];
    let contests = metrics.sum("sluice_admission_contests_total", &labels);
    // The fighter writes once the operator has put the object back, so all its writes but the last one were answered.
    let answered = f64::from(patches.load(SeqCst)) - 1.0;
    assert!(answered > 1.0 && contests >= Some(answered), "{contests:?} of {answered}");
    // Ten seconds after the last answer nothing of it is left.
    until(&client, &configuration, SOON, "put back", |object| object["webhooks"] == webhooks).await;
    until_told(&client, &aaq, "Deployed", (names::DEGRADED, "False", "DeployCompleted")).await;
}
