//! A VM: its instance, its pods, what can be done with it.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::{DEADLINE, Migration, MigrationScript, ask_for_guest_memory, kinds};
use crate::wait;

/// A handle of a VirtualMachineInstance, and of the VirtualMachine of the same name if there is one.
#[derive(Clone)]
pub struct Vm {
    client: Client,
    namespace: String,
    name: String,
}

impl Vm {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The same, looked at and asked for with another client.
    #[must_use]
    pub fn through(&self, client: &Client) -> Self {
        Self::new(client.clone(), &self.namespace, &self.name)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    fn instances(&self) -> Api<DynamicObject> {
        kinds::namespaced(&self.client, &kinds::vmi(), &self.namespace)
    }

    fn machines(&self) -> Api<DynamicObject> {
        kinds::namespaced(&self.client, &kinds::virtual_machine(), &self.namespace)
    }

    fn pod_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The instance.
    ///
    /// # Errors
    /// When there is none.
    pub async fn object(&self) -> anyhow::Result<DynamicObject> {
        let found = self.instances().get(&self.name).await;
        found.with_context(|| format!("reading VM {}/{}", self.namespace, self.name))
    }

    /// Waits until the instance exists and satisfies the condition.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn until(
        &self,
        what: &str,
        condition: impl Fn(&DynamicObject) -> bool,
    ) -> anyhow::Result<DynamicObject> {
        let what = format!("VM {} {what}", self.namespace);
        let found =
            wait::wait_for(&self.instances(), &self.name, DEADLINE, &what, |vmi| vmi.is_some_and(&condition))
                .await?;
        found.context("an instance that exists")
    }

    /// Waits until its VirtualMachine satisfies the condition.
    ///
    /// # Errors
    /// When it is a mere instance, or the deadline passes.
    pub async fn until_machine(
        &self,
        what: &str,
        condition: impl Fn(&DynamicObject) -> bool,
    ) -> anyhow::Result<DynamicObject> {
        let what = format!("VirtualMachine {} {what}", self.namespace);
        let is_so = |machine: Option<&DynamicObject>| machine.is_some_and(&condition);
        let found = wait::wait_for(&self.machines(), &self.name, DEADLINE, &what, is_so).await?;
        found.context("a VirtualMachine that exists")
    }

