//! Applying manifests and calling kubectl.

use std::ffi::OsStr;
use std::process::Output;

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, discovery};
use serde_json::Value;

use super::{Bed, START};
use crate::wait;

/// Field manager of what the bed applies.
const MANAGER: &str = "sluice-testbed";

impl Bed {
    /// Applies (server-side, forced) all documents of a YAML or JSON text as the administrator,
    /// in order; returns when its CRDs are established.
    ///
    /// # Errors
    /// When the text cannot be parsed or the API server refuses an object.
    pub async fn apply(&self, manifests: &str) -> anyhow::Result<()> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(manifests).context("parsing the manifests")?;
        self.apply_objects(documents).await
    }

    /// As [`Bed::apply`], for objects; a `v1` `List` stands for its items.
    ///
    /// # Errors
    /// When the API server refuses an object.
    pub async fn apply_objects(&self, objects: impl IntoIterator<Item = Value>) -> anyhow::Result<()> {
        let client = self.admin()?;
        for object in objects {
            match object.get("items").and_then(Value::as_array) {
                Some(items) => {
                    for item in items {
                        apply_one(&client, item).await?;
                    }
                }
                None if object.is_null() => {}
                None => apply_one(&client, &object).await?,
            }
        }
        Ok(())
    }

    /// Runs kubectl as the administrator.
    ///
    /// # Errors
    /// When it cannot be started; its own failure is in the output's status.
    pub async fn kubectl<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Output> {
        self.kubectl_as(&self.admin, args).await
    }

    /// Runs kubectl as this account.
    ///
    /// # Errors
    /// When it cannot be started; its own failure is in the output's status.
    pub async fn kubectl_as<A: AsRef<OsStr>>(
        &self,
        identity: &super::Identity,
        args: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Output> {
        let mut command = tokio::process::Command::new(self.programs().kubernetes);
        command.arg("kubectl").args(args).kill_on_drop(true).stdin(std::process::Stdio::null());
        command.env("KUBECONFIG", identity.kubeconfig()).env("KUBECACHEDIR", self.dir.join("kubectl-cache"));
        command.output().await.context("running kubectl")
    }
}

async fn apply_one(client: &Client, value: &Value) -> anyhow::Result<()> {
    let object: DynamicObject =
        serde_json::from_value(value.clone()).context("an object without apiVersion and kind")?;
    let types = object.types.clone().context("an object without apiVersion and kind")?;
    let name =
        object.metadata.name.clone().with_context(|| format!("a {} without metadata.name", types.kind))?;
    let gvk = GroupVersionKind::try_from(&types)?;
    let what = format!("{} {name}", types.kind);
    // A CRD is served a moment after it is established.
    let probe = || async { discovery::pinned_kind(client, &gvk).await.ok() };
    let found = wait::eventually(START, probe, &format!("the API server to serve {gvk:?}")).await;
    let (resource, capabilities) = found.with_context(|| format!("applying {what}"))?;
    let api: Api<DynamicObject> = match (capabilities.scope, &object.metadata.namespace) {
        (discovery::Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (discovery::Scope::Namespaced, Some(namespace)) => {
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        (discovery::Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
    };
    let applied = api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(value)).await;
    applied.with_context(|| format!("applying {what}"))?;
    if types.kind == "CustomResourceDefinition" {
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        wait::wait_for(&crds, &name, START, "the CRD to be established", established).await?;
    }
    Ok(())
}

pub(super) fn established(crd: Option<&CustomResourceDefinition>) -> bool {
    let conditions = crd.and_then(|crd| crd.status.as_ref()).and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Established" && c.status == "True"))
}
