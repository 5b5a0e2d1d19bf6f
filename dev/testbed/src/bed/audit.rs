//! Reading the audit log.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::Bed;
use crate::wait;

impl Bed {
    /// All audit events of requests that were answered before this call, in the log's order.
    ///
    /// The log is written in batches: a request with a unique path marks the place up to which
    /// it must have been written.
    ///
    /// # Errors
    /// When the bed has no audit log or it cannot be read.
    pub async fn audit_events(&self) -> anyhow::Result<Vec<serde_json::Value>> {
        ensure!(self.options.audit, "this bed was started without an audit log");
        let marker = format!("/version?mark={:x}", crate::ports::random());
        self.admin()?
            .request_text(http::Request::get(&marker).body(Vec::new())?)
            .await
            .context("marking the audit log")?;
        let path = self.dir.join("logs/audit.log");
        let probe = || async { fs::read_to_string(&path).ok().filter(|text| text.contains(&marker)) };
        let text = wait::eventually(Duration::from_secs(15), probe, "the marker in the audit log").await?;
        // The last line may be half written; everything before the marker is whole.
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}
