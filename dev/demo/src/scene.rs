//! What acts do on a cluster.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_api::ApplicationAwareResourceQuota;
use sluice_testbed::wait;

use crate::board::State;
use crate::examples::{self, Example};
use crate::signals::Signals;

/// Deadline of everything that should take milliseconds.
pub const SOON: Duration = Duration::from_secs(60);

/// Where an act plays.
#[derive(Clone)]
pub struct Scene {
    /// Who plays.
    pub client: Client,
    /// What the act's files call the namespace, or what the names of all their namespaces begin with.
    pub written: &'static str,
    /// The name that is used instead.
    pub name: String,
    /// Whether there are nodes on which released pods surely start at once.
    pub nodes: bool,
    /// Time to read after each step.
    pub pace: Duration,
    /// What ends the act.
    pub signals: Signals,
}

impl Scene {
    /// The same for an act with other files.
    pub fn of(&self, written: &'static str) -> Self {
        let name = if self.name == self.written { written.to_owned() } else { self.name.clone() };
        Self { written, name, ..self.clone() }
    }

    /// The states that a released pod reaches here.
    pub const fn free(&self) -> &'static [State] {
        if self.nodes { &[State::Running] } else { &[State::Released, State::Running] }
    }

    /// Applies files.
    ///
    /// # Errors
    /// When the API server refuses an object or does not answer.
    pub async fn apply(&self, files: &[Example]) -> anyhow::Result<()> {
        for file in files {
            examples::apply(&self.client, *file, (self.written, &self.name)).await?;
        }
        Ok(())
    }

    /// Raises a limit.
    ///
    /// # Errors
    /// When the API server refuses that.
    pub async fn raise(&self, quota: &str, key: &str, amount: &str) -> anyhow::Result<()> {
        let quotas: Api<ApplicationAwareResourceQuota> = Api::namespaced(self.client.clone(), &self.name);
        let raise = json!({"spec": {"hard": {key: amount}}});
        let raised = quotas.patch(quota, &PatchParams::default(), &Patch::Merge(raise)).await;
        raised.map(drop).context("raising the quota")
    }

    /// Waits for the service account of a namespace: its pods are refused until it is there.
    ///
    /// # Errors
    /// When it is not there in time.
    pub async fn account(&self, namespace: &str) -> anyhow::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let there =
            wait::wait_for(&accounts, "default", SOON, "the default service account", |a| a.is_some());
        there.await.map(drop)
    }
}
