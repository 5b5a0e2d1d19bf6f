//! What kubelets do for the pods of an installation's Deployments: a process runs as long as its Deployment asks for pods.
//! One stands for all replicas. The pods themselves are run by simulated nodes.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;
use sluice_testbed::{Bed, Program};

use crate::{Controller, Installation, Webhook};

/// So often it looks.
const LOOKS: Duration = Duration::from_millis(500);

/// Starts and ends the processes of an installation.
pub struct Kubelet<'b> {
    installation: Installation<'b>,
    controller: Option<Controller>,
    webhook: Option<Webhook>,
    deployments: Api<Deployment>,
}

impl<'b> Kubelet<'b> {
    /// Of this `installation`, whose operator runs already.
    ///
    /// # Errors
    /// When there is no client.
    pub fn of(bed: &Bed, installation: Installation<'b>) -> anyhow::Result<Self> {
        let deployments = Api::namespaced(bed.admin()?, &installation.options().namespace);
        Ok(Self { installation, controller: None, webhook: None, deployments })
    }

    /// Does so until it is dropped. What fails is said and tried again.
    pub async fn run(&mut self) {
        loop {
            if let Err(error) = self.look().await {
                eprintln!("kubelet: {error:#}; trying again");
            }
            tokio::time::sleep(LOOKS).await;
        }
    }

    async fn look(&mut self) -> anyhow::Result<()> {
        let parts = self.installation.options().naming.parts();
        let all = self.deployments.list(&ListParams::default()).await?.items;
        let asks = |name: &str| all.iter().any(|deployment| is_asking(deployment, name));

        let operates = self.installation.operator().is_ok_and(Program::is_running);
        if operates && !asks(parts.operator) {
            end(self.installation.operator()?).await;
        } else if !operates && asks(parts.operator) {
            self.installation.start_operator().await?;
        }
        let is_over = |program: &Program, name: &str| !program.is_running() || !asks(name);
        if let Some(old) = self.controller.take_if(|running| is_over(&running.program, parts.controller)) {
            end(&old.program).await;
        }
        if let Some(old) = self.webhook.take_if(|running| is_over(&running.program, parts.webhook)) {
            end(&old.program).await;
        }
        if self.controller.is_none() && asks(parts.controller) {
            self.controller = Some(self.installation.controller().await?);
        }
        if self.webhook.is_none() && asks(parts.webhook) {
            self.webhook = Some(self.installation.webhook().await?);
        }
        Ok(())
    }
}

fn is_asking(deployment: &Deployment, name: &str) -> bool {
    let metadata = &deployment.metadata;
    metadata.name.as_deref() == Some(name)
        && metadata.deletion_timestamp.is_none()
        && deployment.spec.replicas != Some(0)
}

async fn end(program: &Program) {
    program.terminate();
    program.wait().await;
}
