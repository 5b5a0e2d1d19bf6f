//! Describing a VM that is to be started.

use anyhow::Context as _;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::{MigrationScript, Vm, create, kinds};

/// A VM to be created; see [`KubeVirt::vm`](super::KubeVirt::vm).
#[derive(Clone)]
#[must_use = "a VM is not created before `create` or `start`"]
pub struct VmBuilder {
    client: Client,
    namespace: String,
    name: String,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    spec: Value,
    node: Option<String>,
    virtual_machine: bool,
}

impl VmBuilder {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        let spec = json!({
            "architecture": "amd64",
            "evictionStrategy": "LiveMigrate",
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "machine": {"type": "q35"},
                "cpu": {"sockets": 1, "cores": 1, "threads": 1},
                "memory": {"guest": "256Mi"},
                "resources": {},
                "devices": {},
            },
        });
        Self {
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: Map::new(),
            annotations: Map::new(),
            spec,
            node: None,
            virtual_machine: false,
        }
    }

    /// Merges (RFC 7396) into the VMI's spec: whatever no other verb says.
    pub fn spec(mut self, patch: Value) -> Self {
        merge(&mut self.spec, patch);
        self
    }

    pub fn memory(self, guest: &str) -> Self {
        self.spec(json!({"domain": {"memory": {"guest": guest}}}))
    }

    /// Sockets of one core and one thread.
    pub fn sockets(self, sockets: u32) -> Self {
        self.spec(json!({"domain": {"cpu": {"sockets": sockets}}}))
    }

    /// `spec.domain.resources.requests`, e.g. `[("cpu", "125m"), ("memory", "2730Mi")]`.
    pub fn requests(self, amounts: &[(&str, &str)]) -> Self {
        self.resources("requests", amounts)
    }

    /// `spec.domain.resources.limits`.
    pub fn limits(self, amounts: &[(&str, &str)]) -> Self {
        self.resources("limits", amounts)
    }

    fn resources(self, kind: &str, amounts: &[(&str, &str)]) -> Self {
        let amounts: Map<_, _> =
            amounts.iter().map(|&(name, amount)| (name.to_owned(), json!(amount))).collect();
        self.spec(json!({"domain": {"resources": {kind: amounts}}}))
    }

    /// How far CPU and memory can be plugged in while it runs.
    pub fn hotplug(self, max_sockets: u32, max_guest: &str) -> Self {
        self.spec(json!({"domain": {"cpu": {"maxSockets": max_sockets}, "memory": {"maxGuest": max_guest}}}))
    }

    /// The node on which it starts; once it runs it may go elsewhere. Needs [`Self::start`].
    pub fn node(mut self, node: &str) -> Self {
        self.node = Some(node.to_owned());
        self
    }

    /// A VirtualMachine that always runs, instead of a mere instance.
    pub fn virtual_machine(mut self) -> Self {
        self.virtual_machine = true;
        self
    }

    /// An annotation of the instance.
    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations.insert(name.to_owned(), json!(value));
        self
    }

    /// A label of the instance, and so of its pods.
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), json!(value));
        self
    }

    /// How its migrations go.
    pub fn script(mut self, script: MigrationScript) -> Self {
        match script.value() {
            Some(value) => self.annotation(MigrationScript::ANNOTATION, value),
            None => {
                self.annotations.remove(MigrationScript::ANNOTATION);
                self
            }
        }
    }

    /// The object that will be created.
    #[must_use]
    pub fn object(&self) -> Value {
        let mut spec = self.spec.clone();
        if let Some(node) = &self.node {
            merge(&mut spec, json!({"nodeSelector": {"kubernetes.io/hostname": node}}));
        }
        let (namespace, name) = (&self.namespace, &self.name);
        if self.virtual_machine {
            let template =
                json!({"metadata": {"labels": self.labels, "annotations": self.annotations}, "spec": spec});
            return json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"runStrategy": "Always", "template": template},
            });
        }
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {
                "namespace": namespace, "name": name, "labels": self.labels, "annotations": self.annotations,
            },
            "spec": spec,
        })
    }

    /// Creates it; does not wait.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create(self) -> anyhow::Result<Vm> {
        create(&self.client, self.object()).await
    }

    /// Creates it; returns when it runs.
    ///
    /// # Errors
    /// When the API server refuses it or it does not start.
    pub async fn start(self) -> anyhow::Result<Vm> {
        let vm = create(&self.client, self.object()).await?;
        vm.until_running().await?;
        if self.node.is_some() {
            self.unpin(&vm).await?;
        }
        Ok(vm)
    }

    /// Takes the node selector away, which would hold for migration targets too.
    async fn unpin(&self, vm: &Vm) -> anyhow::Result<()> {
        let (resource, patch) = if self.virtual_machine {
            (kinds::virtual_machine(), json!({"spec": {"template": {"spec": {"nodeSelector": null}}}}))
        } else {
            (kinds::vmi(), json!({"spec": {"nodeSelector": null}}))
        };
        let objects = kinds::namespaced(&self.client, &resource, &self.namespace);
        let patched = objects.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.context("removing the node selector")?;
        vm.until("to be free of its node selector", |vmi| vmi.data.pointer("/spec/nodeSelector").is_none())
            .await
            .map(drop)
    }
}

/// JSON merge patch (RFC 7396).
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_adds_replaces_and_removes() {
        let mut value = json!({"a": {"b": 1, "c": 2}, "d": [1, 2]});
        merge(&mut value, json!({"a": {"b": null, "e": {"f": null, "g": 3}}, "d": [9]}));
        assert_eq!(value, json!({"a": {"c": 2, "e": {"g": 3}}, "d": [9]}));
    }
}
