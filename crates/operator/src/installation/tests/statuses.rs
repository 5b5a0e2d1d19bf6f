//! What is said in the status.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::names;

use super::super::InstallationSettings;
use super::super::apply::{Target, Write};
use super::super::kind::Kind;
use super::super::live::Live;
use super::super::observe::World;
use super::super::state::Troubles;
use super::super::status;
use super::{aaq, asking, deployment, mtq, options, world};

fn settings(version: &str) -> InstallationSettings {
    InstallationSettings::new(options(), Some(version))
}

pub(super) fn plan(world: &World, troubles: &Troubles, version: &str, now: Timestamp) -> Vec<Write> {
    status::plan(world, troubles, &settings(version), now)
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn writes(world: &World, second: i64) -> Vec<Write> {
    plan(world, &Troubles::default(), "1.2.3", at(second))
}

/// Phase, observed version, and the conditions of the operator with their reasons.
fn shown(status: &Value) -> String {
    let conditions = status["conditions"].as_array().unwrap();
    let words = conditions.iter().filter(|condition| condition["type"] != names::GATING).map(|condition| {
        let text = |key: &str| condition[key].as_str().unwrap_or_default();
        format!("{}={} {}", text("type"), text("status"), text("reason"))
    });
    let version = status["observedVersion"].as_str().unwrap_or("-");
    format!("{} {version}: {}", status["phase"].as_str().unwrap(), words.collect::<Vec<_>>().join(", "))
}

/// An installation whose one `AAQ` gets what is written to it.
pub(super) struct Installation {
    pub(super) world: World,
    pub(super) troubles: Troubles,
    pub(super) status: Value,
}

impl Installation {
    pub(super) fn new() -> Self {
        Self { world: world(), troubles: Troubles::default(), status: Value::Null }
    }

    fn gate(&mut self, status: &str, reason: &str) {
        let said = json!({ "type": names::GATING, "status": status, "reason": reason, "message": "words" });
        let others = self.status["conditions"].as_array().cloned().unwrap_or_default();
        let others = others.into_iter().filter(|condition| condition["type"] != names::GATING);
        let all: Vec<_> = [said].into_iter().chain(others).collect();
        self.status["conditions"] = json!(all);
    }

    pub(super) fn deployments(&mut self) -> &mut BTreeMap<String, Live> {
        &mut self.world.operands.get_mut(&Kind::Deployment).unwrap().live
    }

    pub(super) fn ready(&mut self, name: &'static str, ready: i64) {
        self.deployments().insert(name.to_owned(), deployment(ready));
    }

    pub(super) fn round(&mut self, version: &str) -> String {
        let seen = |status: &Value| Some([("aaq".to_owned(), aaq("aaq", 0, &json!({}), status))].into());
        self.world.aaqs = seen(&self.status);
        let writes = plan(&self.world, &self.troubles, version, at(1));
        let [write] = &writes[..] else { panic!("{writes:?}") };
        assert_eq!(write.target, Target::Aaq("aaq".to_owned()));
        assert_eq!(write.body["metadata"]["resourceVersion"], "rv-aaq", "it is a precondition");
        json_patch::merge(&mut self.status, &write.body["status"]);
        self.world.aaqs = seen(&self.status);
        assert_eq!(plan(&self.world, &self.troubles, version, at(2)), [], "it is said once");
        shown(&self.status)
    }
}

#[test]
fn a_first_installation_is_deployed_once_all_of_it_works() {
    let mut it = Installation::new();
    it.ready(names::CONTROLLER, 0);
    it.ready(names::WEBHOOK, 0);
    let mut told = vec![it.round("1")];
    it.ready(names::WEBHOOK, 2);
    it.ready(names::CONTROLLER, 1);
    told.push(it.round("1"));
    it.ready(names::CONTROLLER, 2);
    told.push(it.round("1"));
    it.gate("True", "GatedByPolicy");
    told.push(it.round("1"));
    insta::assert_snapshot!(told.join("\n"), @"
    Deploying -: Available=False DeployStarted, Progressing=True DeployStarted, Degraded=False DeployCompleted, FieldsNotInForce=False AllInForce
    Deploying -: Available=False DeployStarted, Progressing=True DeployStarted, Degraded=False DeployCompleted, FieldsNotInForce=False AllInForce
    Deploying -: Available=False DeployStarted, Progressing=True DeployStarted, Degraded=False DeployCompleted, FieldsNotInForce=False AllInForce
    Deployed 1: Available=True DeployCompleted, Progressing=False DeployCompleted, Degraded=False DeployCompleted, FieldsNotInForce=False AllInForce
    ");
}

pub(super) fn deployed() -> Installation {
    let mut it = Installation::new();
    it.gate("True", "GatedByPolicy");
    assert!(it.round("1").starts_with("Deployed 1"));
    it
}

#[test]
fn the_phase_is_deployed_only_while_it_is() {
    let mut told = Vec::new();
    let mut it = deployed();
    it.ready(names::WEBHOOK, 1);
    told.push(it.round("1"));
    it.ready(names::WEBHOOK, 0);
    told.push(it.round("1"));
    let mut it = deployed();
    it.gate("False", "PodsRefused");
    told.push(it.round("1"));
    let mut it = deployed();
    it.gate("Unknown", "NotKnown");
    told.push(it.round("1"));
    let mut it = deployed();
    it.deployments().remove(names::WEBHOOK);
    told.push(it.round("1"));
    insta::assert_snapshot!(told.join("\n"), @"
    Deployed 1: Available=True DeployCompleted, Progressing=False DeployCompleted, Degraded=True DeploymentsNotReady, FieldsNotInForce=False AllInForce
    Deploying 1: Available=False DeploymentsNotReady, Progressing=False DeployCompleted, Degraded=True DeploymentsNotReady, FieldsNotInForce=False AllInForce
    Deploying 1: Available=False PodsRefused, Progressing=False DeployCompleted, Degraded=True PodsRefused, FieldsNotInForce=False AllInForce
    Deployed 1: Available=Unknown NotKnown, Progressing=False DeployCompleted, Degraded=Unknown NotKnown, FieldsNotInForce=False AllInForce
    Deploying 1: Available=False DeploymentsNotReady, Progressing=False DeployCompleted, Degraded=True DeploymentsNotReady, FieldsNotInForce=False AllInForce
    ");
}

#[test]
fn another_version_is_observed_once_all_pods_are_ready() {
    let mut it = deployed();
    it.ready(names::CONTROLLER, 1);
    let upgrading = it.round("2");
    it.ready(names::CONTROLLER, 2);
    insta::assert_snapshot!(format!("{upgrading}\n{}", it.round("2")), @"
    Upgrading 1: Available=True DeployCompleted, Progressing=True UpgradeStarted, Degraded=True DeploymentsNotReady, FieldsNotInForce=False AllInForce
    Deployed 2: Available=True DeployCompleted, Progressing=False DeployCompleted, Degraded=False DeployCompleted, FieldsNotInForce=False AllInForce
    ");
}

/// An operator that has gone back does not call its own what it leaves.
#[test]
fn the_version_is_not_observed_while_a_newer_one_runs() {
    let mut it = deployed();
    it.round("2");
    it.troubles.left = vec!["left".to_owned()];
    let older = it.round("1");
    it.troubles.left.clear();
    insta::assert_snapshot!(format!("{older}\n{}", it.round("1")), @"
    Upgrading 2: Available=True DeployCompleted, Progressing=True UpgradeStarted, Degraded=True LeftToNewerVersion, FieldsNotInForce=False AllInForce
    Deployed 1: Available=True DeployCompleted, Progressing=False DeployCompleted, Degraded=False DeployCompleted, FieldsNotInForce=False AllInForce
    ");
}

#[test]
fn what_was_not_looked_for_is_not_spoken_of() {
    let known = asking(&json!({}));
    assert_eq!(writes(&known, 1).len(), 1);
    for forget in [
        |world: &mut World| world.mtqs = None,
        |world: &mut World| world.priority_classes = None,
        |world: &mut World| drop(world.operands.remove(&Kind::Deployment)),
    ] {
        let mut world = known.clone();
        forget(&mut world);
        assert_eq!(writes(&world, 1), []);
    }
    let mut unlisted = known;
    unlisted.operands.remove(&Kind::Deployment);
    unlisted.unlisted.insert(Kind::Deployment, "403".to_owned());
    let written = writes(&unlisted, 1);
    let conditions = written[0].body["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions[0]["type"], names::AVAILABLE);
    let message = conditions[0]["message"].as_str().unwrap();
    assert!(message.starts_with("Deployment sluice-controller cannot be seen"), "{message}");
}

#[test]
fn a_second_object_is_an_error_of_its_own() {
    let mut world = world();
    let aaqs = [("a", 2), ("b", 1)];
    let aaqs = aaqs.map(|(name, second)| (name.to_owned(), aaq(name, second, &json!({}), &Value::Null)));
    world.aaqs = Some(aaqs.into());
    world.mtqs = Some(["m", "n"].map(|name| (name.to_owned(), mtq(name, &json!({})))).into());
    let told = writes(&world, 1)
        .into_iter()
        .map(|write| format!("{}: {}", write.target, shown(&write.body["status"])));
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @"
    aaqs/a: Error -: Available=False ConfigError, Progressing=False ConfigError, Degraded=True ConfigError
    aaqs/b: Deploying -: Available=False DeployStarted, Progressing=True DeployStarted, Degraded=False DeployCompleted, FieldsNotInForce=False AllInForce
    mtqs/m: Deployed 1.2.3: Available=True DeployCompleted, Progressing=False DeployCompleted, Degraded=False DeployCompleted, FieldsNotInForce=False AllInForce
    mtqs/n: Error -: Available=False ConfigError, Progressing=False ConfigError, Degraded=True ConfigError
    ");
}

fn not_in_force(world: &World) -> Vec<String> {
    let message = |write: &Write| {
        let conditions = write.body["status"]["conditions"].as_array().unwrap();
        let said = conditions.iter().find(|said| said["type"] == names::FIELDS_NOT_IN_FORCE).unwrap();
        said["message"].as_str().unwrap().to_owned()
    };
    writes(world, 1).iter().map(message).collect()
}

#[test]
fn fields_without_effect_are_named() {
    let spec = json!({
        "certConfig": { "ca": { "duration": "48h" }, "server": { "duration": "1m" } },
        "configuration": { "sidecarEvaluators": [{ "name": "x" }] },
        "imagePullPolicy": "Always", "infra": { "nodeSelector": { "a": "b" } }, "priorityClass": "missing",
        "tlsSecurityProfile": { "type": "Custom" },
        "workload": { "tolerations": [{ "operator": "Exists" }] },
    });
    let mut worlds = vec![asking(&spec)];
    let mut newer = asking(&json!({ "infra": spec["infra"], "priorityClass": "high" }));
    let deployments = newer.operands.get_mut(&Kind::Deployment).unwrap();
    deployments.live.get_mut(names::WEBHOOK).unwrap().writer = Some("99.0.0".to_owned());
    worlds.push(newer);
    let mut both = asking(&json!({ "workload": {}, "certConfig": { "ca": {} } }));
    let of_mtq = json!({ "imagePullPolicy": "Always", "certConfig": { "ca": { "duration": "1m" } } });
    both.mtqs = Some([("mtq".to_owned(), mtq("mtq", &of_mtq))].into());
    worlds.push(both.clone());
    both.aaqs = Some(BTreeMap::new());
    worlds.push(both);
    insta::assert_snapshot!(worlds.iter().flat_map(not_in_force).collect::<Vec<_>>().join("\n"), @"
    spec.certConfig.server: the lifetime stays as it is, for duration 1m0s is too short: at least 5m0s are needed; spec.tlsSecurityProfile: the profile before stays, for type is Custom and custom is missing: set custom.ciphers and custom.minTLSVersion; spec.configuration.sidecarEvaluators: no pod is released, for configuration.sidecarEvaluators[0].image: there is none: name one; spec.workload: nothing runs as a workload; spec.priorityClass: there is no PriorityClass of this name
    spec.infra: an operator of the newer version 99.0.0 wrote the Deployments; spec.priorityClass: an operator of the newer version 99.0.0 wrote the Deployments
    every field that is set is in force
    spec.certConfig: that of the AAQ aaq holds; spec.imagePullPolicy: that of the AAQ aaq holds
    spec.certConfig.ca: the lifetime stays as it is, for duration 1m0s is too short: at least 5m0s are needed
    ");
}

/// The first of them, whatever else is wrong, and for as long as it is so.
#[test]
fn what_could_not_be_written_or_is_contested_is_said() {
    let mut it = deployed();
    it.ready(names::WEBHOOK, 1);
    let said = |what: &str| vec![format!("{what} a"), format!("{what} b")];
    it.troubles = Troubles {
        too_old: said("too old"),
        withheld: said("withheld"),
        refused: said("refused"),
        left: said("left"),
        contested: said("contested"),
        evaluators: said("evaluators"),
    };
    let mut told = Vec::new();
    let mut tell = |it: &mut Installation| {
        it.round("1");
        let conditions = it.status["conditions"].as_array().unwrap();
        let degraded = conditions.iter().find(|said| said["type"] == names::DEGRADED).unwrap();
        let words = ["status", "reason", "message"].map(|key| degraded[key].as_str().unwrap());
        told.push(words.join(" ").trim_end().to_owned());
    };
    tell(&mut it);
    it.troubles.too_old.clear();
    tell(&mut it);
    it.troubles.withheld.clear();
    tell(&mut it);
    it.troubles.refused.clear();
    tell(&mut it);
    it.troubles.left.clear();
    tell(&mut it);
    it.troubles.contested.clear();
    tell(&mut it);
    it.troubles.evaluators.clear();
    tell(&mut it);
    it.ready(names::WEBHOOK, 2);
    tell(&mut it);
    insta::assert_snapshot!(told.join("\n"), @"
    True SchemaTooOld too old a; too old b
    True ObjectsNotCreated withheld a; withheld b
    True ObjectsNotWritten refused a; refused b
    True LeftToNewerVersion left a; left b
    True ObjectContested contested a; contested b
    True EvaluatorsDoNotRun evaluators a; evaluators b
    True DeploymentsNotReady 1 of 2 pods of Deployment sluice-webhook are ready
    False DeployCompleted
    ");
}

#[test]
fn what_others_say_stays_and_so_does_the_time_of_the_last_change() {
    let other = json!({ "type": "Headroom", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let since =
        json!({ "type": "Available", "status": "False", "lastTransitionTime": "2026-01-02T00:00:00Z" });
    let mut world = world();
    let order = aaq("aaq", 0, &json!({}), &json!({ "conditions": [other, since] }));
    world.aaqs = Some([("aaq".to_owned(), order)].into());
    let writes = writes(&world, 1);
    let conditions = &writes[0].body["status"]["conditions"];
    assert_eq!(conditions[0], other);
    assert_eq!(conditions[1]["lastTransitionTime"], "2026-01-02T00:00:00Z");
    assert_eq!(conditions[2]["lastTransitionTime"], "1970-01-01T00:00:01Z");
}