    /// Waits until it runs.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn until_running(&self) -> anyhow::Result<()> {
        self.until("to run", running).await.map(drop)
    }

    /// The node on which it runs.
    ///
    /// # Errors
    /// When it does not exist or runs nowhere.
    pub async fn node(&self) -> anyhow::Result<String> {
        node(&self.object().await?).context("the VM has no node")
    }

    /// Waits until it runs on another node; returns which.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn until_away_from(&self, from: &str) -> anyhow::Result<String> {
        let away = |vmi: &DynamicObject| node(vmi).is_some_and(|node| node != from);
        node(&self.until(&format!("to leave {from}"), away).await?).context("the VM has no node")
    }

    async fn pod_selector(&self) -> anyhow::Result<String> {
        let uid = self.object().await?.uid().context("an instance without uid")?;
        Ok(format!("kubevirt.io=virt-launcher,kubevirt.io/created-by={uid}"))
    }

    /// All launcher pods that exist, ended ones too.
    ///
    /// # Errors
    /// When the VM does not exist or the API server refuses.
    pub async fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        let params = ListParams::default().labels(&self.pod_selector().await?);
        Ok(self.pod_api().list(&params).await.context("listing launcher pods")?.items)
    }

    /// The pod in which it runs.
    ///
    /// # Errors
    /// When there is none.
    pub async fn pod(&self) -> anyhow::Result<Pod> {
        let here = Some(self.node().await?);
        let on_node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) == here;
        let mut pods = self.pods().await?.into_iter();
        pods.find(|pod| !ended(pod) && on_node(pod)).context("no live launcher pod on the VM's node")
    }

    /// Waits until exactly one of its pods has not ended; returns that one.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn until_alone(&self) -> anyhow::Result<Pod> {
        let config = watcher::Config::default().labels(&self.pod_selector().await?);
        let what = format!("VM {}/{} to have one live pod", self.namespace, self.name);
        let live = |pods: &[Pod]| pods.iter().filter(|pod| !ended(pod)).count() == 1;
        let pods = wait::wait_for_all(&self.pod_api(), config, DEADLINE, &what, live).await?;
        pods.into_iter().find(|pod| !ended(pod)).context("one live pod")
    }

    /// How its migrations go from now on, the one under way included.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn follow(&self, script: MigrationScript) -> anyhow::Result<()> {
        let patch = json!({"metadata": {"annotations": {MigrationScript::ANNOTATION: script.value()}}});
        self.patch(patch).await
    }

    /// Lets held migrations and kept source pods go on.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn release(&self) -> anyhow::Result<()> {
        self.follow(MigrationScript::Succeed).await
    }

    async fn patch(&self, patch: Value) -> anyhow::Result<()> {
        let patched = self.instances().patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).with_context(|| format!("changing VM {}/{}", self.namespace, self.name))
    }

    /// Asks for a migration; does not wait for anything.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn migrate(&self) -> anyhow::Result<Migration> {
        self.ask(json!({}), json!({})).await
    }

    /// As [`Self::migrate`], to this node and no other.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn migrate_to(&self, node: &str) -> anyhow::Result<Migration> {
        self.ask(json!({}), json!({"addedNodeSelector": {"kubernetes.io/hostname": node}})).await
    }

    /// As [`Self::migrate`]; KubeVirt gives the target up that is pending for so many seconds.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn migrate_within(&self, seconds: u32) -> anyhow::Result<Migration> {
        let timeout = json!({"kubevirt.io/migrationPendingPodTimeoutSeconds": seconds.to_string()});
        self.ask(timeout, json!({})).await
    }

    async fn ask(&self, annotations: Value, spec: Value) -> anyhow::Result<Migration> {
        Migration::create(&self.client, (&self.namespace, &self.name), &annotations, spec).await
    }

    /// All its migrations that exist, ended ones too.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn migrations(&self) -> anyhow::Result<Vec<Migration>> {
        let all = kinds::namespaced(&self.client, &kinds::migration(), &self.namespace);
        let all = all.list(&ListParams::default()).await.context("listing migrations")?;
        Ok(all.items.iter().filter(|one| self.owns(one)).map(|one| self.handle(one)).collect())
    }

    /// Waits for a migration that is not among `known`: one that another client asked for.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn until_migration(&self, known: &[Migration]) -> anyhow::Result<Migration> {
        let api = kinds::namespaced(&self.client, &kinds::migration(), &self.namespace);
        let fresh = |one: &&DynamicObject| {
            self.owns(one) && !known.iter().any(|other| other.name() == one.name_any())
        };
        let what = format!("another migration of VM {}/{}", self.namespace, self.name);
        let some = |all: &[DynamicObject]| all.iter().any(|one| fresh(&one));
        let all = wait::wait_for_all(&api, watcher::Config::default(), DEADLINE, &what, some).await?;
        all.iter().find(fresh).map(|one| self.handle(one)).context("a fresh migration")
    }

    fn owns(&self, migration: &DynamicObject) -> bool {
        migration.data.pointer("/spec/vmiName").and_then(Value::as_str) == Some(self.name.as_str())
    }

    fn handle(&self, migration: &DynamicObject) -> Migration {
        Migration::new(self.client.clone(), &self.namespace, migration.name_any())
    }

    /// Plugs sockets in; virt-controller answers with a migration, which is returned.
    ///
    /// # Errors
    /// When the API server refuses or no migration comes.
    pub async fn hotplug_cpu(&self, sockets: u32) -> anyhow::Result<Migration> {
        self.plug(json!({"domain": {"cpu": {"sockets": sockets}}})).await
    }

    /// Plugs memory in (an amount as Kubernetes prints it, `1Gi` and not `1024Mi`);
    /// virt-controller answers with a migration, which is returned.
    ///
    /// # Errors
    /// When the API server refuses or no migration comes.
    pub async fn hotplug_memory(&self, guest: &str) -> anyhow::Result<Migration> {
        self.plug(json!({"domain": {"memory": {"guest": guest}}})).await
    }

    /// A VirtualMachine's template is changed, from where virt-controller takes it to the
    /// instance; an instance without one is changed itself.
    async fn plug(&self, change: Value) -> anyhow::Result<Migration> {
        let known = self.migrations().await?;
        self.change(change).await?;
        self.until_migration(&known).await
    }

    /// Changes the specification, of a VirtualMachine that of its template; returns when the API server has it.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn change(&self, mut change: Value) -> anyhow::Result<()> {
        if self.machines().get_opt(&self.name).await?.is_some() {
            let patch = Patch::Merge(json!({"spec": {"template": {"spec": change}}}));
            let patched = self.machines().patch(&self.name, &PatchParams::default(), &patch).await;
            patched.context("changing the VirtualMachine's template")?;
        } else {
            ask_for_guest_memory(&mut change)?;
            self.patch(json!({"spec": change})).await?;
        }
        Ok(())
    }

    /// Restarts a VirtualMachine, as `virtctl restart` does; returns when it runs in another pod.
    ///
    /// # Errors
    /// When it is a mere instance or does not come back.
    pub async fn restart(&self) -> anyhow::Result<()> {
        let machine = self.machines().get_opt(&self.name).await?;
        ensure!(
            machine.is_some(),
            "VM {} has no VirtualMachine: only one that has is started again",
            self.name
        );
        let old = self.object().await?.uid();
        let requests = json!([{"action": "Stop", "uid": old}, {"action": "Start"}]);
        let patch = Patch::Merge(json!({"status": {"stateChangeRequests": requests}}));
        let patched = self.machines().patch_status(&self.name, &PatchParams::default(), &patch).await;
        patched.context("asking for the restart")?;
        self.until("to run again", |vmi| vmi.uid() != old && running(vmi)).await.map(drop)
    }

    /// Stops a VirtualMachine; returns when its instance is gone.
    ///
    /// # Errors
    /// When it is a mere instance or does not stop.
    pub async fn halt(&self) -> anyhow::Result<()> {
        self.set_run_strategy("Halted").await?;
        let what = format!("VM {} to be gone", self.namespace);
        let gone = |vmi: Option<&DynamicObject>| vmi.is_none();
        wait::wait_for(&self.instances(), &self.name, DEADLINE, &what, gone).await.map(drop)
    }

    /// Starts a VirtualMachine that was stopped; does not wait.
    ///
    /// # Errors
    /// When it is a mere instance or the API server refuses.
    pub async fn start_again(&self) -> anyhow::Result<()> {
        self.set_run_strategy("Always").await
    }

    async fn set_run_strategy(&self, strategy: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"runStrategy": strategy}}));
        let patched = self.machines().patch(&self.name, &PatchParams::default(), &patch).await;
        patched.map(drop).context("setting the run strategy")
    }

    /// Deletes it, with its VirtualMachine if it has one; returns when it is gone.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn delete(&self) -> anyhow::Result<()> {
        for (api, what) in [(self.machines(), "VirtualMachine"), (self.instances(), "VM")] {
            match api.delete(&self.name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                deleted => deleted.with_context(|| format!("deleting {what} {}", self.name))?,
            };
            let what = format!("{what} {} to be gone", self.namespace);
            wait::wait_for(&api, &self.name, DEADLINE, &what, |object| object.is_none()).await?;
        }
        Ok(())
    }

    /// Events about the instance with this reason, e.g. `FailedCreate`.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn events(&self, reason: &str) -> anyhow::Result<Vec<Event>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = ListParams::default().fields(&self.event_selector(reason));
        Ok(events.list(&params).await.context("listing events")?.items)
    }

    /// Waits for an event about the instance with this reason.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn until_event(&self, reason: &str) -> anyhow::Result<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let config = watcher::Config::default().fields(&self.event_selector(reason));
        let what = format!("event {reason} about VM {}/{}", self.namespace, self.name);
        let found = wait::wait_for_all(&events, config, DEADLINE, &what, |all| !all.is_empty()).await?;
        found.into_iter().next().context("an event")
    }

    fn event_selector(&self, reason: &str) -> String {
        format!(
            "involvedObject.kind=VirtualMachineInstance,involvedObject.name={},reason={reason}",
            self.name
        )
    }
}

fn node(vmi: &DynamicObject) -> Option<String> {
    vmi.data.pointer("/status/nodeName").and_then(Value::as_str).map(str::to_owned)
}

fn running(vmi: &DynamicObject) -> bool {
    vmi.data.pointer("/status/phase").and_then(Value::as_str) == Some("Running")
}

fn ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
