//! Records what is charged to a quota: in its status, or in the object of ours that a cluster quota has for it.

use jiff::Timestamp;
use kube::Resource;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::{
    ApplicationAwareClusterResourceQuota, ApplicationAwareResourceQuota, ClusterQuotaCharge, names,
};
use sluice_engine::Quantity;
use sluice_index::{ArqWire, ChargeObject, ClusterQuotaChargeWire, Version};
use sluice_runtime::retry::{Failure, classify};

use super::action::{Answer, Record, RecordedIn, RecordedObject};
use super::apply::{Apply, refusal};
use crate::conditions::{not_enforced, pods_held, uncounted_keys, unevaluated, virtual_machines};

impl Apply {
    pub(super) async fn record(&self, record: &Record) -> Answer<RecordedObject> {
        if !self.token.is_held() {
            return Answer::Busy(None);
        }
        let charges = ClusterQuotaCharge::url_path(&(), Some(&self.namespace));
        let charge = record.uid.to_string();
        match &record.object {
            RecordedIn::Status(version) => {
                let quotas = ApplicationAwareResourceQuota::url_path(&(), Some(&record.name.namespace()));
                let at = At { plural: names::ARQS, path: &quotas, name: record.name.name() };
                self.update::<ArqWire>(at, &status_object(record, *version)).await.map(RecordedObject::Quota)
            }
            RecordedIn::Charge(object) => {
                let at = At { plural: names::CLUSTER_QUOTA_CHARGES, path: &charges, name: &charge };
                let body = charge_object(record, object, &self.namespace);
                self.update::<ClusterQuotaChargeWire>(at, &body).await.map(RecordedObject::Charge)
            }
            RecordedIn::NewCharge { unshown } => {
                if let Some(version) = *unshown
                    && let Err(error) = self.show(record, version).await
                {
                    // The watch is about to show another version, perhaps one with a status.
                    let has_changed = classify(&error) == Failure::Conflict;
                    return if has_changed { Answer::Busy(None) } else { refusal(error) };
                }
                let at = At { plural: names::CLUSTER_QUOTA_CHARGES, path: &charges, name: &charge };
                let body = new_charge(record, &self.namespace);
                self.create::<ClusterQuotaChargeWire>(at, &body).await.map(RecordedObject::Charge)
            }
        }
    }

    async fn update<T: DeserializeOwned>(&self, at: At<'_>, body: &Value) -> Answer<T> {
        let (objects, body) = (Request::new(at.path), body.to_string().into_bytes());
        let request = objects.replace_subresource("status", at.name, &PostParams::default(), body);
        match Answer::from(self.writes.record(at.plural, "update", self.send::<T>(request)).await) {
            Answer::Stale(_) => self.reread(objects.get(at.name, &Default::default())).await,
            answer => answer,
        }
    }

    async fn create<T: DeserializeOwned>(&self, at: At<'_>, body: &Value) -> Answer<T> {
        let objects = Request::new(at.path);
        let request = objects.create(&PostParams::default(), body.to_string().into_bytes());
        match self.writes.record(at.plural, "create", self.send::<T>(request)).await {
            Ok(object) => Answer::Done(object),
            Err(error) if classify(&error) == Failure::AlreadyExists => {
                self.reread(objects.get(at.name, &Default::default())).await
            }
            Err(error) => refusal(error),
        }
    }

    /// Shows the limits of a cluster quota for the first time, if it has this version.
    async fn show(&self, record: &Record, version: Version) -> kube::Result<()> {
        let quotas = Request::new(ApplicationAwareClusterResourceQuota::url_path(&(), None));
        let patch = first_status(record, version);
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let request = quotas.patch_subresource("status", record.name.name(), &params, &patch);
        let write = self.send::<Value>(request);
        self.writes.record(names::ACRQS, "patch", write).await.map(drop)
    }
}

/// An object of a kind.
#[derive(Clone, Copy)]
struct At<'a> {
    plural: &'static str,
    path: &'a str,
    name: &'a str,
}

