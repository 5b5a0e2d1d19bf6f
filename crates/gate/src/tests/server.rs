//! A server in memory with the few rules that the gate relies on: versions, preconditions, watch logs.
//!
//! It is not a fake Kubernetes: the suites in `dev/e2e` run against a real one. Here the point is to interleave
//! events, answers and crashes in ways a real one would need years for. Objects are kept as they are written, since there
//! are many kinds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::owners::Machines;
use super::vms::Vms;
use crate::{Moment, State};

pub const GATE: &str = "ApplicationAwareQuotaGate";
pub const CPU: &str = "requests.cpu";
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
    Machine,
}

pub const KINDS: [Kind; 7] = [
    Kind::Pod,
    Kind::Namespace,
    Kind::Quota,
    Kind::ClusterQuota,
    Kind::Charge,
    Kind::Permission,
    Kind::Machine,
];

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
    pub machines: Machines,
    /// VMs of which each process knows what a watch shows; without them [`Self::machines`] says what VMs are charged.
    pub vms: Option<Vms>,
    /// What pods that run take by what evaluators answered, by uid, where there are evaluators.
    pub prices: Option<BTreeMap<String, u64>>,
    /// Evaluators are sent the other pods of the namespace.
    pub sends_other_pods: bool,
    /// Processes have a rule in the shadow.
    pub has_shadow: bool,
}

pub fn wire<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    (kind, namespace.to_owned(), name.to_owned())
}

