//! A migration of a VM.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DEADLINE, kinds};
use crate::wait;

const FINALIZER: &str = "kubevirt.io/migrationJobFinalize";

/// Where a migration is; ordered as they come, the two ends last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub enum MigrationPhase {
    /// Not seen by virt-controller yet.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// Waits for its target pod to be created.
    Pending,
    /// The target pod exists.
    Scheduling,
    /// The target pod runs.
    Scheduled,
    /// Handed to the target node.
    PreparingTarget,
    /// The target node is ready.
    TargetReady,
    /// The guest is being transferred.
    Running,
    /// The guest runs on the target.
    Succeeded,
    /// It came to nothing.
    Failed,
}

impl MigrationPhase {
    /// The phase that an object states.
    #[must_use]
    pub fn of(migration: &DynamicObject) -> Self {
        let phase = migration.data.pointer("/status/phase").cloned().unwrap_or_else(|| json!(""));
        serde_json::from_value(phase).unwrap_or_default()
    }

    /// True when a migration in this phase has been, or is, in `wanted`.
    fn reached(self, wanted: Self) -> bool {
        match (self, wanted) {
            (Self::Failed, wanted) => wanted == Self::Failed,
            (phase, wanted) => phase >= wanted,
        }
    }

    fn is_final(self) -> bool {
        self >= Self::Succeeded
    }
}

/// A handle of a VirtualMachineInstanceMigration.
#[derive(Clone)]
pub struct Migration {
    client: Client,
    namespace: String,
    name: String,
}

impl Migration {
    pub(super) fn new(client: Client, namespace: &str, name: String) -> Self {
        Self { client, namespace: namespace.to_owned(), name }
    }

