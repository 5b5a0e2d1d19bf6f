//! Sluice beside a control plane.

use sluice_testbed::Bed;

use crate::installation::{Installation, Setup};
use crate::programs::{Controller, Webhook};

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
