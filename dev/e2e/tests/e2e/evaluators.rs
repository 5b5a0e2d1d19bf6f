//! A sidecar evaluator beside the controller says what pods take. The sidecar is a stand-in for one that was built with
//! application-aware-quota's library: pods with the label `label-app` take twice what Kubernetes counts.

use std::path::{Path, PathBuf};

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use sluice_api::names;
use sluice_e2e::metrics::Samples;
use sluice_e2e::objects::is_held;
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, Program, artifacts, wait};

use crate::context::{SOON, idle_bed};
use crate::evaluator_rules::Rules;
use crate::pods::pod;
use crate::team::Team;

const LABEL: &str = "label-app";

/// A cluster whose controller asks an evaluator with a socket in this directory.
async fn evaluated<'b>(bed: &'b Bed, further: &[&str]) -> (Running<'b>, PathBuf) {
    let directory = bed.dir().join("evaluator");
    std::fs::create_dir_all(&directory).unwrap();
    let mut controller_args = vec![format!("--evaluator=label={}", directory.display())];
    controller_args.extend(further.iter().map(|&arg| arg.to_owned()));
    let running = Running::on(bed, Setup { controller_args, ..Setup::default() }).await.unwrap();
    (running, directory)
}

async fn start(bed: &Bed, directory: &Path, name: &str) -> Program {
    start_by(bed, directory, name, "double").await
}

/// An evaluator with this rule.
async fn start_by(bed: &Bed, directory: &Path, name: &str, rule: &str) -> Program {
    let program = tokio::task::spawn_blocking(artifacts::evaluator).await.unwrap().unwrap();
    let args = ["--dir".into(), directory.as_os_str().to_owned(), "--config".into(), rule.into()];
    bed.program(name, program, args, []).unwrap()
}

async fn kill(program: &Program) {
    program.kill();
    program.wait().await;
}