    /// Creates one with these annotations and this further spec, and with the label and the finalizer that KubeVirt's
    /// webhook would add.
    pub(super) async fn create(
        client: &Client,
        (namespace, vm): (&str, &str),
        annotations: &Value,
        spec: Value,
    ) -> anyhow::Result<Self> {
        let mut spec = spec;
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("vmiName".to_owned(), json!(vm));
        }
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {
                "generateName": format!("{vm}-"),
                "labels": {"kubevirt.io/vmi-name": vm},
                "annotations": annotations,
                "finalizers": [FINALIZER],
            },
            "spec": spec,
        }))?;
        let api = kinds::namespaced(client, &kinds::migration(), namespace);
        let created = api.create(&PostParams::default(), &object).await;
        let created = created.with_context(|| format!("asking for a migration of VM {namespace}/{vm}"))?;
        Ok(Self::new(client.clone(), namespace, created.name_any()))
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn api(&self) -> Api<DynamicObject> {
        kinds::namespaced(&self.client, &kinds::migration(), &self.namespace)
    }

    fn pod_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The object.
    ///
    /// # Errors
    /// When there is none.
    pub async fn object(&self) -> anyhow::Result<DynamicObject> {
        let found = self.api().get(&self.name).await;
        found.with_context(|| format!("reading migration {}/{}", self.namespace, self.name))
    }

    /// Its phase.
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn phase(&self) -> anyhow::Result<MigrationPhase> {
        Ok(MigrationPhase::of(&self.object().await?))
    }

    /// Says how urgent it is: `system-critical`, `user-triggered` or `system-maintenance`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn set_priority(&self, priority: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"priority": priority}}));
        let patched = self.api().patch(&self.name, &PatchParams::default(), &patch).await;
        patched.map(drop).with_context(|| format!("setting the priority of migration {}", self.name))
    }

    /// Waits until the phase is reached or passed.
    ///
    /// # Errors
    /// When the deadline passes, or at once when it ended otherwise or was deleted.
    pub async fn until(&self, wanted: MigrationPhase) -> anyhow::Result<DynamicObject> {
        let what = format!("migration {} to be {wanted:?}", self.namespace);
        let mut seen = false;
        let api = self.api();
        let found = wait::wait_for(&api, &self.name, DEADLINE, &what, |migration| {
            let Some(migration) = migration else { return seen };
            seen = true;
            let phase = MigrationPhase::of(migration);
            phase.reached(wanted) || phase.is_final()
        });
        let found = found.await?.with_context(|| format!("migration {} is gone", self.name))?;
        let phase = MigrationPhase::of(&found);
        ensure!(
            phase.reached(wanted),
            "migration {} ended as {phase:?}, not {wanted:?}: {found:#?}",
            self.name
        );
        Ok(found)
    }

    /// Waits until it has succeeded.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn until_succeeded(&self) -> anyhow::Result<DynamicObject> {
        self.until(MigrationPhase::Succeeded).await
    }

    /// Waits until it has failed.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn until_failed(&self) -> anyhow::Result<DynamicObject> {
        self.until(MigrationPhase::Failed).await
    }

    /// Waits until virt-controller says that a ResourceQuota rejected the target pod.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn until_rejected(&self) -> anyhow::Result<DynamicObject> {
        let what = format!("migration {} to be rejected by a quota", self.namespace);
        let rejected = |migration: Option<&DynamicObject>| migration.is_some_and(rejected);
        let found = wait::wait_for(&self.api(), &self.name, DEADLINE, &what, rejected).await?;
        found.context("a rejected migration")
    }

    /// True while it states that a ResourceQuota rejected the target pod.
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn rejected(&self) -> anyhow::Result<bool> {
        Ok(rejected(&self.object().await?))
    }

    async fn target_selector(&self) -> anyhow::Result<String> {
        let uid = self.object().await?.uid().context("a migration without uid")?;
        Ok(format!("kubevirt.io=virt-launcher,kubevirt.io/migrationJobUID={uid}"))
    }

    /// Its target pod, if there is one.
    ///
    /// # Errors
    /// When the migration does not exist.
    pub async fn target_pod(&self) -> anyhow::Result<Option<Pod>> {
        let params = ListParams::default().labels(&self.target_selector().await?);
        Ok(self.pod_api().list(&params).await.context("listing target pods")?.items.pop())
    }

    /// Waits for its target pod.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn until_target_pod(&self) -> anyhow::Result<Pod> {
        let config = watcher::Config::default().labels(&self.target_selector().await?);
        let what = format!("the target pod of migration {}/{}", self.namespace, self.name);
        let mut pods =
            wait::wait_for_all(&self.pod_api(), config, DEADLINE, &what, |pods| !pods.is_empty()).await?;
        pods.pop().context("a target pod")
    }

    /// Deletes it, which aborts it if it is under way; returns when it is gone.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn abort(&self) -> anyhow::Result<()> {
        self.keep_until_ended().await?;
        let targets = ListParams::default().labels(&self.target_selector().await?);
        self.api().delete(&self.name, &DeleteParams::default()).await.context("deleting the migration")?;
        let what = format!("migration {} to be gone", self.namespace);
        wait::wait_for(&self.api(), &self.name, DEADLINE, &what, |migration| migration.is_none()).await?;
        // virt-controller forgets a target whose creation it has not seen yet when the migration is aborted, and starts no
        // other one beside it. A real launcher ends when no guest has come for some minutes.
        let now = DeleteParams::default().grace_period(0);
        self.pod_api().delete_collection(&now, &targets).await.context("deleting left targets")?;
        Ok(())
    }

    /// Without the finalizer, which those of virt-controller lack here, virt-controller would
    /// not see the end of a migration that is deleted.
    async fn keep_until_ended(&self) -> anyhow::Result<()> {
        let object = self.object().await?;
        let finalizers = object.finalizers();
        if MigrationPhase::of(&object).is_final() || finalizers.iter().any(|one| one == FINALIZER) {
            return Ok(());
        }
        let all: Vec<Value> = finalizers.iter().map(|one| json!(one)).chain([json!(FINALIZER)]).collect();
        let patch = Patch::Merge(json!({"metadata": {"finalizers": all}}));
        let patched = self.api().patch(&self.name, &PatchParams::default(), &patch).await;
        patched.map(drop).context("adding the migration's finalizer")
    }
}

fn rejected(migration: &DynamicObject) -> bool {
    let conditions = migration.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|all| {
        all.iter().any(|condition| {
            condition.get("type").and_then(Value::as_str) == Some("migrationRejectedByResourceQuota")
                && condition.get("status").and_then(Value::as_str) == Some("True")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_reached_when_it_is_passed_but_never_by_failing() {
        use MigrationPhase::{Failed, Pending, Running, Succeeded, Unset};
        assert!(Running.reached(Pending) && Succeeded.reached(Running) && Pending.reached(Unset));
        assert!(!Pending.reached(Running) && !Running.reached(Succeeded) && !Succeeded.reached(Failed));
        assert!(Failed.reached(Failed) && !Failed.reached(Pending) && !Failed.reached(Succeeded));
    }
}
