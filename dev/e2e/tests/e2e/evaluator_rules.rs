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
struct Rules(Api<Evaluator>);

impl Rules {
    fn of(bed: &Bed) -> Self {
        Self(Api::all(bed.admin().unwrap()))
    }

    async fn write(&self, name: &str, spec: &Value) -> Result<(), String> {
        let object = json!({
            "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "Evaluator", "metadata": { "name": name }, "spec": spec,
        });
        let answer = self.0.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await;
        answer.map(drop).map_err(|error| error.to_string())
    }

    async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.0.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until `Ready` has this status, and returns its reason and message.
    async fn until_ready(&self, name: &str, status: &str) -> (String, String) {
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

impl Team {
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

/// As `kubectl apply` does, which refuses fields that are not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_are_accepted_as_they_are() {
    let bed = idle_bed().await;
    let _running = Running::on(&bed, Setup::default()).await.unwrap();
    let rules = Rules::of(&bed);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/evaluators");
    for name in ["licence-per-core", "gpu-share", "sandbox-fee"] {
        let text = std::fs::read_to_string(format!("{folder}/{name}.yaml")).unwrap();
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let strictly = PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply("a-user")
        };
        rules.0.patch(name, &strictly, &Patch::Apply(object)).await.unwrap();
        rules.until_ready(name, "True").await;
    }
}
