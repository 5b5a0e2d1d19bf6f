//! A stand-in of the API server: what it makes of an apply, in `managedFields` too.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Map, Value, json};
use sluice_api::names;
use sluice_manifests::InstallOptions;

use super::super::apply::{Target, Write};
use super::super::kind::{Kind, Operand};
use super::super::left_out::LeftOut;
use super::super::live::Live;
use super::super::observe::World;
use super::super::operands::plan;
use super::super::wire::OperandWire;
use super::VERSION;

/// Fields that are one value although they are lists or maps (`+structType=atomic`, `+listType=atomic`, `+mapType=atomic` in
/// `k8s.io/api`).
const ATOMIC: [&str; 16] = [
    "args",
    "drop",
    "egress",
    "fieldRef",
    "ingress",
    "labelSelector",
    "nodeSelector",
    "policyTypes",
    "rules",
    "scopeSelector",
    "podSelector",
    "selector",
    "sources",
    "tolerations",
    "preferredDuringSchedulingIgnoredDuringExecution",
    "requiredDuringSchedulingIgnoredDuringExecution",
];
/// Keys of lists that are merged.
const KEYS: [(&str, &[&str]); 9] = [
    ("containers", &["name"]),
    ("env", &["name"]),
    ("volumes", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("imagePullSecrets", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("ownerReferences", &["uid"]),
    ("ports", &["containerPort", "protocol"]),
    ("ports", &["port", "protocol"]),
];

/// As `managedFields` has what is applied.
fn fields(name: &str, value: &Value) -> Value {
    match value {
        Value::Object(inner) if !ATOMIC.contains(&name) => {
            inner.iter().map(|(name, value)| (format!("f:{name}"), fields(name, value))).collect()
        }
        Value::Array(items) if !ATOMIC.contains(&name) => {
            items.iter().map(|item| of_item(name, item)).collect()
        }
        _ => json!({}),
    }
}

fn of_item(list: &str, item: &Value) -> (String, Value) {
    let is_it =
        |(name, keys): &&(&str, &[&str])| *name == list && keys.iter().all(|key| item.get(key).is_some());
    let (_, keys) = KEYS.iter().find(is_it).unwrap_or_else(|| panic!("{list} is not known: {item}"));
    let key: Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), item[key].clone())).collect();
    let mut inner = if list == "ownerReferences" { json!({}) } else { fields("", item) };
    if list != "ownerReferences" {
        inner["."] = json!({});
    }
    (format!("k:{}", Value::Object(key)), inner)
}

/// What the API server adds: defaults, and amounts in their canonical form.
fn stored(body: &Value) -> Value {
    let mut object = body.clone();
    if object["kind"] == "Deployment" {
        object["spec"]["progressDeadlineSeconds"] = json!(600);
        let pod = &mut object["spec"]["template"]["spec"];
        pod["dnsPolicy"] = json!("ClusterFirst");
        pod["containers"][0]["terminationMessagePath"] = json!("/dev/termination-log");
        pod["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
        json_patch::merge(
            pod,
            &json!({ "nodeSelector": pod["nodeSelector"], "tolerations": pod["tolerations"] }),
        );
    }
    if object["kind"] == "Service" {
        object["spec"]["clusterIPs"] = json!(["192.0.2.1"]);
    }
    object
}

/// The options whose amounts are written as a user may do it.
pub(super) fn options() -> InstallOptions {
    let mut options = InstallOptions::default();
    for amounts in [&mut options.resources.controller, &mut options.resources.webhook] {
        amounts.cpu = "1000m".to_owned();
    }
    options
}

/// An object as it is stored after an apply, with what others have set.
pub(super) struct Stored {
    pub(super) object: Value,
    owned: Value,
    others: Vec<Value>,
}

impl Stored {
    /// What a client with this name sets, which the operator does not own any more.
    pub(super) fn edit(&mut self, manager: &str, path: &[&str], value: Value) {
        let (mut at, mut owned, mut theirs) = (&mut self.object, &mut self.owned, json!({}));
        for name in path.iter().rev() {
            theirs = json!({ (format!("f:{name}")): theirs });
        }
        let [parents @ .., last] = path else { panic!("no path") };
        for name in parents {
            at = &mut at[*name];
            owned = &mut owned[format!("f:{name}")];
        }
        at[*last] = value;
        if let Some(owned) = owned.as_object_mut() {
            owned.remove(&format!("f:{last}"));
        }
        self.others.push(json!({
            "manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": theirs,
            "time": "2026-01-01T00:00:00Z",
        }));
    }

    fn live(&self, version: u64) -> Live {
        let mut object = self.object.clone();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        object["metadata"]["uid"] = json!("uid");
        let ours = json!({
            "manager": names::OPERATOR, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": self.owned,
        });
        object["metadata"]["managedFields"] = [vec![ours], self.others.clone()].concat().into();
        Live::of(serde_json::from_value::<OperandWire<Deployment>>(object).unwrap())
    }
}

/// All operands of a cluster.
#[derive(Default)]
pub(super) struct Server {
    stored: BTreeMap<Operand, Stored>,
    version: u64,
}

impl Server {
    pub(super) fn get(&mut self, kind: Kind, name: &str) -> &mut Stored {
        self.stored.get_mut(&Operand::new(kind, name)).unwrap()
    }

    /// Removes it, as the watch of `world` sees.
    pub(super) fn delete(&mut self, world: &mut World, kind: Kind, name: &str) {
        self.stored.remove(&Operand::new(kind, name)).unwrap();
        *world.operands.get_mut(&kind).unwrap().gone.entry(name.to_owned()).or_default() += 1;
    }

    /// Writes that are planned for what is stored.
    pub(super) fn planned(&mut self, world: &mut World, options: &InstallOptions) -> Vec<Write> {
        self.version += 1;
        for (kind, all) in &mut world.operands {
            let of_kind = self.stored.iter().filter(|(operand, _)| operand.kind == *kind);
            all.live =
                of_kind.map(|(operand, stored)| (operand.name.clone(), stored.live(self.version))).collect();
        }
        plan(world, options, VERSION, &LeftOut::default()).writes
    }

    /// Carries out what is planned, and returns it.
    pub(super) fn round(&mut self, world: &mut World, options: &InstallOptions) -> Vec<Write> {
        let writes = self.planned(world, options);
        for write in &writes {
            match &write.target {
                Target::Operand(operand) => self.apply(operand, &write.body),
                Target::Needless { operand, .. } => drop(self.stored.remove(operand)),
                target => panic!("{target}"),
            }
        }
        writes
    }

    fn apply(&mut self, operand: &Operand, body: &Value) {
        let mut owned = fields("", body);
        for name in ["f:apiVersion", "f:kind"] {
            owned.as_object_mut().unwrap().remove(name);
        }
        for name in ["f:name", "f:namespace"] {
            owned["f:metadata"].as_object_mut().unwrap().remove(name);
        }
        let mut others = self.stored.remove(operand).map(|stored| stored.others).unwrap_or_default();
        // What others own is replaced here, but for what no apply states.
        others.retain(|manager| manager["manager"] == "keeps");
        let mut object = stored(body);
        for other in &others {
            add(&mut object, &other["fieldsV1"]);
        }
        self.stored.insert(operand.clone(), Stored { object, owned, others });
    }
}

/// Labels of others stay.
fn add(object: &mut Value, theirs: &Value) {
    for (key, inner) in theirs.as_object().unwrap() {
        let name = key.trim_start_matches("f:");
        if inner.as_object().unwrap().is_empty() {
            object[name] = json!("theirs");
        } else {
            add(&mut object[name], inner);
        }
    }
}
