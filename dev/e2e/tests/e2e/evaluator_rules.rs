//! Rules of `Evaluator`s say what pods take.

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, ValidationDirective};
use serde_json::{Value, json};
use sluice_api::{Evaluator, names};
use sluice_e2e::objects::is_held;
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, idle_bed};
use crate::pods::pod;
use crate::team::Team;

const LICENCE: &str = "example.com/license";

/// A licence for each begun core of pods with the label `db`.
fn licence() -> Value {
    json!({
        "podSelector": { "matchLabels": { "app": "db" } },
        "strategy": "Retain",
        "cel": { "match": "true", "charge": { LICENCE: "native['requests.cpu'].ceil()" } },
    })
}

/// The `Evaluator`s of a cluster.
pub(crate) struct Rules(pub(crate) Api<Evaluator>);

impl Rules {
    pub(crate) fn of(bed: &Bed) -> Self {
        Self(Api::all(bed.admin().unwrap()))
    }

    pub(crate) async fn write(&self, name: &str, spec: &Value) -> Result<(), String> {
        let object = json!({
            "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "Evaluator", "metadata": { "name": name }, "spec": spec,
        });
        let answer = self.0.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await;
        answer.map(drop).map_err(|error| error.to_string())
    }

    pub(crate) async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.0.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until `Ready` has this status, and returns its reason and message.
    pub(crate) async fn until_ready(&self, name: &str, status: &str) -> (String, String) {
        let said = || async {
            let object = self.0.get(name).await.ok()?;
            let (generation, known) = (object.metadata.generation, object.status?);
            let condition = known.conditions.into_iter().find(|condition| condition.type_ == names::READY)?;
            let is_it = condition.status == status && known.observed_generation == generation;
            is_it.then_some((condition.reason, condition.message))
        };
        wait::eventually(SOON, said, &format!("evaluator {name} to be Ready={status}")).await.unwrap()
    }
}

impl Rules {
    /// Waits until its status says that it matches and holds so many pods.
    pub(crate) async fn until_figures(&self, name: &str, matched: i64, held: i64) {
        let is_said = || async {
            let status = self.0.get(name).await.ok()?.status?;
            (status.matched == Some(matched) && status.held == Some(held)).then_some(())
        };
        let what = format!("evaluator {name} to match {matched} and to hold {held}");
        wait::eventually(SOON, is_said, &what).await.unwrap();
    }
}

impl Team {
    /// Waits until the quota has the condition `Evaluated`, or has none; returns its message.
    async fn until_evaluated(&self, quota: &str, is_there: bool) -> Option<String> {
        let quotas: Api<sluice_api::ApplicationAwareResourceQuota> =
            Api::namespaced(self.client.clone(), &self.namespace.name);
        let said = || async {
            let status = quotas.get(quota).await.ok()?.status?;
            let condition = status.conditions.into_iter().find(|it| it.type_ == names::EVALUATED);
            (condition.is_some() == is_there)
                .then_some(condition.map(|it| format!("{} {}", it.status, it.message)))
        };
        wait::eventually(SOON, said, "the condition Evaluated").await.unwrap()
    }

