//! A server in memory with all kinds of objects that the gate watches: versions, preconditions, watch logs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::server::{GATE, wire};
use crate::gate::recording::status;
use crate::gate::{Answer, Record, RecordedIn, RecordedObject, Release};

pub const NAMESPACES: [&str; 3] = ["blue", "green", "red"];
pub const CLUSTER_QUOTA: &str = "all";
/// The namespace that has a quota of its own, and the name of that.
pub const OWN: (&str, &str) = ("green", "own");
const CPU: &str = "requests.cpu";
/// More pods than there ever are.
const PODS: &str = "1k";

/// What is watched. The permission of cluster quotas is part of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Pod,
    Namespace,
    Quota,
    ClusterQuota,
    Charge,
    Permission,
}

pub const KINDS: [Kind; 6] =
    [Kind::Pod, Kind::Namespace, Kind::Quota, Kind::ClusterQuota, Kind::Charge, Kind::Permission];

pub type Key = (Kind, String, String);

#[derive(Clone, Debug)]
pub struct Change {
    pub kind: Kind,
    pub is_gone: bool,
    pub object: Value,
}

#[derive(Debug, Default)]
pub struct Server {
    pub version: u64,
    pub now_s: i64,
    pub objects: BTreeMap<Key, Value>,
    pub log: Vec<Change>,
    pub writes: usize,
}

pub fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    (kind, namespace.to_owned(), name.to_owned())
}

pub fn cluster_quota() -> Key {
    key(Kind::ClusterQuota, "", CLUSTER_QUOTA)
}

pub fn own_quota() -> Key {
    key(Kind::Quota, OWN.0, OWN.1)
}

fn milli(value: &Value) -> u64 {
    let text = value.as_str().unwrap();
    text.strip_suffix('m').map_or_else(|| text.parse::<u64>().unwrap() * 1000, |milli| milli.parse().unwrap())
}

pub fn pod_milli(pod: &Value) -> u64 {
    milli(&pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
}

pub fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"] != json!([])
}

pub fn is_running(pod: &Value) -> bool {
    !is_gated(pod) && pod["status"]["phase"] == "Pending"
}

