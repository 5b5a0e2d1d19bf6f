//! When things happened, as a watch shows them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Api;
use sluice_index::PodWire;
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, watch};
use sluice_testbed::wait;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A watch that notes when each pod was first seen without gates. Ends when it is dropped.
pub(super) struct Seen {
    moments: Arc<Mutex<HashMap<String, Instant>>>,
    changed: Arc<Notify>,
    _running: DropGuard,
}

impl Seen {
    /// Watches the pods that have this label.
    pub(super) async fn releases(client: kube::Client, label: &str) -> anyhow::Result<Self> {
        let (moments, changed) = (Arc::new(Mutex::new(HashMap::new())), Arc::new(Notify::new()));
        let stop = CancellationToken::new();
        let health = WatchHealth::new("pods");
        let (noted, told) = (Arc::clone(&moments), Arc::clone(&changed));
        let sink = move |event: Event<PodWire>| {
            let (Event::InitApply(pod) | Event::Apply(pod)) = event else { return };
            if pod.spec.scheduling_gates.is_empty() {
                let meta = &pod.metadata;
                let name = meta.name.as_deref().unwrap_or_default();
                let key = key(meta.namespace.as_deref().unwrap_or_default(), name);
                noted.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert_with(Instant::now);
                told.notify_one();
            }
        };
        let options = WatchOptions::default().labels(label);
        tokio::spawn(watch(Api::all(client), options, sink, health.clone(), stop.clone()));
        let seen = Self { moments, changed, _running: stop.drop_guard() };
        let synced = || async { health.is_synced().then_some(()) };
        wait::eventually(Duration::from_secs(20), synced, "the bench's own watch").await?;
        Ok(seen)
    }

    /// Waits until so many objects were seen; all moments by `namespace/name`.
    pub(super) async fn until(
        &self,
        count: usize,
        limit: Duration,
    ) -> anyhow::Result<HashMap<String, Instant>> {
        let enough = async {
            while self.count() < count {
                self.changed.notified().await;
            }
        };
        if tokio::time::timeout(limit, enough).await.is_err() {
            anyhow::bail!("after {limit:?} only {} of {count} were seen", self.count());
        }
        Ok(self.moments())
    }

    fn moments(&self) -> HashMap<String, Instant> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self) -> usize {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// An object's key.
pub(super) fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// How many per second, from the first to the last. NaN for less than two.
#[allow(clippy::cast_precision_loss)]
pub(super) fn rate<'m>(moments: impl Iterator<Item = &'m Instant> + Clone) -> f64 {
    let count = moments.clone().count();
    match (moments.clone().min(), moments.max()) {
        (Some(first), Some(last)) if count > 1 => (count - 1) as f64 / (*last - *first).as_secs_f64(),
        _ => f64::NAN,
    }
}