/// The object as a status update takes it: everything but `metadata` and `status` is ignored by the server.
fn status_object(record: &Record, version: Version) -> Value {
    json!({
        "apiVersion": ApplicationAwareResourceQuota::api_version(&()),
        "kind": ApplicationAwareResourceQuota::kind(&()),
        "metadata": {
            "namespace": *record.name.namespace(),
            "name": **record.name.name(),
            "uid": record.uid.to_string(),
            "resourceVersion": version.precondition(),
        },
        "spec": {},
        "status": status(record),
    })
}

/// The status of a quota.
pub(super) fn status(record: &Record) -> Value {
    let target = &record.target;
    let mut status = json!({
        "hard": texts(&target.hard),
        "used": texts(&target.used),
        "requests": target.requests,
        "limits": target.limits,
        "held": record.held,
        "charges": record.charges,
    });
    let machines = target.machines.and_then(|calculator| virtual_machines(calculator, record.machines_since));
    let uncounted = uncounted_keys(&target.uncounted, record.uncounted_since);
    let unenforced = target.unenforced.as_ref().and_then(|told| not_enforced(told, record.unenforced_since));
    let held_told = record.held_told.as_ref();
    let held = held_told.and_then(|told| pods_held(told, record.held_told_since));
    let unevaluated = record.unevaluated.as_ref();
    let unevaluated = unevaluated.and_then(|told| self::unevaluated(told, record.unevaluated_since));
    let pods = held.into_iter().chain(unevaluated);
    let conditions: Vec<_> = pods.chain(uncounted).chain(machines).chain(unenforced).collect();
    if let Some(status) = status.as_object_mut() {
        if let Some(since) = held_told.and_then(|told| Timestamp::from_second(told.since).ok()) {
            status.insert("heldSince".to_owned(), json!(since.to_string()));
        }
        if !conditions.is_empty() {
            status.insert("conditions".to_owned(), json!(conditions));
        }
    }
    status
}

/// The charge of a cluster quota as a status update takes it.
fn charge_object(record: &Record, object: &ChargeObject, namespace: &str) -> Value {
    let identity = json!({ "uid": object.uid.to_string(), "resourceVersion": object.version.precondition() });
    let status = json!({
        "hard": texts(&record.target.hard),
        "used": texts(&record.target.used),
        "charges": record.charges,
    });
    charge(record, namespace, identity, status)
}

/// A record whose owner is the quota: it is deleted with that.
fn new_charge(record: &Record, namespace: &str) -> Value {
    let owner = json!({
        "apiVersion": ApplicationAwareClusterResourceQuota::api_version(&()),
        "kind": ApplicationAwareClusterResourceQuota::kind(&()),
        "name": **record.name.name(),
        "uid": record.uid.to_string(),
    });
    charge(record, namespace, json!({ "ownerReferences": [owner] }), json!({}))
}

fn charge(record: &Record, namespace: &str, mut metadata: Value, status: Value) -> Value {
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("namespace".to_owned(), json!(namespace));
        metadata.insert("name".to_owned(), json!(record.uid.to_string()));
    }
    json!({
        "apiVersion": ClusterQuotaCharge::api_version(&()),
        "kind": ClusterQuotaCharge::kind(&()),
        "metadata": metadata,
        "spec": { "quota": **record.name.name() },
        "status": status,
    })
}

fn first_status(record: &Record, version: Version) -> Value {
    let target = &record.target;
    json!({
        "metadata": { "uid": record.uid.to_string(), "resourceVersion": version.precondition() },
        "status": { "total": { "hard": texts(&target.hard), "used": texts(&target.used) } },
    })
}

