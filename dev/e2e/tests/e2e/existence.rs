//! Which `AAQ` there is, what goes with it where it installs, and that no webhook is in the way of a cure.

use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{AAQ, names};
use sluice_e2e::call::{JSON, MERGE, Response, call, get, post};
use sluice_e2e::objects::{TARGETED, apply_aaq, is_held, pod};
use sluice_e2e::{Installation, Running, Setup};
use sluice_manifests::Installation as InstalledBy;
use sluice_manifests::uninstall::{Part, goes_with_aaq, inventory};
use sluice_testbed::{Bed, BedOptions, Program, wait};

use crate::context::{SOON, idle_bed, kubectl};
use crate::operator_cr::{installed, until_condition, until_told};
use crate::team::Team;

const AAQS: &str = "/apis/aaq.kubevirt.io/v1alpha1/aaqs";
/// An `AAQ` that is deleted is gone in this time, and with it what it has installed.
const REMOVED: Duration = Duration::from_secs(30);
const HELD: usize = 20;

fn path(name: &str) -> String {
    format!("{AAQS}/{name}")
}

fn aaq(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": names::API_VERSION, "kind": "AAQ", "metadata": { "name": name }, "spec": spec })
}

/// Creates it once that is answered with this code: the webhook learns by watch what there is.
async fn until_created(client: &Client, object: &Value, code: u16) -> Response {
    let tries = || async { post(client, AAQS, object).await.ok().filter(|answer| answer.code == code) };
    wait::eventually(SOON, tries, &format!("{object} to be answered with {code}")).await.unwrap()
}

async fn delete(client: &Client, name: &str) {
    let answer = call(client, Method::DELETE, &path(name), JSON, &json!({})).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
}

async fn until_gone(client: &Client, name: &str) {
    let gone = || async { (get(client, &path(name)).await.ok()?.code == 404).then_some(()) };
    wait::eventually(SOON, gone, &format!("the AAQ {name} to be gone")).await.unwrap();
}

/// Waits until the operator has made its own.
async fn until_made(client: &Client) {
    let made = || async {
        let object = get(client, &path(names::AAQ_NAME)).await.ok()?.body;
        let is_made = object["metadata"]["labels"][names::MADE_BY_LABEL] == names::MADE_BY_OPERATOR;
        (is_made && object["spec"] == json!({})).then_some(())
    };
    wait::eventually(SOON, made, "the operator to make an AAQ").await.unwrap();
}

pub async fn until_gated(team: &Team, expected: bool) {
    let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
    let probe = || async {
        let probed = team.pods.create(&dry, &pod("probe", &[])).await.ok()?;
        (is_held(&probed) == expected).then_some(())
    };
    wait::eventually(SOON, probe, &format!("pods to be gated: {expected}")).await.unwrap();
}

/// Reasons of the events about the `AAQ`, each as often as its event counts.
async fn reasons(client: &Client, name: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let all = events.list(&ListParams::default()).await.unwrap().items.into_iter().filter(|event| {
        event
            .regarding
            .as_ref()
            .is_some_and(|about| about.kind.as_deref() == Some("AAQ") && about.name.as_deref() == Some(name))
    });
    all.flat_map(|event| {
        let count = event.series.map_or(1, |series| series.count);
        (0..count).map(move |_| event.reason.clone().unwrap_or_default())
    })
    .collect()
}