    async fn database(&self, name: &str, cpu: Option<&str>) {
        let mut database = pod(name);
        database["metadata"]["labels"] = json!({ "app": "db" });
        if let Some(cpu) = cpu {
            database["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu } });
        }
        let answer = self.create(&database).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_charges_pods_from_its_creation_to_its_end() {
    let bed = idle_bed().await;
    let _running = Running::on(&bed, Setup::default()).await.unwrap();
    let (rules, team) = (Rules::of(&bed), Team::plain(&bed, "licensed").await);
    team.quota("licences", &[(LICENCE, "3"), ("requests.cpu", "4")]).await;
    // It is there before the rule is.
    team.database("first", Some("1500m")).await;
    team.until_released("first").await;
    team.until_used("licences", "requests.cpu", "1500m").await;

    rules.write("licence", &licence()).await.unwrap();
    let said = ("InForce".to_owned(), "its rule is in force".to_owned());
    assert_eq!(rules.until_ready("licence", "True").await, said);
    team.until_used("licences", LICENCE, "2").await;
    team.database("second", Some("1100m")).await;
    let note = team.until_told("second", "QuotaExceeded", "").await;
    let words = "exceeded quota: licences, requested: example.com/license=2, used: example.com/license=2, \
                 limited: example.com/license=3";
    assert_eq!(note, words);
    // Of others it says nothing.
    team.pod("plain", &[("cpu", "100m")]).await;
    team.until_released("plain").await;
    team.until_used("licences", "requests.cpu", "1600m").await;

    // A licence for each pod, from now on.
    rules.change("licence", json!({ "cel": { "charge": { LICENCE: "1" } } })).await;
    team.until_released("second").await;
    team.until_used("licences", LICENCE, "2").await;
    team.until_used("licences", "requests.cpu", "2700m").await;

    // Not of this team any more, then of it again.
    let elsewhere = json!({ "namespaceSelector": { "matchLabels": { "licensed": "yes" } } });
    rules.change("licence", elsewhere).await;
    team.until_used("licences", LICENCE, "0").await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(team.client.clone());
    let label = Patch::Merge(json!({ "metadata": { "labels": { "licensed": "yes" } } }));
    namespaces.patch(&team.namespace.name, &PatchParams::default(), &label).await.unwrap();
    team.until_used("licences", LICENCE, "2").await;

    rules.change("licence", json!({ "mode": "Off" })).await;
    assert_eq!(rules.until_ready("licence", "False").await.0, "Off");
    team.until_used("licences", LICENCE, "0").await;
    rules.change("licence", json!({ "mode": "Enforce" })).await;
    team.until_used("licences", LICENCE, "2").await;
    rules.0.delete("licence", &DeleteParams::default()).await.unwrap();
    team.until_used("licences", LICENCE, "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_answer_a_pod_is_held_and_the_place_is_told() {
    let bed = idle_bed().await;
    let _running = Running::on(&bed, Setup::default()).await.unwrap();
    let (rules, team) = (Rules::of(&bed), Team::plain(&bed, "unanswered").await);
    team.quota("licences", &[(LICENCE, "3")]).await;
    rules.write("licence", &licence()).await.unwrap();
    rules.until_ready("licence", "True").await;
    team.database("small", None).await;
    let note = team.until_told("small", "NotEvaluated", "held: ").await;
    let words = "held: evaluator licence has no answer about this pod: spec.cel.charge[example.com/license]: \
                 1:7: Kubernetes charges this pod no \"requests.cpu\": ask before with \"requests.cpu\" in native; \
                 evaluators (licence) say what the pod takes, and no pod goes without an answer";
    assert_eq!(note, words);
    // What the pod is now has not been asked about.
    let label = Patch::Merge(json!({ "metadata": { "labels": { "app": "web" } } }));
    team.pods.patch("small", &PatchParams::default(), &label).await.unwrap();
    team.until_released("small").await;
    team.database("other", None).await;
    team.until_told("other", "NotEvaluated", "held: ").await;
    let charge = "'requests.cpu' in native ? native['requests.cpu'].ceil() : 1";
    rules.change("licence", json!({ "cel": { "charge": { LICENCE: charge } } })).await;
    team.until_released("other").await;
    team.until_used("licences", LICENCE, "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_rule_is_refused_with_its_place_and_one_that_is_there_holds_its_pods() {
    let bed = idle_bed().await;
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    let (rules, team) = (Rules::of(&bed), Team::plain(&bed, "wrong").await);
    let mut wrong = licence();
    wrong["cel"]["charge"] = json!({ LICENCE: "native['requests.cpu'].round()" });
    let refused = rules.write("licence", &wrong).await.unwrap_err();
    assert!(refused.contains("spec.cel.charge[example.com/license]: 1:"), "{refused}");
    let mut contradicted = licence();
    let container = json!({ "name": "a", "resources": { "requests": { "cpu": "1500m" } } });
    let example = json!({ "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [container] } });
    contradicted["examples"] = json!([{ "pod": example, "charge": { LICENCE: "3" } }]);
    let refused = rules.write("licence", &contradicted).await.unwrap_err();
    let words = "spec.examples[0].charge: the rule says example.com/license=2, the example says example.com/license=3";
    assert!(refused.contains(words), "{refused}");

    // As where no webhook runs.
    team.quota("licences", &[("pods", "3")]).await;
    running.webhook.program.kill();
    running.webhook.program.wait().await;
    let written = || async { rules.write("licence", &wrong).await.ok() };
    wait::eventually(SOON, written, "the API server to admit it").await.unwrap();
    let (reason, message) = rules.until_ready("licence", "False").await;
    assert_eq!(reason, "RuleUnusable");
    assert!(message.starts_with("new pods that it selects are held: spec.cel.charge"), "{message}");
    team.pod("plain", &[("cpu", "100m")]).await;
    team.until_released("plain").await;
    team.database("held", Some("1")).await;
    team.until_told("held", "NotEvaluated", "held: evaluator licence has a rule that cannot be used: ").await;
    assert!(is_held(&team.pods.get("held").await.unwrap()));
    rules.0.delete("licence", &DeleteParams::default()).await.unwrap();
    team.until_released("held").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_knows_the_rules_before_it_releases() {
    let bed = idle_bed().await;
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    let (rules, team) = (Rules::of(&bed), Team::plain(&bed, "takeover").await);
    team.quota("licences", &[(LICENCE, "3")]).await;
    rules.write("licence", &licence()).await.unwrap();
    rules.until_ready("licence", "True").await;
    team.database("first", Some("2")).await;
    team.until_released("first").await;
    team.until_used("licences", LICENCE, "2").await;
    running.controller.program.kill();
    running.controller.program.wait().await;
    for number in 0..20 {
        team.database(&format!("next-{number}"), Some("2")).await;
    }
    let _successor = running.installation.controller().await.unwrap();
    team.until_told("next-0", "QuotaExceeded", "").await;
    for number in 0..20 {
        assert!(is_held(&team.pods.get(&format!("next-{number}")).await.unwrap()), "{number}");
    }
    team.until_used("licences", LICENCE, "2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_says_how_many_pods_it_matches_and_holds_and_a_quota_what_runs_without_an_answer() {
    let bed = idle_bed().await;
    let _running = Running::on(&bed, Setup::default()).await.unwrap();
    let (rules, team) = (Rules::of(&bed), Team::plain(&bed, "figures").await);
    team.quota("licences", &[(LICENCE, "9")]).await;
    for (name, cpu) in [("large", Some("1500m")), ("without", None)] {
        team.database(name, cpu).await;
        team.until_released(name).await;
    }
    team.pod("plain", &[("cpu", "100m")]).await;
    team.until_released("plain").await;
    rules.write("licence", &licence()).await.unwrap();
    rules.until_figures("licence", 1, 0).await;
    let words = "False 1 pod that runs (without) has no answer of evaluators: charged is what was answered last, or \
                 else what Kubernetes counts";
    assert_eq!(team.until_evaluated("licences", true).await.unwrap(), words);
    team.database("second", Some("1")).await;
    team.until_released("second").await;
    team.database("held", None).await;
    team.until_told("held", "NotEvaluated", "held: ").await;
    rules.until_figures("licence", 2, 1).await;
    let charge = "'requests.cpu' in native ? native['requests.cpu'].ceil() : 1";
    rules.change("licence", json!({ "cel": { "charge": { LICENCE: charge } } })).await;
    team.until_released("held").await;
    rules.until_figures("licence", 4, 0).await;
    assert_eq!(team.until_evaluated("licences", false).await, None);
    team.until_used("licences", LICENCE, "5").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_in_the_shadow_says_what_it_would_charge_and_charges_nothing() {
    let bed = idle_bed().await;
    let _running = Running::on(&bed, Setup::default()).await.unwrap();
    let (rules, team) = (Rules::of(&bed), Team::plain(&bed, "shadow").await);
    team.quota("licences", &[(LICENCE, "1"), ("pods", "3")]).await;
    team.database("first", Some("1500m")).await;
    team.until_released("first").await;
    let mut rule = licence();
    rule["mode"] = json!("Shadow");
    rules.write("licence", &rule).await.unwrap();
    assert_eq!(rules.until_ready("licence", "False").await.0, "Shadow");
    for (name, cpu) in [("second", Some("1")), ("without", None)] {
        team.database(name, cpu).await;
        team.until_released(name).await;
    }
    team.database("waits", None).await;
    team.until_told("waits", "QuotaExceeded", "").await;
    let said = || async {
        let shadow = rules.0.get("licence").await.ok()?.status?.shadow?;
        let [amount] = &shadow.largest[..] else { return None };
        let (of, sums) = ((amount.namespace.clone(), &*amount.quota), (&*amount.used.0, &*amount.enforced.0));
        let total: Vec<_> = shadow.total.iter().map(|it| (&*it.key, &*it.change.0)).collect();
        let is_it = (of.1, &*amount.key, &*amount.hard.0, sums) == ("licences", LICENCE, "1", ("0", "3"))
            && (shadow.held, shadow.differences, &total[..]) == (1, 1, &[(LICENCE, "3")][..]);
        (is_it && of.0.as_deref() == Some(&*team.namespace.name)).then_some(())
    };
    wait::eventually(SOON, said, "what the rule would charge").await.unwrap();
    team.until_used("licences", LICENCE, "0").await;
    // What was said is what is charged.
    rules.change("licence", json!({ "mode": "Enforce" })).await;
    team.until_used("licences", LICENCE, "3").await;
    rules.until_figures("licence", 2, 1).await;
    assert_eq!(rules.0.get("licence").await.unwrap().status.unwrap().shadow, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_are_evaluated_by_who_asks_why_where_nothing_leads() {
    let bed = idle_bed().await;
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    let (rules, team) = (Rules::of(&bed), Team::plain(&bed, "why-rules").await);
    let namespace = team.namespace.name.as_str();
    team.quota("licences", &[(LICENCE, "2")]).await;
    rules.write("licence", &licence()).await.unwrap();
    rules.until_ready("licence", "True").await;
    team.database("first", Some("1500m")).await;
    team.until_released("first").await;
    team.database("second", Some("1")).await;
    team.until_told("second", "QuotaExceeded", "").await;
    team.database("without", None).await;
    team.until_told("without", "NotEvaluated", "held: ").await;
    let ask = |pod: &'static str, flags: &'static [&'static str]| {
        let bed = &bed;
        async move {
            let arguments = [&["why", "pod", pod, "-n", namespace, "-o", "json"][..], flags].concat();
            let (text, _) = crate::why::said(bed, 3, &arguments).await;
            serde_json::from_str::<Value>(&text).unwrap()
        }
    };
    let of_leader = [ask("second", &[]).await, ask("without", &[]).await];
    assert_eq!(of_leader[0]["source"], "leader");
    running.controller.program.kill();
    running.controller.program.wait().await;
    for (pod, of_leader) in ["second", "without"].into_iter().zip(of_leader) {
        let found = ask(pod, &["--recompute"]).await;
        assert_eq!((&found["source"], &found["assumed"]), (&json!("recomputed"), &json!([])));
        assert_eq!(found["explanations"], of_leader["explanations"]);
    }
}

/// As `kubectl apply` does, which refuses fields that are not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_are_accepted_as_they_are() {
    let bed = idle_bed().await;
    let _running = Running::on(&bed, Setup::default()).await.unwrap();
    let rules = Rules::of(&bed);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/evaluators");
    for (name, status) in [
        ("licence-per-core", "True"),
        ("gpu-share", "True"),
        ("sandbox-fee", "True"),
        ("label-sidecar", "False"),
    ] {
        let text = std::fs::read_to_string(format!("{folder}/{name}.yaml")).unwrap();
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let strictly = PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply("a-user")
        };
        rules.0.patch(name, &strictly, &Patch::Apply(object)).await.unwrap();
        let (reason, message) = rules.until_ready(name, status).await;
        // No sidecar runs here.
        assert!(status == "True" || reason == "NoSidecar", "{reason}: {message}");
    }
}