impl Server {
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    /// All objects of a kind in a namespace; in all if that is empty.
    pub fn all<'s>(&'s self, kind: Kind, namespace: &'s str) -> impl Iterator<Item = (&'s Key, &'s Value)> {
        let is_of = move |key: &Key| key.0 == kind && (namespace.is_empty() || key.1 == namespace);
        self.objects.iter().filter(move |(key, _)| is_of(key))
    }

    pub fn put(&mut self, key: &Key, mut object: Value) -> Value {
        self.version += 1;
        let meta = &mut object["metadata"];
        meta["name"] = json!(key.2);
        meta["namespace"] = json!(key.1);
        if meta["uid"].is_null() {
            meta["uid"] = json!(format!("uid-{}", self.version));
        }
        meta["resourceVersion"] = json!(self.version.to_string());
        self.log.push(Change { kind: key.0, is_gone: false, object: object.clone() });
        self.objects.insert(key.clone(), object.clone());
        object
    }

    pub fn edit(&mut self, key: &Key, edit: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.get(key).cloned() {
            edit(&mut object);
            self.put(key, object);
        }
    }

    pub fn delete(&mut self, key: &Key) {
        if let Some(mut object) = self.objects.remove(key) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.log.push(Change { kind: key.0, is_gone: true, object });
        }
    }

    pub fn create_pod(&mut self, namespace: &str, name: &str, milli_cpu: u64, priority: i32) {
        let key = key(Kind::Pod, namespace, name);
        if self.get(&key).is_none() {
            let created = jiff::Timestamp::from_second(self.now_s).unwrap().to_string();
            let requests = json!({"cpu": format!("{milli_cpu}m")});
            let object = json!({
                "metadata": {"creationTimestamp": created},
                "spec": {
                    "priority": priority, "schedulingGates": [{"name": GATE}],
                    "containers": [{"name": "c", "resources": {"requests": requests}}],
                },
                "status": {"phase": "Pending"},
            });
            self.put(&key, object);
        }
    }

    pub fn finish_pod(&mut self, key: &Key) {
        if self.get(key).is_some_and(is_running) {
            self.edit(key, |pod| pod["status"]["phase"] = json!("Succeeded"));
        }
    }

    /// The namespace is selected from now on, or no more.
    pub fn label(&mut self, namespace: &str, is_member: bool) {
        let labels = if is_member { json!({"quota": "shared"}) } else { json!({}) };
        let key = key(Kind::Namespace, "", namespace);
        if self.get(&key).is_none_or(|known| known["metadata"]["labels"] != labels) {
            let known = self.get(&key).cloned();
            let mut object = known.unwrap_or_else(|| json!({"metadata": {}}));
            object["metadata"]["labels"] = labels;
            self.put(&key, object);
        }
    }

    pub fn set_hard(&mut self, key: &Key, milli_cpu: u64) {
        let path = if key.0 == Kind::ClusterQuota { "/spec/quota/hard" } else { "/spec/hard" };
        let hard = json!(format!("{milli_cpu}m"));
        if self.get(key).is_some() {
            return self.edit(key, |quota| quota.pointer_mut(path).unwrap()[CPU] = hard);
        }
        let hard = json!({CPU: hard});
        let spec = match key.0 {
            Kind::ClusterQuota => {
                json!({"quota": {"hard": hard}, "selector": {"labels": {"matchLabels": {"quota": "shared"}}}})
            }
            _ => json!({"hard": hard}),
        };
        self.put(key, json!({"metadata": {}, "spec": spec}));
    }

    /// From now on it counts pods too, or no more.
    pub fn change_meaning(&mut self, key: &Key) {
        let path = if key.0 == Kind::ClusterQuota { "/spec/quota/hard" } else { "/spec/hard" };
        self.edit(key, |quota| {
            let hard = quota.pointer_mut(path).unwrap().as_object_mut().unwrap();
            if hard.remove("pods").is_none() {
                hard.insert("pods".to_owned(), json!(PODS));
            }
        });
    }

    /// The cluster quota is about all namespaces from now on, or about those with the label.
    pub fn change_selector(&mut self) {
        self.edit(&cluster_quota(), |quota| {
            let selector = &mut quota["spec"]["selector"];
            let is_wide = *selector == json!({});
            *selector =
                if is_wide { json!({"labels": {"matchLabels": {"quota": "shared"}}}) } else { json!({}) };
        });
    }

    /// All quotas of both kinds.
    pub fn quotas(&self) -> Vec<Key> {
        let kinds = [Kind::ClusterQuota, Kind::Quota].into_iter();
        kinds.flat_map(|kind| self.all(kind, "").map(|(key, _)| key.clone())).collect()
    }

    pub fn hard(&self, quota: &Key) -> Option<u64> {
        let quota = self.get(quota)?;
        let hard = quota.pointer("/spec/quota/hard").or_else(|| quota.pointer("/spec/hard"))?;
        Some(milli(&hard[CPU]))
    }

    pub fn is_allowed(&self) -> bool {
        self.get(&key(Kind::Permission, "", "aaq")).is_some_and(|aaq| aaq["allowed"] == true)
    }

    pub fn allow(&mut self, is_allowed: bool) {
        self.put(&key(Kind::Permission, "", "aaq"), json!({"metadata": {}, "allowed": is_allowed}));
    }

    /// Whether a quota is about the pods of a namespace.
    pub fn is_about(&self, quota: &Key, namespace: &str) -> bool {
        if quota.0 == Kind::Quota {
            return quota.1 == namespace && self.get(quota).is_some();
        }
        let Some(object) = self.get(quota).filter(|_| self.is_allowed()) else { return false };
        let is_member = |known: &Value| known["metadata"]["labels"]["quota"] == "shared";
        object["spec"]["selector"] == json!({})
            || self.get(&key(Kind::Namespace, "", namespace)).is_some_and(is_member)
    }

    /// What running pods of a namespace take, in thousandths of a CPU, and how many they are.
    pub fn taken_in(&self, namespace: &str) -> (u64, u64) {
        let running = self.all(Kind::Pod, namespace).map(|(_, pod)| pod).filter(|pod| is_running(pod));
        running.fold((0, 0), |(sum, many), pod| (sum + pod_milli(pod), many + 1))
    }

    /// What running pods take of a quota.
    pub fn taken(&self, quota: &Key) -> (u64, u64) {
        let about = NAMESPACES.into_iter().filter(|namespace| self.is_about(quota, namespace));
        about.map(|namespace| self.taken_in(namespace)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }

    /// The key of the object that records the charges of the cluster quota with this uid.
    pub fn charge_key(uid: &str) -> Key {
        key(Kind::Charge, "sluice-system", uid)
    }

    pub fn record(&mut self, record: &Record) -> Answer<RecordedObject> {
        let uid = record.uid.to_string();
        let charge = Self::charge_key(&uid);
        match &record.object {
            RecordedIn::Status(version) => {
                let key = key(Kind::Quota, &record.name.namespace(), record.name.name());
                let is_right = |known: &Value| {
                    known["metadata"]["uid"] == uid
                        && known["metadata"]["resourceVersion"].as_str().map(str::to_owned)
                            == version.precondition()
                };
                self.write_status(&key, record, is_right).map(|object| RecordedObject::Quota(wire(object)))
            }
            RecordedIn::Charge(object) => {
                let is_right = |known: &Value| {
                    known["metadata"]["uid"] == object.uid.to_string()
                        && known["metadata"]["resourceVersion"].as_str().map(str::to_owned)
                            == object.version.precondition()
                };
                self.write_status(&charge, record, is_right)
                    .map(|object| RecordedObject::Charge(wire(object)))
            }
            RecordedIn::NewCharge { is_shown } => {
                if !is_shown && !self.show(record) {
                    return Answer::Refused("not found".to_owned());
                }
                if let Some(known) = self.get(&charge) {
                    return Answer::Stale(Some(RecordedObject::Charge(wire(known.clone()))));
                }
                self.writes += 1;
                let object = self.put(&charge, json!({"metadata": {}}));
                Answer::Done(RecordedObject::Charge(wire(object)))
            }
        }
    }

    fn write_status(
        &mut self,
        key: &Key,
        record: &Record,
        is_right: impl Fn(&Value) -> bool,
    ) -> Answer<Value> {
        let Some(known) = self.get(key).cloned() else { return Answer::Stale(None) };
        if !is_right(&known) {
            return Answer::Stale(Some(known));
        }
        let mut status = status(record);
        if key.0 == Kind::Charge {
            status
                .as_object_mut()
                .unwrap()
                .retain(|field, _| ["hard", "used", "charges"].contains(&field.as_str()));
        }
        if known["status"] == status {
            return Answer::Done(known);
        }
        self.writes += 1;
        Answer::Done(
            self.put(
                key,
                Value::Object(
                    known
                        .as_object()
                        .unwrap()
                        .clone()
                        .into_iter()
                        .chain([("status".to_owned(), status)])
                        .collect(),
                ),
            ),
        )
    }

    /// Shows the limits of a cluster quota for the first time.
    pub fn show(&mut self, record: &Record) -> bool {
        let is_asked_for = |key: &Key| self.objects[key]["metadata"]["uid"] == record.uid.to_string();
        let Some(quota) = self.quotas().into_iter().find(is_asked_for) else { return false };
        self.edit(&quota, |quota| quota["status"] = json!({"total": {"hard": {CPU: "1"}}}));
        true
    }

    fn is_asked_for(pod: &Value, release: &Release) -> bool {
        pod["metadata"]["uid"] == release.uid.to_string()
            && pod["metadata"]["resourceVersion"].as_str().map(str::to_owned)
                == release.version.precondition()
            && is_gated(pod)
    }

    /// Removes the gate, unless it is refused.
    pub fn release(&mut self, release: &Release, is_refused: bool) -> Answer<sluice_index::PodWire> {
        let key = key(Kind::Pod, &release.namespace, &release.name);
        let Some(pod) = self.get(&key).cloned() else { return Answer::Stale(None) };
        if !Self::is_asked_for(&pod, release) {
            return Answer::Stale(Some(wire(pod)));
        }
        if is_refused {
            return Answer::Refused("not today".to_owned());
        }
        self.writes += 1;
        self.edit(&key, |pod| pod["spec"]["schedulingGates"] = json!([]));
        Answer::Done(wire(self.objects[&key].clone()))
    }
}
