//! How current a watch is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch as signal;
use tokio::time::Instant;

use super::WentBack;
use crate::health::CheckResult;
use crate::retry::{Failure, classify, words};

/// Bookmarks come about once a minute. A watch of which nothing was heard for so long lists again.
pub(super) const SILENT: Duration = Duration::from_secs(180);
/// A connection is given up after three minutes of silence, and tried anew within half a minute.
const STUCK: Duration = Duration::from_secs(600);

/// Freshness of one watch; written by [`super::watch`], read by readiness checks and metrics. Clones share the state.
#[derive(Debug, Clone)]
pub struct WatchHealth {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    kind: String,
    synced: signal::Sender<bool>,
    is_served: Mutex<Option<bool>>,
    deliveries: AtomicU64,
    lists: AtomicU64,
    failures: AtomicU64,
    /// How far everything was handed on; none while a list is under way.
    version: signal::Sender<Option<u64>>,
    /// The latest version that was ever known.
    latest: AtomicU64,
    /// Lists that were asked for, and the last of them that was begun and completed since.
    wanted: signal::Sender<u64>,
    served: signal::Sender<u64>,
    last_seen: Mutex<Instant>,
    last_active: Mutex<Instant>,
    last_error: Mutex<Option<String>>,
    interruption: signal::Sender<Option<(Failure, String)>>,
    /// What showed that the store is another one, if not the watch itself.
    restored: signal::Sender<Option<(u64, u64)>>,
}

impl WatchHealth {
    /// For the watch of `kind`; the name appears in logs and in readiness.
    pub fn new(kind: impl Into<String>) -> Self {
        Self {
            shared: Arc::new(Shared {
                kind: kind.into(),
                synced: signal::Sender::new(false),
                is_served: Mutex::new(None),
                deliveries: AtomicU64::new(0),
                lists: AtomicU64::new(0),
                failures: AtomicU64::new(0),
                version: signal::Sender::new(None),
                latest: AtomicU64::new(0),
                wanted: signal::Sender::new(0),
                served: signal::Sender::new(0),
                last_seen: Mutex::new(Instant::now()),
                last_active: Mutex::new(Instant::now()),
                last_error: Mutex::new(None),
                interruption: signal::Sender::new(None),
                restored: signal::Sender::new(None),
            }),
        }
    }

    pub fn kind(&self) -> &str {
        &self.shared.kind
    }

    /// A complete list has been seen since the process started.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Whether the API server serves the kind, as its last list said; `None` before the first one.
    pub fn is_served(&self) -> Option<bool> {
        *self.shared.is_served.lock()
    }

    pub(super) fn set_served(&self, is_served: bool) {
        *self.shared.is_served.lock() = Some(is_served);
    }

    /// Waits until a complete list has been seen, and everything of it was handed on.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // The sender is shared by this very value, so it cannot go away meanwhile.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// The resource version up to which everything was handed on. None while a list is under way, or if the server's
    /// versions are not numbers.
    pub fn version(&self) -> Option<u64> {
        *self.shared.version.borrow()
    }

    /// Waits until everything up to this version was handed on.
    pub async fn reached(&self, version: u64) {
        let mut current = self.shared.version.subscribe();
        // As in `synced`.
        let _ = current.wait_for(|current| current.is_some_and(|current| current >= version)).await;
    }

