//! The namespace and the quota of short stories. Pods are called after what they are: see [`super::owners`].

use serde_json::{Value, json};
use sluice_api::names;

use super::server::{CPU, Key, Kind, Server, is_gated, key, pod_milli};
use super::{owners, platform};

pub const NAMESPACE: &str = "team";
pub const QUOTA: &str = "compute";

pub fn pod(name: &str) -> Key {
    key(Kind::Pod, NAMESPACE, name)
}

pub fn quota() -> Key {
    key(Kind::Quota, NAMESPACE, QUOTA)
}

/// Name and uid of the pod that controls another one.
pub type Controller = (String, String);

fn set_controller(pod: &mut Value, name: &str, controller: Option<&Controller>) {
    let owners = controller.map_or_else(|| owners::references(name), platform::references);
    let container = if owners.as_array().is_some_and(Vec::is_empty) { "c" } else { "compute" };
    pod["metadata"]["ownerReferences"] = owners;
    pod["spec"]["containers"][0]["name"] = json!(container);
}

impl Server {
    pub fn create_pod(&mut self, name: &str, milli_cpu: u64, priority: i32) {
        self.create_as(name, milli_cpu, priority, None, None);
    }

    /// `creator`: who has created it if its name does not say so.
    pub fn create_as(
        &mut self,
        name: &str,
        milli_cpu: u64,
        priority: i32,
        controller: Option<&Controller>,
        creator: Option<&str>,
    ) {
        let mut object = self.new_named_pod(name, milli_cpu, priority);
        set_controller(&mut object, name, controller);
        if let Some(creator) = creator {
            object["metadata"]["annotations"] = json!({ names::CREATED_BY_ANNOTATION: creator });
        }
        self.create(&pod(name), object);
    }

    /// As [`Self::create_pod`], changed by `edit` before.
    pub fn create_pod_with(&mut self, name: &str, milli_cpu: u64, edit: impl FnOnce(&mut Value)) {
        let mut object = self.new_named_pod(name, milli_cpu, 0);
        edit(&mut object);
        self.create(&pod(name), object);
    }

    /// As the API server does with targets of local migrations.
    pub fn create_ungated(&mut self, name: &str, milli_cpu: u64) {
        let mut object = self.new_named_pod(name, milli_cpu, 0);
        object["spec"]["schedulingGates"] = json!([]);
        self.create(&pod(name), object);
    }

    fn new_named_pod(&self, name: &str, milli_cpu: u64, priority: i32) -> Value {
        let mut object = self.new_pod(milli_cpu, priority);
        set_controller(&mut object, name, None);
        object["metadata"]["annotations"] = owners::annotations(name);
        object["metadata"]["labels"] = owners::labels(name);
        object
    }

    pub fn delete_pod(&mut self, name: &str) {
        self.delete(&pod(name));
    }

    pub fn finish_pod(&mut self, name: &str) {
        self.finish(&pod(name));
    }

    /// As another leader does.
    pub fn ungate_pod(&mut self, name: &str) {
        self.edit(&pod(name), |pod| pod["spec"]["schedulingGates"] = json!([]));
    }

    /// As a client does that may update pods.
    pub fn adopt_pod(&mut self, name: &str, controller: Option<&Controller>) {
        self.edit(&pod(name), |pod| set_controller(pod, name, controller));
    }

    pub fn touch_pod(&mut self, name: &str) {
        self.edit(&pod(name), |_| {});
    }

    pub fn resize_pod(&mut self, name: &str, milli_cpu: u64) {
        self.resize(&pod(name), milli_cpu);
    }

    pub fn set_hard(&mut self, hard: u64) {
        self.limit(&quota(), hard);
    }

    pub fn change_meaning(&mut self) {
        self.count_otherwise(&quota());
    }

    pub fn scribble_status(&mut self, used: u64) {
        self.write_status_of(&quota(), used, 0);
    }

    /// As another leader does.
    pub fn charge_quota(&mut self, used: u64) {
        self.write_status_of(&quota(), used, 1);
    }

    pub fn delete_quota(&mut self) {
        self.delete(&quota());
    }

    pub fn pods(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> {
        let pods = self.objects.iter().filter(|(key, _)| key.0 == Kind::Pod && key.1 == NAMESPACE);
        pods.map(|(key, pod)| (&*key.2, pod))
    }

    pub fn pod(&self, name: &str) -> &Value {
        &self.objects[&pod(name)]
    }

    pub fn is_held(&self, name: &str) -> bool {
        is_gated(self.pod(name))
    }

    /// In thousandths of a CPU.
    pub fn size(&self, name: &str) -> u64 {
        pod_milli(self.pod(name))
    }

    pub fn quota(&self) -> Option<&Value> {
        self.get(&quota())
    }

    /// CPUs of the status: hard and used.
    pub fn status(&self) -> Option<(&str, &str)> {
        let status = &self.quota()?["status"];
        Some((status["hard"][CPU].as_str()?, status["used"][CPU].as_str()?))
    }

    /// The CPUs that the status says are used.
    pub fn used(&self) -> &str {
        self.status().map_or("", |(_, used)| used)
    }

    /// What running pods take, in thousandths of a CPU.
    pub fn taken(&self) -> u64 {
        self.taken_in(NAMESPACE).0
    }
}