impl Team {
    async fn labelled(&self, name: &str, cpu: &str) {
        let mut labelled = pod(name);
        labelled["metadata"]["labels"] = json!({ LABEL: "" });
        labelled["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu } });
        let answer = self.create(&labelled).await;
        assert!(answer.is_ok(), "{answer:?}");
    }

    /// What was told of a held pod, once it begins so.
    pub(crate) async fn until_told(&self, name: &str, reason: &str, begins: &str) -> String {
        let events: kube::Api<k8s_openapi::api::events::v1::Event> =
            kube::Api::namespaced(self.client.clone(), &self.namespace.name);
        let told = || async {
            let all = events.list(&ListParams::default()).await.ok()?.items;
            let is_it = |event: &k8s_openapi::api::events::v1::Event| {
                let about = event.regarding.as_ref().and_then(|it| it.name.as_deref());
                event.reason.as_deref() == Some(reason) && about == Some(name)
            };
            all.into_iter().filter(is_it).filter_map(|event| event.note).find(|note| note.starts_with(begins))
        };
        wait::eventually(SOON, told, &format!("an event {reason} about {name}")).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_says_is_charged_and_without_it_new_pods_are_held() {
    let bed = idle_bed().await;
    let (running, directory) = evaluated(&bed, &[]).await;
    let team = Team::plain(&bed, "evaluated").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;

    // Nobody is there to ask yet.
    team.labelled("first", "200m").await;
    let note = team.until_told("first", "NotEvaluated", "held: ").await;
    let said = "held: evaluator label is not there: its directory holds no socket, see whether its container runs; \
                evaluators (label) say what the pod takes, and no pod goes without an answer";
    assert_eq!(note, said);

    let sidecar = start(&bed, &directory, "sidecar").await;
    team.until_released("first").await;
    team.until_used("compute", "requests.cpu", "400m").await;
    // The evaluator does not match it: it takes what Kubernetes counts.
    team.pod("plain", &[("cpu", "100m")]).await;
    team.until_released("plain").await;
    team.until_used("compute", "requests.cpu", "500m").await;
    team.labelled("second", "300m").await;
    let note = team.until_told("second", "QuotaExceeded", "").await;
    let said = "exceeded quota: compute, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1";
    assert_eq!(note, said);

    // Another label of a running pod is another content.
    let label = json!({ "metadata": { "labels": { LABEL: null } } });
    team.pods.patch("first", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    team.until_released("second").await;
    team.until_used("compute", "requests.cpu", "900m").await;

    let samples = Samples::of(&running.controller.admin).await.unwrap();
    let of_label = [("evaluator", "label")];
    assert!(samples.sum("sluice_evaluator_requests_total", &of_label) >= Some(3.0));
    assert!(samples.sum("sluice_evaluator_request_seconds_count", &of_label) >= Some(3.0));
    assert_eq!(samples.sum("sluice_evaluator_unanswered_pods", &[]), Some(0.0));

    // What runs stays charged while nobody answers, and new pods are held whatever room there is.
    kill(&sidecar).await;
    team.pod("late", &[("cpu", "1m")]).await;
    team.until_told("late", "NotEvaluated", "held: evaluator label is not there: ").await;
    team.until_used("compute", "requests.cpu", "900m").await;
    let late = team.pods.get("late").await.unwrap();
    assert!(is_held(&late));
    let _sidecar = start(&bed, &directory, "sidecar-again").await;
    team.until_released("late").await;
    team.until_used("compute", "requests.cpu", "901m").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resize_is_judged_by_what_it_says_of_the_new_pod() {
    let bed = idle_bed().await;
    let (_running, directory) = evaluated(&bed, &[]).await;
    let sidecar = start(&bed, &directory, "sidecar").await;
    let team = Team::plain(&bed, "evaluated").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.labelled("web", "200m").await;
    team.until_released("web").await;
    team.until_used("compute", "requests.cpu", "400m").await;

    let resize = async |cpu: &str| {
        let container = json!({ "name": "main", "resources": { "requests": { "cpu": cpu } } });
        let patch = Patch::Strategic(json!({ "spec": { "containers": [container] } }));
        let answer: kube::Result<k8s_openapi::api::core::v1::Pod> =
            team.pods.patch_subresource("resize", "web", &PatchParams::default(), &patch).await;
        match answer {
            Ok(_) => None,
            Err(kube::Error::Api(status)) => Some((status.code, status.message.clone())),
            Err(error) => panic!("no answer: {error}"),
        }
    };
    let decided = async |cpu: &str| {
        let answer =
            async || Some(resize(cpu).await).filter(|it| it.as_ref().is_none_or(|(code, _)| *code != 429));
        wait::eventually(SOON, answer, "a resize to be decided").await.unwrap()
    };
    let (code, words) = decided("501m").await.unwrap();
    let said = "exceeded quota: compute, requested: requests.cpu=602m, used: requests.cpu=400m, limited: requests.cpu=1";
    assert!(code == 403 && words.ends_with(said), "{code} {words}");
    assert_eq!(decided("500m").await, None);
    team.until_used("compute", "requests.cpu", "1").await;

    kill(&sidecar).await;
    let silent = async || resize("400m").await.filter(|(code, _)| *code == 429);
    wait::eventually(SOON, silent, "a resize that nobody judges").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_it_alone_knows_is_counted() {
    let bed = idle_bed().await;
    let (_running, directory) = evaluated(&bed, &[]).await;
    let _sidecar = start(&bed, &directory, "sidecar").await;
    let team = Team::on(&bed, "licence").await;
    team.quota("licence", &[("example.com/calls", "1")]).await;
    // The stand-in says of a pod of this name how many questions it had at once.
    team.pod("calls", &[]).await;
    team.until_released("calls").await;
    team.until_used("licence", "example.com/calls", "1").await;
    let quota = team.quotas.get("licence").await.unwrap();
    let conditions = quota.status.unwrap().conditions;
    assert!(conditions.iter().all(|condition| condition.type_ != names::UNCOUNTED_KEYS), "{conditions:?}");
}

/// Where an administrator asked for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_counted_natively_when_it_has_not_worked_for_ten_seconds() {
    let bed = idle_bed().await;
    let (running, directory) = evaluated(&bed, &["--evaluator-failure=count-natively"]).await;
    let team = Team::on(&bed, "native").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.labelled("web", "200m").await;
    team.until_released("web").await;
    team.until_used("compute", "requests.cpu", "200m").await;
    let samples = Samples::of(&running.controller.admin).await.unwrap();
    assert_eq!(samples.sum("sluice_evaluator_fail_open_total", &[]), Some(1.0));
    // Repaired when it is back.
    let _sidecar = start(&bed, &directory, "sidecar").await;
    team.until_used("compute", "requests.cpu", "400m").await;
}

/// Spec 60 of application-aware-quota's suite: another argument of the sidecar, with which a new controller comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_counted_double_counts_triple_with_another_configuration() {
    let bed = idle_bed().await;
    let (running, directory) = evaluated(&bed, &[]).await;
    let sidecar = start_by(&bed, &directory, "sidecar", "double").await;
    let team = Team::plain(&bed, "spec").await;
    team.quota("memory", &[("requests.memory", "4Gi")]).await;
    let mut labelled = pod("tested");
    labelled["metadata"]["labels"] = json!({ LABEL: "" });
    labelled["spec"]["containers"][0]["resources"] = json!({ "requests": { "memory": "256Mi" } });
    assert!(team.create(&labelled).await.is_ok());
    team.until_released("tested").await;
    team.until_used("memory", "requests.memory", "512Mi").await;

    kill(&sidecar).await;
    kill(&running.controller.program).await;
    let _sidecar = start_by(&bed, &directory, "sidecar-again", "triple").await;
    let _successor = running.installation.controller().await.unwrap();
    team.until_used("memory", "requests.memory", "768Mi").await;
}

/// Its rule looks at the other pods of the namespace: all but the first that runs take a licence, of which there is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_sent_the_other_pods_of_the_namespace_and_asked_again_when_one_changes() {
    let bed = idle_bed().await;
    let (running, directory) = evaluated(&bed, &[]).await;
    let _sidecar = start_by(&bed, &directory, "sidecar", "first").await;
    let team = Team::plain(&bed, "first").await;
    team.quota("licences", &[("example.com/license", "0")]).await;
    team.labelled("one", "1m").await;
    team.until_released("one").await;
    team.labelled("two", "1m").await;
    let note = team.until_told("two", "ExceedsLimit", "").await;
    assert!(note.contains("example.com/license=1"), "{note}");

    // When the first one is gone, the next is the first.
    team.pods.delete("one", &kube::api::DeleteParams::default()).await.unwrap();
    team.until_released("two").await;
    team.labelled("three", "1m").await;
    team.until_told("three", "ExceedsLimit", "").await;
    let samples = Samples::of(&running.controller.admin).await.unwrap();
    assert!(samples.sum("sluice_evaluator_rounds_total", &[("sent", "whole")]) >= Some(3.0));
}

/// With `--evaluator-other-pods=none` the evaluator gets an empty list, so each pod looks like the first one to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_other_pods_each_is_the_first() {
    let bed = idle_bed().await;
    let (_running, directory) = evaluated(&bed, &["--evaluator-other-pods=none"]).await;
    let _sidecar = start_by(&bed, &directory, "sidecar", "first").await;
    let team = Team::plain(&bed, "alone").await;
    team.quota("licences", &[("example.com/license", "0")]).await;
    for name in ["one", "two"] {
        team.labelled(name, "1m").await;
        team.until_released(name).await;
    }
}

impl Team {
    /// A pod that the evaluator doubles, of an app.
    async fn of_app(&self, name: &str, app: &str, cpu: &str) {
        let mut labelled = pod(name);
        labelled["metadata"]["labels"] = json!({ LABEL: "", "app": app });
        labelled["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu } });
        let answer = self.create(&labelled).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
}

/// How many questions the sidecar was asked.
async fn asked(running: &Running<'_>) -> f64 {
    let samples = Samples::of(&running.controller.admin).await.unwrap();
    samples.sum("sluice_evaluator_requests_total", &[("evaluator", "label")]).unwrap_or(0.0)
}

/// The sidecar and the controller run all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_its_name_says_how_it_is_asked_and_each_change_is_in_force_at_once() {
    let bed = idle_bed().await;
    let (running, directory) = evaluated(&bed, &[]).await;
    let sidecar = start(&bed, &directory, "sidecar").await;
    let (policies, team) = (Rules::of(&bed), Team::plain(&bed, "policies").await);
    team.quota("compute", &[("requests.cpu", "4")]).await;
    for (name, cpu) in [("web", "100m"), ("db", "200m")] {
        team.of_app(name, name, cpu).await;
        team.until_released(name).await;
    }
    team.until_used("compute", "requests.cpu", "600m").await;

    // Only databases, and beside what Kubernetes counts.
    let policy = json!({
        "podSelector": { "matchLabels": { "app": "db" } }, "strategy": "Retain", "sidecar": { "otherPods": "None" },
    });
    policies.write("label", &policy).await.unwrap();
    team.until_used("compute", "requests.cpu", "700m").await;
    let said = ("InForce".to_owned(), "the sidecar answers, and is asked as it says".to_owned());
    assert_eq!(policies.until_ready("label", "True").await, said);
    policies.until_figures("label", 1, 0).await;
    let before = asked(&running).await;
    team.of_app("web-2", "web", "1m").await;
    team.until_released("web-2").await;
    team.until_used("compute", "requests.cpu", "701m").await;
    assert_eq!(asked(&running).await, before, "of pods that it does not select nothing is asked");

    // Each of the pods that it selects once.
    team.of_app("db-2", "db", "10m").await;
    team.until_released("db-2").await;
    team.until_used("compute", "requests.cpu", "731m").await;
    let before = asked(&running).await;
    policies.change("label", json!({ "revision": "2", "strategy": "Replace" })).await;
    team.until_used("compute", "requests.cpu", "521m").await;
    assert_eq!(asked(&running).await, before + 2.0);

    // What it may not charge holds new pods.
    policies.change("label", json!({ "keys": ["example.com/license"] })).await;
    team.of_app("db-3", "db", "10m").await;
    let note = team.until_told("db-3", "NotEvaluated", "held: evaluator label answered").await;
    assert!(note.contains("not among the keys that this evaluator may charge"), "{note}");
    policies.change("label", json!({ "keys": null })).await;
    team.until_released("db-3").await;
    team.until_used("compute", "requests.cpu", "541m").await;

    // Switched off it is needed for nothing.
    policies.change("label", json!({ "mode": "Off" })).await;
    assert_eq!(policies.until_ready("label", "False").await.0, "Off");
    team.until_used("compute", "requests.cpu", "321m").await;
    kill(&sidecar).await;
    team.of_app("db-4", "db", "10m").await;
    team.until_released("db-4").await;

    // It is not there, and what becomes of pods then is said by the object.
    policies.change("label", json!({ "mode": "Enforce", "onFailure": "Hold" })).await;
    let (reason, message) = policies.until_ready("label", "False").await;
    assert_eq!(reason, "SidecarFails");
    assert!(message.starts_with("the sidecar is not there: "), "{message}");
    team.of_app("db-5", "db", "10m").await;
    team.until_told("db-5", "NotEvaluated", "held: evaluator label is not there: ").await;
    policies.until_figures("label", 0, 1).await;
    policies.change("label", json!({ "onFailure": "CountNatively" })).await;
    team.until_released("db-5").await;

    // Without the object it is asked about all pods again.
    let _sidecar = start(&bed, &directory, "sidecar-again").await;
    policies.until_ready("label", "True").await;
    team.until_used("compute", "requests.cpu", "581m").await;
    policies.0.delete("label", &kube::api::DeleteParams::default()).await.unwrap();
    team.until_used("compute", "requests.cpu", "682m").await;

    policies.write("labels", &json!({ "sidecar": {} })).await.unwrap();
    let (reason, message) = policies.until_ready("labels", "False").await;
    assert_eq!(reason, "NoSidecar");
    assert!(
        message.starts_with("not in force: there is no sidecar labels: name its image in spec.sidecar, "),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_shadow_it_says_what_it_would_charge_and_charges_and_holds_nothing() {
    let bed = idle_bed().await;
    let (_running, directory) = evaluated(&bed, &[]).await;
    let (policies, team) = (Rules::of(&bed), Team::plain(&bed, "shadow").await);
    let policy =
        json!({ "mode": "Shadow", "podSelector": { "matchLabels": { "app": "db" } }, "sidecar": {} });
    policies.write("label", &policy).await.unwrap();
    team.quota("compute", &[("requests.cpu", "1")]).await;
    let (reason, _) = policies.until_ready("label", "False").await;
    assert_eq!(reason, "SidecarFails", "it is not there");
    for (name, app, cpu) in [("db", "db", "200m"), ("web", "web", "100m")] {
        team.of_app(name, app, cpu).await;
        team.until_released(name).await;
    }
    let _sidecar = start(&bed, &directory, "sidecar").await;
    let said = async |wanted: (i64, &str)| {
        let is_said = || async {
            let status = policies.0.get("label").await.ok()?.status?;
            let shadow = status.shadow?;
            let cpu = shadow.total.iter().find(|total| total.key == "cpu")?;
            ((status.matched?, &*cpu.change.0) == wanted).then_some(())
        };
        wait::eventually(SOON, is_said, "what it would charge").await.unwrap();
    };
    said((1, "200m")).await;
    team.of_app("db-2", "db", "50m").await;
    said((2, "250m")).await;
    team.until_used("compute", "requests.cpu", "350m").await;
    // What was said is what is charged.
    policies.change("label", json!({ "mode": "Enforce" })).await;
    team.until_used("compute", "requests.cpu", "600m").await;
    policies.until_figures("label", 2, 0).await;
}
