//! What becomes of the lease of another holder, as the API server tells it: who waits for it need not ask.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};

use crate::client::with_deadline;

/// A watch of one lease. It may be missing, or stand still: then the lease is read as often as without it.
#[derive(Default)]
pub(super) struct Changes(Option<BoxStream<'static, kube::Result<WatchEvent<Lease>>>>);

impl Changes {
    /// Begins with what comes after this version, unless there is a watch.
    pub(super) async fn since(&mut self, api: &Api<Lease>, name: &str, version: &str, limit: Duration) {
        if self.0.is_some() || version.is_empty() {
            return;
        }
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        match with_deadline(limit, api.watch(&params, version)).await {
            Ok(stream) => self.0 = Some(stream.boxed()),
            Err(error) => tracing::debug!(name, %error, "lease is not watched"),
        }
    }

    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// The lease once it has changed. Never, where it was deleted or is not watched: the next read shows it.
    pub(super) async fn next(&mut self) -> Lease {
        while let Some(changes) = &mut self.0 {
            match changes.try_next().await {
                Ok(Some(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => return lease,
                Ok(Some(WatchEvent::Bookmark(_))) => {}
                Ok(Some(WatchEvent::Deleted(_) | WatchEvent::Error(_)) | None) | Err(_) => self.end(),
            }
        }
        std::future::pending().await
    }
}
