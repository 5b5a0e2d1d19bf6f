//! What the acts about pods watch: pods, their quota, and what Sluice tells on them.

use std::time::Duration;

use futures::stream::{StreamExt as _, select_all};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use sluice_api::{ApplicationAwareClusterResourceQuota, ApplicationAwareResourceQuota, names};

use crate::board::Board;
use crate::listing::Change;
use crate::quota_line;
use crate::stage::{Updates, View};
use crate::table::{Style, table};

type Watch<K> = watcher::Result<Event<K>>;

/// What one of the watches tells.
#[expect(clippy::large_enum_variant, reason = "an update is moved once, from a watch to the board")]
pub enum Update {
    /// A pod.
    Pod(Watch<Pod>),
    /// The quota.
    Quota(Watch<ApplicationAwareResourceQuota>),
    /// The cluster quota.
    ClusterQuota(Watch<ApplicationAwareClusterResourceQuota>),
    /// An event.
    Told(Watch<v1::Event>),
}

/// Watches pods, quotas and events of a namespace, which need not be there yet.
pub fn open(client: &Client, namespace: &str) -> Updates<Update> {
    let any = watcher::Config::default;
    let pods = watcher(Api::namespaced(client.clone(), namespace), any()).default_backoff();
    let quotas = watcher(Api::namespaced(client.clone(), namespace), any()).default_backoff();
    let events = watcher(Api::namespaced(client.clone(), namespace), any()).default_backoff();
    select_all([
        pods.map(Update::Pod).boxed(),
        quotas.map(Update::Quota).boxed(),
        events.map(Update::Told).boxed(),
    ])
}

/// Watches a cluster quota, pods with this label, and events of these namespaces, none of which need to be there yet.
pub fn open_cluster(client: &Client, quota: &str, label: &str, namespaces: &[String]) -> Updates<Update> {
    let any = watcher::Config::default;
    let pods = watcher(Api::all(client.clone()), any().labels(label)).default_backoff();
    let of_name = any().fields(&format!("metadata.name={quota}"));
    let quotas = watcher(Api::all(client.clone()), of_name).default_backoff();
    let events = namespaces.iter().map(|namespace| {
        let events = watcher(Api::namespaced(client.clone(), namespace), any()).default_backoff();
        events.map(Update::Told).boxed()
    });
    let others = [pods.map(Update::Pod).boxed(), quotas.map(Update::ClusterQuota).boxed()];
    select_all(events.chain(others))
}

impl View for Board {
    type Update = Update;

    fn take(&mut self, at: Duration, update: Update) -> Result<Vec<String>, String> {
        Ok(match update {
            Update::Pod(Ok(event)) => match self.listing.take(event) {
                Some(Change::All(pods)) => self.listed(at, &pods),
                Some(Change::Is(pod)) => self.pod(at, &pod).into_iter().collect(),
                Some(Change::Gone(pod)) => {
                    self.gone(at, &pod.metadata.uid.unwrap_or_default()).into_iter().collect()
                }
                None => Vec::new(),
            },
            Update::Quota(Ok(Event::Apply(quota) | Event::InitApply(quota))) => {
                told_quota(self, quota_line::of_namespace(&quota))
            }
            Update::ClusterQuota(Ok(Event::Apply(quota) | Event::InitApply(quota))) => {
                told_quota(self, quota_line::of_cluster(&quota))
            }
            Update::Told(Ok(Event::Apply(event) | Event::InitApply(event))) => {
                told(self, &event).into_iter().collect()
            }
            Update::Quota(Ok(_)) | Update::ClusterQuota(Ok(_)) | Update::Told(Ok(_)) => Vec::new(),
            Update::Pod(Err(error))
            | Update::Quota(Err(error))
            | Update::ClusterQuota(Err(error))
            | Update::Told(Err(error)) => {
                return Err(error.to_string());
            }
        })
    }

    fn table(&self, now: Duration, style: Style) -> Vec<String> {
        table(self, now, style)
    }
}

fn told_quota(board: &mut Board, line: Option<String>) -> Vec<String> {
    let line = line.and_then(|line| board.quota(line));
    line.map(|line| format!("{:<20} {line}", "quota")).into_iter().collect()
}

/// What Sluice, and no other component, tells on a pod.
fn told(board: &mut Board, event: &v1::Event) -> Option<String> {
    if event.reporting_controller.as_deref() != Some(names::EVENT_COMPONENT) {
        return None;
    }
    let regarding = event.regarding.as_ref().filter(|object| object.kind.as_deref() == Some("Pod"))?;
    board.told(regarding.uid.as_deref()?, event.note.as_deref()?)
}
