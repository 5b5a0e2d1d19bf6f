//! KubeVirt in a bed: its kinds, its account, its installation object.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use super::access::TOKEN_LIFE;
use super::{Bed, BedOptions, Component, START, kubeconfig_path};
use crate::artifacts;
use crate::audit::AuditEvent;
use crate::kubeconfig::{self, Credential};
use crate::kubevirt::{CONTROLLER, INSTALLATION, KubeVirt, NAMESPACE, kinds};
use crate::virt_handler::SimulatedVirtHandler;
use crate::wait;

/// Who the simulated node agents are.
const HANDLER: &str = "system:serviceaccount:kubevirt:kubevirt-handler";
impl Bed {
    /// VMs and migrations of this bed.
    ///
    /// # Errors
    /// When the bed was started without KubeVirt, or outside a tokio runtime.
    pub fn kubevirt(&self) -> anyhow::Result<KubeVirt<'_>> {
        ensure!(
            self.programs().kubevirt.is_some(),
            "this bed was started without KubeVirt: see BedOptions::kubevirt"
        );
        Ok(KubeVirt::new(self, self.admin()?))
    }

    /// Builds KubeVirt and starts it in a bed that was started without it.
    ///
    /// # Errors
    /// When it cannot be built, or does not start.
    pub async fn start_kubevirt(&self) -> anyhow::Result<()> {
        self.use_programs(&BedOptions { kubevirt: true, ..self.options.clone() }).await?;
        self.install_kubevirt().await.context("installing KubeVirt")?;
        self.start_component(Component::VirtController)
    }

    /// Starts virt-controller anew with another image for launchers, as an upgrade does: it migrates the VMs whose launchers
    /// are of another one. Does not wait for them.
    ///
    /// # Errors
    /// When its program cannot be started.
    pub fn upgrade_kubevirt(&self, launcher_image: &str) -> anyhow::Result<()> {
        launcher_image.clone_into(&mut self.launcher_image());
        self.stop(Component::VirtController);
        self.start_component(Component::VirtController)
    }

    /// The audit events of launcher pods that virt-controller tried to create in a namespace and
    /// that were refused, for whatever reason, in the log's order.
    ///
    /// # Errors
    /// As [`Bed::audit_events`].
    pub async fn rejected_attempts(&self, namespace: &str) -> anyhow::Result<Vec<AuditEvent>> {
        let rejected = |event: &AuditEvent| {
            event.is("create", "pods")
                && event.namespace == namespace
                && event.user == CONTROLLER
                && event.code >= 400
        };
        let mut events = self.audit_events().await?;
        events.retain(rejected);
        Ok(events)
    }

    /// Where a component's output goes.
    pub(crate) fn log_of(&self, component: Component) -> PathBuf {
        self.plan().spec(component).log
    }

    /// Everything that virt-controller needs before it starts, and the simulated node agents.
    pub(super) async fn install_kubevirt(&self) -> anyhow::Result<()> {
        let (kinds, account) = tokio::join!(self.define_kinds(), self.virt_controller_account());
        kinds.context("creating KubeVirt's kinds")?;
        account.context("making virt-controller's account")?;
        let client = self.admin()?;
        let installations = kinds::namespaced(&client, &kinds::installation(), NAMESPACE);
        let installation: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": INSTALLATION},
            "spec": {
                "configuration": {
                    "vmRolloutStrategy": "LiveUpdate",
                    // Old versions, as 1.3, plug nothing in without it; newer ones always do.
                    "developerConfiguration": {"featureGates": ["VMLiveUpdateFeatures"]},
                },
                "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]},
            },
        }))?;
        // A kind is served a moment after it is established.
        let probe = || async { installations.create(&PostParams::default(), &installation).await.ok() };
        wait::eventually(START, probe, "the API server to serve KubeVirt's kinds").await?;
        let version = artifacts::kubevirt_version()?;
        let deployed =
            Patch::Merge(json!({"status": {"phase": "Deployed", "observedKubeVirtVersion": version}}));
        let patched = installations.patch_status(INSTALLATION, &PatchParams::default(), &deployed).await;
        patched.context("declaring KubeVirt deployed")?;
        self.start_virt_handler()
    }

    /// Starts the simulated node agents in this process, in the place of those there were. A bed that stays needs them from
    /// each process that takes it over (see [`Bed::attach`]).
    ///
    /// # Errors
    /// When their client cannot be made.
    pub fn start_virt_handler(&self) -> anyhow::Result<()> {
        let handler = self.client_as_user(HANDLER, &["system:masters"])?;
        *self.virt_handler() = Some(SimulatedVirtHandler::start(&handler)?);
        Ok(())
    }

    async fn define_kinds(&self) -> anyhow::Result<()> {
        let program = self.programs().kubevirt.context("KubeVirt was not built")?;
        let definitions = tokio::task::spawn_blocking(move || definitions(&program)).await??;
        let crds: Api<CustomResourceDefinition> = Api::all(self.admin()?);
        let create = definitions.iter().map(|crd| {
            let crds = crds.clone();
            async move {
                let name = crd.metadata.name.as_deref().unwrap_or_default();
                match crds.create(&PostParams::default(), crd).await {
                    // The client repeats a request whose connection ended, and the first one may have been done.
                    Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                    created => drop(created.with_context(|| format!("creating CRD {name}"))?),
                }
                let what = "KubeVirt's CRD to be established";
                wait::wait_for(&crds, name, START, what, super::objects::established).await
            }
        });
        futures::stream::iter(create).buffer_unordered(8).try_collect::<Vec<_>>().await.map(drop)
    }

    async fn virt_controller_account(&self) -> anyhow::Result<()> {
        let name = CONTROLLER.rsplit(':').next().unwrap_or_default();
        self.apply_objects([
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
            }),
        ])
        .await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin()?, NAMESPACE);
        let request: TokenRequest =
            serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": TOKEN_LIFE}}))?;
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let token = answer?.status.and_then(|status| status.token).context("the answer carries no token")?;
        let path = kubeconfig_path(&self.dir, Component::VirtController.name());
        let credential = Credential::Token(token).auth_info();
        let server =
            if self.options.second_api_server { self.second_server_url() } else { self.server_url() };
        kubeconfig::write(&path, &server, self.ca_pem(), credential, Some(NAMESPACE))
    }
}

/// KubeVirt's CRDs as its own program prints them, once per process: they are large.
fn definitions(program: &std::path::Path) -> anyhow::Result<&'static [CustomResourceDefinition]> {
    static DEFINITIONS: OnceLock<Vec<CustomResourceDefinition>> = OnceLock::new();
    if let Some(definitions) = DEFINITIONS.get() {
        return Ok(definitions);
    }
    let output = std::process::Command::new(program).arg("crds").output().context("running kubevirt crds")?;
    ensure!(output.status.success(), "kubevirt crds failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).context("reading KubeVirt's CRDs")?;
    let parsed = serde_saphyr::from_multiple(&text).context("parsing KubeVirt's CRDs")?;
    Ok(DEFINITIONS.get_or_init(|| parsed))
}
