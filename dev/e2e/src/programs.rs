//! Sluice's programs: the processes, and where they answer.

use std::time::Duration;

use sluice_testbed::{Program, wait};

use crate::metrics::Samples;

/// How long the API server may take until it enforces the admission policy.
pub(crate) const LOCKING: Duration = Duration::from_secs(90);

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