/// Waits until a table of `kubectl` says how the installation is.
async fn until_shown(bed: &Bed) {
    let expected = [
        ["NAME", "AGE", "PHASE", "AVAILABLE", "GATE", "VMS"],
        ["aaq", "", "Deployed", "True", "GatedBy", "DedicatedVirtualResources"],
    ];
    let shown = || async {
        let table = kubectl(bed, &["get", "aaq"]).await;
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        let is_row = |(row, expected): (&Vec<&str>, &[&str; 6])| {
            row.len() == expected.len() && row.iter().zip(expected).all(|(is, wanted)| is.starts_with(wanted))
        };
        (rows.len() == 2 && rows.iter().zip(&expected).all(is_row)).then_some(table)
    };
    println!("{}", wait::eventually(SOON, shown, "the columns of the AAQ").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_makes_an_aaq_and_yields_to_a_users() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    until_made(&client).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    until_told(&client, &path("aaq"), "Deployed", (names::AVAILABLE, "True", "DeployCompleted")).await;
    until_shown(&bed).await;
    let said = || async {
        let mut reasons = reasons(&client, "aaq").await;
        reasons.retain(|reason| reason == "DeployCompleted");
        (!reasons.is_empty()).then_some(reasons.len())
    };
    let times = wait::eventually(SOON, said, "an event about the phase").await.unwrap();
    assert_eq!(times, 1, "once for each change");

    // Beside it any other is let in, and the operator's goes.
    let other = Team::with(&bed, "other", &[("team", "a")]).await;
    let selector = json!({ "namespaceSelector": { "matchLabels": { "team": "a" } } });
    until_created(&client, &aaq("theirs", &selector), 201).await;
    until_gone(&client, "aaq").await;
    until_gated(&other, true).await;
    until_told(&client, &path("theirs"), "Deployed", (names::AVAILABLE, "True", "DeployCompleted")).await;
    assert!(!reasons(&client, "theirs").await.contains(&"ConfigError".to_owned()), "never one too many");
    let refused = until_created(&client, &aaq("third", &json!({})), 403).await;
    assert!(refused.message().contains("only a single AAQ CR instance is allowed"), "{refused:?}");

    // Without it there is one again, and what holds without an AAQ holds.
    delete(&client, "theirs").await;
    until_made(&client).await;
    until_gated(&other, false).await;

    // What a user has edited is the user's: nothing takes it away, and no second one is let in.
    let edit = json!({ "spec": { "priorityClass": "system-cluster-critical" } });
    let answer = call(&client, Method::PATCH, &path("aaq"), MERGE, &edit).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    until_created(&client, &aaq("theirs", &selector), 403).await;
    assert_eq!(get(&client, &path("aaq")).await.unwrap().body["spec"], edit["spec"]);
}

/// What is there of what the operator makes.
async fn made(client: &Client) -> Vec<String> {
    there(client, inventory(names::INSTALL_NAMESPACE).into_iter().filter(goes_with_aaq)).await
}

/// What is there of these.
pub async fn there(client: &Client, parts: impl IntoIterator<Item = Part>) -> Vec<String> {
    let mut there = Vec::new();
    for part in parts {
        let object = part.object;
        let group = if object.kind.group.is_empty() { "/api" } else { "/apis/" };
        let home = object.namespace.as_ref().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        let (version, resource) = (&object.kind.version, object.kind.resource());
        let separator = if object.kind.group.is_empty() { "" } else { object.kind.group.as_str() };
        let path = format!("{group}{separator}/{version}{home}/{resource}/{}", object.name);
        if get(client, &path).await.unwrap().code == 200 {
            there.push(object.to_string());
        }
    }
    there
}

/// As the kubelet of a real cluster: once its Deployment asks for no pod, the process ends.
pub async fn end_with_deployment(client: &Client, name: &str, program: &Program) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), names::INSTALL_NAMESPACE);
    let is_stopped = |deployment: Option<&Deployment>| {
        deployment.is_none_or(|deployment| deployment.spec.replicas == Some(0))
    };
    wait::wait_for(&deployments, name, SOON, "it to be stopped", is_stopped).await.unwrap();
    program.terminate();
    program.wait().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr_mode_installs_and_removes_three_times() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    bed.add_nodes(2, &[("cpu", "8"), ("memory", "16Gi")]).await.unwrap();
    let setup = Setup { installed_by: InstalledBy::Cr, ..Setup::default() };
    let installation = Installation::apply(&bed, setup).await.unwrap();
    let client = bed.admin().unwrap();
    let team = Team::with(&bed, "held", TARGETED).await;
    team.quota("none", &[("pods", "0")]).await;
    let nothing = || async { made(&client).await.is_empty().then_some(()) };
    wait::eventually(SOON, nothing, "nothing to be installed without an AAQ").await.unwrap();
    for round in 0..3 {
        until_gated(&team, false).await;
        assert_eq!(get(&client, &path("aaq")).await.unwrap().code, 404, "the operator makes none");
        let applied = || async { apply_aaq(&client, json!({})).await.ok() };
        wait::eventually(SOON, applied, "the AAQ to be applied").await.unwrap();
        let (controller, webhook) =
            (installation.controller().await.unwrap(), installation.webhook().await.unwrap());
        installation.until_gating().await.unwrap();
        until_condition(&bed, "aaq/aaq", "Available").await;
        let object = get(&client, &path("aaq")).await.unwrap().body;
        assert_eq!(object["metadata"]["finalizers"], json!([names::FINALIZER]));
        for number in 0..HELD {
            let held = team.pod(&format!("held-{round}-{number}"), &[]).await;
            assert!(is_held(&held), "{held:?}");
        }

        delete(&client, "aaq").await;
        let begin = Instant::now();
        until_told(&client, &path("aaq"), "Deleting", (names::AVAILABLE, "False", "DeleteStarted")).await;
        let creating = async {
            let mut refused = Vec::new();
            for number in 0.. {
                if get(&client, &path("aaq")).await.unwrap().code == 404 {
                    break;
                }
                let pod = serde_json::to_value(pod(&format!("new-{round}-{number}"), &[])).unwrap();
                let answer = post(&client, &team.path("pods"), &pod).await.unwrap();
                if !answer.is_ok() {
                    refused.push(answer.message().to_owned());
                }
            }
            (refused, begin.elapsed())
        };
        let ((refused, took), (), ()) = tokio::join!(
            creating,
            end_with_deployment(&client, names::CONTROLLER, &controller.program),
            end_with_deployment(&client, names::WEBHOOK, &webhook.program)
        );
        assert_eq!(refused, Vec::<String>::new());
        println!("round {round}: the AAQ was gone after {took:?}");
        assert!(took < REMOVED, "{took:?}");
        assert_eq!(made(&client).await, Vec::<String>::new());
        assert_eq!(team.held().await, Vec::<String>::new(), "no pod waits for nobody");
        assert!(team.quotas.get("none").await.is_ok(), "quotas stay");
    }
    assert!(installation.operator().unwrap().is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_every_webhook_gone_the_aaq_can_be_edited_and_made() {
    let bed = idle_bed().await;
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    let client = bed.admin().unwrap();
    until_made(&client).await;
    running.webhook.program.kill();
    running.webhook.program.wait().await;

    let infra = json!({ "spec": { "infra": { "nodeSelector": { "pool": "other" } } } });
    let answer = call(&client, Method::PATCH, &path("aaq"), MERGE, &infra).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    // One too many says so itself, and nothing of it is in force.
    let second = post(&client, AAQS, &aaq("second", &json!({ "namespaceSelector": {} }))).await.unwrap();
    assert_eq!(second.code, 201, "{second:?}");
    until_told(&client, &path("second"), "Error", (names::DEGRADED, "True", "ConfigError")).await;
    let aaqs: Api<AAQ> = Api::all(client.clone());
    aaqs.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    let made = post(&client, AAQS, &aaq("new", &infra["spec"])).await.unwrap();
    assert_eq!(made.code, 201, "{made:?}");
    until_told(&client, &path("new"), "Deploying", (names::AVAILABLE, "False", "DeployStarted")).await;
    assert!(running.controller.program.is_running());
}
