//! Reading the audit log.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::{Bed, START};
use crate::audit::AuditEvent;
use crate::wait;

impl Bed {
    /// All audit events of requests that were answered before this call, in the log's order; those of a second API
    /// server come after those of the first.
    ///
    /// The log is written in batches: a request with a unique path marks the place up to which
    /// it must have been written.
    ///
    /// # Errors
    /// When the bed has no audit log or it cannot be read.
    pub async fn audit_events(&self) -> anyhow::Result<Vec<AuditEvent>> {
        self.audit_events_with("").await
    }

    /// As [`Bed::audit_events`], but only those in whose text `word` occurs; the others are not even parsed.
    ///
    /// # Errors
    /// As [`Bed::audit_events`].
    pub async fn audit_events_with(&self, word: &str) -> anyhow::Result<Vec<AuditEvent>> {
        ensure!(self.options.audit, "this bed was started without an audit log");
        let mut events = read(&self.admin()?, &self.dir.join("logs/audit.log"), word).await?;
        if self.options.second_api_server {
            let second = self.at_second_server(&self.admin)?.client()?;
            events.extend(read(&second, &self.dir.join("logs/audit-2.log"), word).await?);
        }
        Ok(events)
    }
}

async fn read(client: &kube::Client, path: &Path, word: &str) -> anyhow::Result<Vec<AuditEvent>> {
    let marker = format!("/version?mark={:x}", crate::ports::random());
    let mark = http::Request::get(&marker).body(Vec::new())?;
    client.request_text(mark).await.context("marking the audit log")?;
    let probe = || async { fs::read_to_string(path).ok().filter(|text| text.contains(&marker)) };
    let text = wait::eventually(START, probe, "the marker in the audit log").await?;
    // The last line may be half written; everything before the marker is whole.
    Ok(text
        .lines()
        .filter(|line| line.contains(word))
        .filter_map(|line| AuditEvent::read(serde_json::from_str(line).ok()?))
        .collect())
}
