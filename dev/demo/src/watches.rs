//! What the acts about pods watch: pods, their quota, and what Sluice tells on them.

use std::time::Duration;

use futures::stream::select_all;
use kube::runtime::watcher;
use kube::{Api, Client};
use sluice_api::{
    ApplicationAwareClusterResourceQuota as ClusterQuota, ApplicationAwareResourceQuota as Quota,
};

use crate::board::Board;
use crate::follow::{Change, Updates, follow};
use crate::quota_line;
use crate::stage::View;
use crate::summary::summary;
use crate::table::{Style, table};

/// Watches pods, quotas and events of a namespace.
pub fn open(client: &Client, namespace: &str) -> Updates<Board> {
    let any = watcher::Config::default;
    let quotas = |board: &mut Board, _, change: Change<Quota>| board.quotas(change, quota_line::of_namespace);
    select_all([
        follow(Api::namespaced(client.clone(), namespace), any(), Board::pods),
        follow(Api::namespaced(client.clone(), namespace), any(), quotas),
        follow(Api::namespaced(client.clone(), namespace), any(), Board::events),
    ])
}

/// Watches a cluster quota, pods with this label, and events of these namespaces.
pub fn open_cluster(client: &Client, quota: &str, label: &str, namespaces: &[String]) -> Updates<Board> {
    let any = watcher::Config::default;
    let quotas =
        |board: &mut Board, _, change: Change<ClusterQuota>| board.quotas(change, quota_line::of_cluster);
    let of_name = any().fields(&format!("metadata.name={quota}"));
    let events = namespaces
        .iter()
        .map(|namespace| follow(Api::namespaced(client.clone(), namespace), any(), Board::events));
    select_all(events.chain([
        follow(Api::all(client.clone()), any().labels(label), Board::pods),
        follow(Api::all(client.clone()), of_name, quotas),
    ]))
}

impl View for Board {
    fn table(&self, now: Duration, style: Style) -> Vec<String> {
        table(self, now, style)
    }

    fn summary(&self) -> Option<String> {
        Some(summary(self))
    }
}
