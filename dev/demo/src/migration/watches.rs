//! What the act of the migration watches.

use std::time::Duration;

use super::files::NAMESPACE;
use super::passage::Passage;
use super::table::table;
use crate::listing::{Change, Listing};
use crate::stage::{Updates, View};
use crate::table::Style;
use futures::stream::{StreamExt as _, select_all};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::api::events::v1;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};

type Watch<K> = watcher::Result<Event<K>>;

/// What one of the watches tells.
#[expect(clippy::large_enum_variant, reason = "an update is moved once, from a watch to the board")]
pub enum Update {
    /// A native quota.
    Quota(Watch<ResourceQuota>),
    /// A pod.
    Pod(Watch<Pod>),
    /// A VM.
    Vm(Watch<DynamicObject>),
    /// A migration.
    Migration(Watch<DynamicObject>),
    /// An event.
    Told(Watch<v1::Event>),
}

/// Watches the act's namespace, which need not be there yet.
pub fn open(client: &Client) -> Updates<Update> {
    let any = watcher::Config::default;
    let quotas = watcher(Api::namespaced(client.clone(), NAMESPACE), any()).default_backoff();
    let events = watcher(Api::namespaced(client.clone(), NAMESPACE), any()).default_backoff();
    let pods = watcher(Api::namespaced(client.clone(), NAMESPACE), any()).default_backoff();
    let of_kubevirt = |kind| {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", kind));
        watcher(Api::namespaced_with(client.clone(), NAMESPACE, &kind), any()).default_backoff()
    };
    select_all([
        quotas.map(Update::Quota).boxed(),
        pods.map(Update::Pod).boxed(),
        of_kubevirt("VirtualMachineInstance").map(Update::Vm).boxed(),
        of_kubevirt("VirtualMachineInstanceMigration").map(Update::Migration).boxed(),
        events.map(Update::Told).boxed(),
    ])
}

/// The board of the act, and the lists that are on their way to it.
#[derive(Debug, Default)]
pub struct Watched {
    /// What was observed.
    pub passage: Passage,
    quotas: Listing<ResourceQuota>,
    pods: Listing<Pod>,
    vms: Listing<DynamicObject>,
    migrations: Listing<DynamicObject>,
    events: Listing<v1::Event>,
    complete: [bool; 5],
}

impl Watched {
    /// Whether every watch has begun: what happens from now on will be seen.
    pub const fn is_complete(&self) -> bool {
        let [a, b, c, d, e] = self.complete;
        a && b && c && d && e
    }
}

impl View for Watched {
    type Update = Update;

    fn take(&mut self, at: Duration, update: Update) -> Result<Vec<String>, String> {
        let passage = &mut self.passage;
        let [quotas, pods, vms, migrations, events] = &mut self.complete;
        Ok(match update {
            Update::Quota(event) => {
                change(&mut self.quotas, event, quotas)?.map(|change| passage.quotas(at, change))
            }
            Update::Pod(event) => change(&mut self.pods, event, pods)?.map(|change| passage.pods(at, change)),
            Update::Vm(event) => change(&mut self.vms, event, vms)?.map(|change| passage.vms(change)),
            Update::Migration(event) => {
                change(&mut self.migrations, event, migrations)?.map(|change| passage.migrations(change))
            }
            Update::Told(event) => {
                change(&mut self.events, event, events)?.map(|change| passage.events(change))
            }
        }
        .unwrap_or_default())
    }

    fn table(&self, now: Duration, style: Style) -> Vec<String> {
        table(&self.passage, now, style)
    }
}

fn change<K>(
    listing: &mut Listing<K>,
    event: Watch<K>,
    complete: &mut bool,
) -> Result<Option<Change<K>>, String> {
    let change = listing.take(event.map_err(|error| error.to_string())?);
    *complete |= change.is_some();
    Ok(change)
}
