//! Sluice's programs beside a control plane.

use sluice_testbed::{Bed, Program, wait};

use crate::installation::{Installation, LOCKING, Setup};
use crate::metrics::Samples;

/// A running controller.
pub struct Controller {
    /// The process.
    pub program: Program,
    /// Where it answers probes and metrics.
    pub admin: String,
}

/// A running webhook.
pub struct Webhook {
    /// The process.
    pub program: Program,
    /// Where it answers probes and metrics.
    pub admin: String,
}

impl Webhook {
    /// Waits until it has seen the admission policies of head-room in force at every API server: before, it makes no room.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn until_proven(&self) -> anyhow::Result<()> {
        let proven = || async {
            let samples = Samples::of(&self.admin).await.ok()?;
            let all = samples.sum("sluice_headroom_api_servers", &[])?;
            let proven = samples.sum("sluice_headroom_api_servers_proven", &[])?;
            (all > 0.0 && proven == all).then_some(())
        };
        let what = format!("{} to have proven the admission policies", self.program.name());
        wait::eventually(LOCKING, proven, &what).await
    }
}

/// Sluice on a bed: its objects, one operator, one controller and one webhook.
pub struct Running<'b> {
    /// The control plane.
    pub bed: &'b Bed,
    /// Sluice's objects, and the operator.
    pub installation: Installation<'b>,
    /// The one controller.
    pub controller: Controller,
    /// The one webhook.
    pub webhook: Webhook,
}

impl<'b> Running<'b> {
    /// Applies, and starts one controller and one webhook; returns when both are ready and pods are gated.
    ///
    /// # Errors
    /// When something does not become ready.
    pub async fn on(bed: &'b Bed, setup: Setup) -> anyhow::Result<Self> {
        let installation = Installation::apply(bed, setup).await?;
        let controller = installation.controller().await?;
        let webhook = installation.webhook().await?;
        installation.until_gating().await?;
        installation.until_guarded().await?;
        webhook.until_proven().await?;
        Ok(Self { bed, installation, controller, webhook })
    }

    /// From now on nothing that is deleted is put back. The operator's lease is given back.
    ///
    /// # Errors
    /// When there is no operator.
    pub async fn end_operator(&self) -> anyhow::Result<()> {
        let operator = self.installation.operator()?;
        operator.terminate();
        operator.wait().await;
        Ok(())
    }

    /// Kills what runs of Sluice.
    ///
    /// # Errors
    /// When there is no operator.
    pub async fn kill_all(&self) -> anyhow::Result<()> {
        let operator = self.installation.operator()?;
        for program in [&self.controller.program, &self.webhook.program, operator] {
            program.kill();
            program.wait().await;
        }
        Ok(())
    }
}