    /// Asks for a list that begins from now on, and waits until it was handed on.
    pub async fn list_again(&self) {
        let mut number = 0;
        self.shared.wanted.send_modify(|wanted| {
            *wanted += 1;
            number = *wanted;
        });
        let mut served = self.shared.served.subscribe();
        let _ = served.wait_for(|served| *served >= number).await;
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

    /// Why nothing is heard now: the last list or watch has failed, and no other one has begun yet. `None`: changes come.
    pub fn interruption(&self) -> Option<(Failure, String)> {
        self.shared.interruption.borrow().clone()
    }

    /// Waits until [`Self::unread`] may say something else than at the time of the call.
    pub fn unread_changed(&self) -> impl Future<Output = ()> + use<> {
        let (mut interruption, mut synced) =
            (self.shared.interruption.subscribe(), self.shared.synced.subscribe());
        async move {
            tokio::select! {
                _ = interruption.changed() => {}
                _ = synced.changed() => {}
            }
        }
    }

    /// Why what is known may not be how it is: no list was ever complete, or lists and watches are refused now. What time
    /// alone may cure, as an API server that does not answer, is no reason.
    pub fn unread(&self) -> Option<String> {
        if !self.is_synced() {
            return self.check().err();
        }
        let refused = self.interruption().filter(|(failure, _)| *failure == Failure::Forbidden);
        refused.map(|(_, words)| words)
    }

    /// A readiness check.
    ///
    /// # Errors
    /// Until the first list is complete, and while nothing is heard for three minutes; with the last error if there is one.
    pub fn check(&self) -> CheckResult {
        let silent = self.staleness();
        let missing = if !self.is_synced() {
            "first list not complete".to_owned()
        } else if silent > SILENT {
            format!("nothing heard for {} s", silent.as_secs())
        } else {
            return Ok(());
        };
        let error = self.shared.last_error.lock();
        Err(error.as_ref().map_or_else(|| missing.clone(), |error| format!("{missing}: {error}")))
    }

    /// A liveness check. An API server that does not answer is no reason for a restart.
    ///
    /// # Errors
    /// When the watch has neither heard nor tried anything for ten minutes, so that a restart would help.
    pub fn alive(&self) -> CheckResult {
        let idle = self.shared.last_active.lock().elapsed();
        if idle > STUCK { Err(format!("nothing heard or tried for {} s", idle.as_secs())) } else { Ok(()) }
    }

    pub(super) fn deliveries(&self) -> u64 {
        self.shared.deliveries.load(Relaxed)
    }

    pub(super) fn delivered(&self) {
        self.shared.deliveries.fetch_add(1, Relaxed);
        self.seen();
    }

    /// Waits until a list is asked for that is not served yet.
    pub(super) async fn list_wanted(&self) {
        let served = *self.shared.served.borrow();
        self.list_wanted_since(served).await;
    }

    /// Pauses, unless a list is asked for.
    pub(super) async fn rest(&self, wait: Duration) {
        let wanted = *self.shared.wanted.borrow();
        let _ = tokio::time::timeout(wait, self.list_wanted_since(wanted)).await;
    }

    async fn list_wanted_since(&self, number: u64) {
        let mut wanted = self.shared.wanted.subscribe();
        let _ = wanted.wait_for(|wanted| *wanted > number).await;
    }

    /// A list or a watch is asked for.
    pub(super) fn tries(&self) {
        *self.shared.last_active.lock() = Instant::now();
    }

    /// A list begins; the number goes to [`Self::listed`].
    pub(super) fn listing(&self) -> u64 {
        self.shared.version.send_replace(None);
        *self.shared.wanted.borrow()
    }

    /// Everything up to this version was handed on.
    pub(super) fn at(&self, version: &str) {
        let version = version.parse().ok();
        self.shared.latest.fetch_max(version.unwrap_or(0), Relaxed);
        self.shared.version.send_replace(version);
    }

    /// Whether a list that ended with this version is of an earlier store than what is known. A list asks for the most
    /// recent state, so its version is not earlier than any that was handed out before it.
    pub(super) fn went_back_to(&self, listed: &str) -> Option<WentBack> {
        let (from, to) = (self.shared.latest.load(Relaxed), listed.parse().ok()?);
        (to < from).then_some(WentBack { from, to })
    }

    /// An answer had an object in the version `to` after it was known in the version `from`: the store is another one, and
    /// the watch ends.
    pub fn answered_with_earlier(&self, from: u64, to: u64) {
        self.shared.restored.send_replace(Some((from, to)));
    }

    /// Returns when an answer showed that the store is another one.
    pub(super) async fn other_store(&self) -> WentBack {
        let mut restored = self.shared.restored.subscribe();
        // As in `synced`.
        let found = restored.wait_for(Option::is_some).await.map(|found| *found);
        let (from, to) = found.ok().flatten().unwrap_or_default();
        WentBack { from, to }
    }

    pub(super) fn listed(&self, number: u64) {
        self.shared.lists.fetch_add(1, Relaxed);
        self.seen();
        *self.shared.last_error.lock() = None;
        self.shared.synced.send_replace(true);
        self.shared.served.send_replace(number);
    }

    /// A watch has begun.
    pub(super) fn follows(&self) {
        self.shared.interruption.send_replace(None);
    }

    pub(super) fn failed(&self, error: &kube::Error) {
        self.shared.failures.fetch_add(1, Relaxed);
        *self.shared.last_error.lock() = Some(words(error));
        let failed = (classify(error), words(error));
        self.shared.interruption.send_modify(|known| {
            // That it is not reached now does not say that it may be read again.
            let is_refused = known.as_ref().is_some_and(|(before, _)| *before == Failure::Forbidden);
            if !(is_refused && failed.0.is_transient()) {
                *known = Some(failed);
            }
        });
    }

    fn seen(&self) {
        let now = Instant::now();
        *self.shared.last_seen.lock() = now;
        *self.shared.last_active.lock() = now;
    }
}
