//! When things happened, as a watch shows them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::Api;
use sluice_index::PodWire;
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, watch};
use sluice_testbed::wait;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

/// By `namespace/name`.
type Moments = HashMap<String, Instant>;

/// A watch that notes when each pod was first seen without gates. Ends when it is dropped.
pub(super) struct Seen {
    moments: Receiver<Moments>,
    _running: DropGuard,
}

impl Seen {
    /// Watches the pods that have this label.
    pub(super) async fn releases(client: kube::Client, label: &str) -> anyhow::Result<Self> {
        let noted = Sender::new(Moments::new());
        let (stop, health, moments) = (CancellationToken::new(), WatchHealth::new("pods"), noted.subscribe());
        let sink = move |event: Event<PodWire>| {
            let (Event::InitApply(pod) | Event::Apply(pod)) = event else { return };
            if pod.spec.scheduling_gates.is_empty() {
                let [namespace, name] =
                    [pod.metadata.namespace, pod.metadata.name].map(Option::unwrap_or_default);
                let now = Instant::now();
                noted.send_modify(|moments| _ = moments.entry(key(&namespace, &name)).or_insert(now));
            }
        };
        let options = WatchOptions::default().labels(label);
        tokio::spawn(watch(Api::all(client), options, sink, health.clone(), stop.clone()));
        let seen = Self { moments, _running: stop.drop_guard() };
        let synced = || async { health.is_synced().then_some(()) };
        wait::eventually(Duration::from_secs(20), synced, "the bench's own watch").await?;
        Ok(seen)
    }

    /// Waits until so many pods were seen; all moments.
    pub(super) async fn until(&self, count: usize, limit: Duration) -> anyhow::Result<Moments> {
        let mut moments = self.moments.clone();
        let enough = timeout(limit, moments.wait_for(|moments| moments.len() >= count)).await;
        let seen = || format!("after {limit:?} only {} of {count} were seen", self.moments.borrow().len());
        Ok(enough.with_context(seen)?.context("the bench's own watch ended")?.clone())
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