fn texts(list: &[(String, Quantity)]) -> Value {
    let pairs = list.iter().map(|(key, value)| (key.clone(), Value::String(value.to_string())));
    pairs.collect::<serde_json::Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test stops at the first thing that is not as it must be"
    )]

    use sluice_engine::ChargeRules;
    use sluice_engine::vm::{Calculator, KubeVirtFacts};
    use sluice_index::Targeting;

    use super::*;
    use crate::cluster::machines::KubeVirt;
    use crate::{Action, GateConfig, Moment, State};

    const AT: Moment = Moment { mono_ms: 0, unix_ms: 1_767_225_600_000 };
    const LATER: Moment = Moment { mono_ms: 60_000, unix_ms: AT.unix_ms + 60_000 };

    /// What is to be done, but for waiting until whatever a predecessor did is seen.
    fn planned(state: &mut State, now: Moment) -> Vec<Action> {
        let actions = state.plan(now).into_iter();
        actions.filter(|action| !matches!(action, Action::CatchUp)).collect()
    }

    /// What is written of a quota with these keys and this status; `None` if nothing is.
    fn written(state: &mut State, version: u64, keys: &[&str], status: &Value, now: Moment) -> Option<Value> {
        let hard: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), json!("1"))).collect();
        let metadata =
            json!({ "name": "q", "namespace": "team", "uid": "1", "resourceVersion": version.to_string() });
        let quota = json!({ "metadata": metadata, "spec": { "hard": hard }, "status": status });
        state.apply_quota(&serde_json::from_value(quota).unwrap(), now);
        match planned(state, now).as_slice() {
            [] => None,
            [Action::Record(record)] => match &record.object {
                RecordedIn::Status(version) => Some(status_object(record, *version)),
                other => panic!("the status of a quota of a namespace: {other:?}"),
            },
            other => panic!("one write at most: {other:?}"),
        }
    }

    fn leader() -> State {
        let config = GateConfig::new(names::GATE, ChargeRules::for_minor(36));
        let mut state = State::new(config, Targeting::new(kube::core::Selector::default(), [].into()));
        state.lead(AT);
        state
    }

    #[test]
    fn keys_that_nothing_counts_are_a_condition_as_long_as_there_are_some() {
        let first = written(&mut leader(), 1, &["pods", "cpu/vmi"], &json!({}), AT).unwrap();
        let condition = first.pointer("/status/conditions/0").unwrap();
        assert_eq!(condition["type"], "UncountedKeys");
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("NotEnforced")));
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert!(condition["message"].as_str().unwrap().contains("cpu/vmi: "), "{condition}");
        assert_eq!(first["status"]["used"], json!({ "cpu/vmi": "0", "pods": "0" }));
        // Another leader does not write it again, and it keeps its time when the keys change.
        let status = &first["status"];
        assert_eq!(written(&mut leader(), 2, &["pods", "cpu/vmi"], status, LATER), None);
        let more = written(&mut leader(), 2, &["pods", "cpu/vmi", "a.com/b"], status, LATER).unwrap();
        let condition = more.pointer("/status/conditions/0").unwrap();
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert!(condition["message"].as_str().unwrap().contains("a.com/b: "), "{condition}");
        let none = written(&mut leader(), 3, &["pods"], &more["status"], LATER).unwrap();
        assert_eq!(none["status"].get("conditions"), None);
        assert_eq!(written(&mut leader(), 4, &["pods"], &none["status"], LATER), None);
    }

    /// A leader where KubeVirt runs.
    fn leader_with(calculator: Calculator) -> State {
        let mut state = leader();
        let controller = "system:serviceaccount:kubevirt:kubevirt-controller".into();
        state.set_kubevirt(Some(KubeVirt { controller, facts: KubeVirtFacts::default() }), AT);
        state.count_machines_by(calculator, AT);
        state
    }

    #[test]
    fn where_kubevirt_runs_each_quota_says_how_vms_are_counted() {
        let keys = ["pods", "cpu/vmi"];
        let (dedicated, of_pods) = (Calculator::DedicatedVirtualResources, Calculator::VmiPodUsage);
        let first = written(&mut leader_with(dedicated), 1, &keys, &json!({}), AT).unwrap();
        let [condition] = first["status"]["conditions"].as_array().unwrap().as_slice() else {
            panic!("the keys are counted: {first}")
        };
        assert_eq!(
            (&condition["type"], &condition["status"], &condition["reason"]),
            (&json!("VirtualMachines"), &json!("True"), &json!("DedicatedVirtualResources"))
        );
        assert!(condition["message"].as_str().unwrap().contains("requests.cpu/vmi"), "{condition}");
        // Another leader does not write it again; another calculator is another reason, and true since then.
        let status = &first["status"];
        assert_eq!(written(&mut leader_with(dedicated), 2, &keys, status, LATER), None);
        let other = written(&mut leader_with(of_pods), 2, &keys, status, LATER).unwrap();
        let [uncounted, machines] = other["status"]["conditions"].as_array().unwrap().as_slice() else {
            panic!("{other}")
        };
        assert_eq!(
            (&uncounted["type"], &machines["reason"]),
            (&json!("UncountedKeys"), &json!("VmiPodUsage"))
        );
        assert_eq!(machines["lastTransitionTime"], "2026-01-01T00:00:00Z");
        let ignored = Calculator::IgnoreVmiCalculator;
        let off = written(&mut leader_with(ignored), 3, &keys, &other["status"], LATER).unwrap();
        let machines = &off["status"]["conditions"][1];
        assert_eq!(
            (&machines["status"], &machines["reason"]),
            (&json!("False"), &json!("IgnoreVmiCalculator"))
        );
        assert_eq!(machines["lastTransitionTime"], "2026-01-01T00:01:00Z");
        assert_eq!(written(&mut leader_with(ignored), 4, &keys, &off["status"], LATER), None);
        // Without KubeVirt there is nothing to say.
        let gone = written(&mut leader(), 5, &["pods"], &off["status"], LATER).unwrap();
        assert_eq!(gone["status"].get("conditions"), None);
    }

    #[test]
    fn what_others_make_of_the_condition_about_vms_is_put_right() {
        let leader = || leader_with(Calculator::VmiPodUsage);
        let first = written(&mut leader(), 1, &["pods"], &json!({}), AT).unwrap();
        let edits =
            [("status", "False"), ("reason", "Guess"), ("reason", "VirtualResources"), ("message", "x")];
        for (field, value) in edits {
            let mut edited = first["status"].clone();
            edited["conditions"][0][field] = json!(value);
            let written = written(&mut leader(), 2, &["pods"], &edited, LATER).unwrap();
            assert_eq!(written["status"]["conditions"][0]["reason"], "VmiPodUsage", "{field}={value}");
        }
    }

    #[test]
    fn another_calculator_is_told_on_quotas_that_no_vm_is_charged_to() {
        let first = written(&mut leader_with(Calculator::VmiPodUsage), 1, &["pods"], &json!({}), AT).unwrap();
        let mut state = leader_with(Calculator::VmiPodUsage);
        assert_eq!(written(&mut state, 2, &["pods"], &first["status"], AT), None);
        state.count_machines_by(Calculator::VirtualResources, LATER);
        state.restate_quotas();
        let [Action::Record(record)] = &planned(&mut state, LATER)[..] else { panic!("it is written") };
        assert_eq!(record.target.machines, Some(Calculator::VirtualResources));
    }

    #[test]
    fn a_condition_that_was_taken_away_or_turned_comes_back() {
        let keys = ["pods", "cpu/vmi"];
        let first = written(&mut leader(), 1, &keys, &json!({}), AT).unwrap();
        for status in ["False", "Unknown"] {
            let mut edited = first["status"].clone();
            edited["conditions"][0]["status"] = json!(status);
            assert!(written(&mut leader(), 2, &keys, &edited, LATER).is_some(), "{status}");
        }
        let mut edited = first["status"].clone();
        edited["conditions"] = json!([]);
        assert!(written(&mut leader(), 2, &keys, &edited, LATER).is_some());
    }
}