fn permission() -> Key {
    key(Kind::Permission, "", "aaq")
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

pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
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
        self.show(key, object.clone());
        object
    }

    /// The object is just this, its version included.
    pub fn show(&mut self, key: &Key, object: Value) {
        self.log.push(Change { kind: key.0, is_gone: false, object: object.clone() });
        self.objects.insert(key.clone(), object);
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

    /// A pod that is created now.
    pub fn new_pod(&self, milli_cpu: u64, priority: i32) -> Value {
        let created = jiff::Timestamp::from_second(self.now_s).unwrap().to_string();
        let requests = json!({"cpu": format!("{milli_cpu}m")});
        json!({
            "metadata": {"creationTimestamp": created},
            "spec": {
                "priority": priority, "schedulingGates": [{"name": GATE}],
                "containers": [{"name": "c", "resources": {"requests": requests}}],
            },
            "status": {"phase": "Pending"},
        })
    }

    pub fn create(&mut self, key: &Key, object: Value) {
        if self.get(key).is_none() {
            self.put(key, object);
        }
    }

    pub fn create_in(&mut self, namespace: &str, name: &str, milli_cpu: u64, priority: i32) {
        let pod = self.new_pod(milli_cpu, priority);
        self.create(&key(Kind::Pod, namespace, name), pod);
    }

    pub fn finish(&mut self, pod: &Key) {
        if self.get(pod).is_some_and(is_running) {
            self.edit(pod, |pod| pod["status"]["phase"] = json!("Succeeded"));
        }
    }

    pub fn resize(&mut self, pod: &Key, milli_cpu: u64) {
        let cpu = json!(format!("{milli_cpu}m"));
        self.edit(pod, |pod| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu);
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

    pub fn limit(&mut self, quota: &Key, milli_cpu: u64) {
        let hard = json!(format!("{milli_cpu}m"));
        if self.get(quota).is_some() {
            return self.edit(quota, |object| limits_mut(quota.0, object)[CPU] = hard);
        }
        let hard = json!({CPU: hard});
        let spec = match quota.0 {
            Kind::ClusterQuota => json!({"quota": {"hard": hard}, "selector": shared()}),
            _ => json!({"hard": hard}),
        };
        self.put(quota, json!({"metadata": {}, "spec": spec}));
    }

    /// From now on it counts pods too, or no more.
    pub fn count_otherwise(&mut self, quota: &Key) {
        self.edit(quota, |object| {
            let hard = limits_mut(quota.0, object).as_object_mut().unwrap();
            if hard.remove("pods").is_none() {
                hard.insert("pods".to_owned(), json!(PODS));
            }
        });
    }

    /// The cluster quotas are about all namespaces from now on, or about those with the label.
    pub fn change_selector(&mut self) {
        for quota in self.quotas().iter().filter(|quota| quota.0 == Kind::ClusterQuota) {
            self.edit(quota, |quota| {
                let selector = &mut quota["spec"]["selector"];
                *selector = if *selector == json!({}) { shared() } else { json!({}) };
            });
        }
    }

    /// Another client writes the status, and perhaps says that it has charged something.
    pub fn write_status_of(&mut self, quota: &Key, used: u64, charges: i64) {
        let Some(hard) = self.hard(quota) else { return };
        self.edit(quota, |quota| {
            let status = &mut quota["status"];
            status["charges"] = json!(status["charges"].as_i64().unwrap_or_default() + charges);
            status["hard"] = json!({CPU: format!("{hard}m")});
            status["used"] = json!({CPU: format!("{used}m")});
        });
    }

    /// All quotas of both kinds.
    pub fn quotas(&self) -> Vec<Key> {
        let kinds = [Kind::ClusterQuota, Kind::Quota].into_iter();
        kinds.flat_map(|kind| self.all(kind, "").map(|(key, _)| key.clone())).collect()
    }

    pub fn hard(&self, quota: &Key) -> Option<u64> {
        Some(milli(&limits(self.get(quota)?)[CPU]))
    }

    pub fn counts_pods(&self, quota: &Key) -> bool {
        self.get(quota).is_some_and(|quota| !limits(quota)["pods"].is_null())
    }

    pub fn allow(&mut self, is_allowed: bool) {
        self.put(&permission(), json!({"metadata": {}, "allowed": is_allowed}));
    }

    /// Whether a quota is about the pods of a namespace.
    pub fn is_about(&self, quota: &Key, namespace: &str) -> bool {
        let Some(object) = self.get(quota) else { return false };
        if quota.0 == Kind::Quota {
            return quota.1 == namespace;
        }
        let is_allowed = self.get(&permission()).is_some_and(|aaq| aaq["allowed"] == true);
        let is_member = |known: &Value| known["metadata"]["labels"]["quota"] == "shared";
        let is_selected = object["spec"]["selector"] == json!({})
            || self.get(&key(Kind::Namespace, "", namespace)).is_some_and(is_member);
        is_allowed && is_selected
    }

    /// What running pods of a namespace take, in thousandths of a CPU, and how many they are. VMs take it for their pods.
    pub fn taken_in(&self, namespace: &str) -> (u64, u64) {
        let running = || self.all(Kind::Pod, namespace).filter(|(_, pod)| is_running(pod));
        let sizes = running().map(|(key, pod)| (&*key.2, self.size_of(pod)));
        let cpu = match &self.vms {
            Some(vms) => {
                let plain = sizes.filter(|(name, _)| !name.starts_with('v')).map(|(_, size)| size);
                vms.taken(self) + plain.sum::<u64>()
            }
            None => self.machines.taken(sizes),
        };
        (cpu, running().count() as u64)
    }

    /// What running pods take of a quota.
    pub fn taken_of(&self, quota: &Key) -> (u64, u64) {
        let namespaces = self.all(Kind::Namespace, "").map(|(key, _)| &*key.2);
        let about = namespaces.filter(|namespace| self.is_about(quota, namespace));
        about.map(|namespace| self.taken_in(namespace)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }

    /// What a new process is told of KubeVirt.
    pub fn tell(&self, state: &mut State, now: Moment) {
        if self.prices.is_some() {
            state.follow_evaluators(Some(self.evaluators()), now);
        }
        if self.has_shadow {
            state.follow_shadow(Some(super::shadow::config()));
        }
        self.machines.tell(state, now);
        if let Some(vms) = &self.vms {
            vms.tell(state, now);
        }
    }
}

fn shared() -> Value {
    json!({"labels": {"matchLabels": {"quota": "shared"}}})
}

fn limits(quota: &Value) -> &Value {
    quota.pointer("/spec/quota/hard").unwrap_or_else(|| &quota["spec"]["hard"])
}

fn limits_mut(kind: Kind, quota: &mut Value) -> &mut Value {
    let path = if kind == Kind::ClusterQuota { "/spec/quota/hard" } else { "/spec/hard" };
    quota.pointer_mut(path).unwrap()
}
