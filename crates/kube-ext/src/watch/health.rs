//! How current a watch is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch as signal;
use tokio::time::Instant;

use crate::health::CheckResult;

/// Freshness of one watch; written by [`super::watch`], read by readiness checks and metrics. Clones share the state.
#[derive(Debug, Clone)]
pub struct WatchHealth {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    kind: String,
    synced: signal::Sender<bool>,
    deliveries: AtomicU64,
    lists: AtomicU64,
    failures: AtomicU64,
    last_seen: Mutex<Instant>,
    last_error: Mutex<Option<String>>,
}

impl WatchHealth {
    /// For the watch of `kind`; the name appears in logs and in readiness.
    pub fn new(kind: impl Into<String>) -> Self {
        Self {
            shared: Arc::new(Shared {
                kind: kind.into(),
                synced: signal::Sender::new(false),
                deliveries: AtomicU64::new(0),
                lists: AtomicU64::new(0),
                failures: AtomicU64::new(0),
                last_seen: Mutex::new(Instant::now()),
                last_error: Mutex::new(None),
            }),
        }
    }

    /// What is watched.
    pub fn kind(&self) -> &str {
        &self.shared.kind
    }

    /// A complete list has been seen since the process started.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits until a complete list has been seen, and everything of it was handed on.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // The sender is shared by this very value, so it cannot go away meanwhile.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Time since the last list, event or bookmark (since creation if there was none). The server sends a bookmark about
    /// once a minute, so more than two minutes mean that the view is behind.
    pub fn staleness(&self) -> Duration {
        self.shared.last_seen.lock().elapsed()
    }

    /// Complete lists so far; each after the first is a relist.
    pub fn lists(&self) -> u64 {
        self.shared.lists.load(Relaxed)
    }

    /// Failed lists and watches so far.
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Relaxed)
    }

    /// A readiness check: fails until the first list is complete, with the last error if there is one.
    pub fn check(&self) -> CheckResult {
        if self.is_synced() {
            return Ok(());
        }
        let error = self.shared.last_error.lock();
        Err(match error.as_deref() {
            Some(error) => format!("first list not complete: {error}"),
            None => "first list not complete".to_owned(),
        })
    }

    pub(super) fn deliveries(&self) -> u64 {
        self.shared.deliveries.load(Relaxed)
    }

    pub(super) fn delivered(&self) {
        self.shared.deliveries.fetch_add(1, Relaxed);
        self.seen();
    }

    pub(super) fn listed(&self) {
        self.shared.lists.fetch_add(1, Relaxed);
        self.seen();
        *self.shared.last_error.lock() = None;
        self.shared.synced.send_replace(true);
    }

    pub(super) fn failed(&self, error: &kube::Error) {
        self.shared.failures.fetch_add(1, Relaxed);
        *self.shared.last_error.lock() = Some(error.to_string());
    }

    fn seen(&self) {
        *self.shared.last_seen.lock() = Instant::now();
    }
}
