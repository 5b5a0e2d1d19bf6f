//! Every version of some objects, by watch.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "helpers of tests, which fail by panicking"
)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use sluice_testbed::wait;
use tokio::task::JoinHandle;

use crate::tenant::SOON;

/// For each object its versions, in runs without a gap.
type Runs<K> = BTreeMap<String, Vec<Vec<K>>>;

/// Watches the objects of a kind, in one namespace or all.
pub struct History<K> {
    api: Api<K>,
    runs: Arc<Mutex<Runs<K>>>,
    watching: JoinHandle<()>,
}

/// All versions until [`History::end`].
pub struct Seen<K> {
    runs: Runs<K>,
}

impl<K> History<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Begins with the objects as they are now.
    pub async fn of(api: Api<K>) -> Self {
        let runs = Arc::<Mutex<Runs<K>>>::default();
        let watching = tokio::spawn(watch(api.clone(), Arc::clone(&runs)));
        let history = Self { api, runs, watching };
        history.until_current().await;
        history
    }

    async fn until_current(&self) {
        let current = || async {
            let live = self.api.list(&ListParams::default()).await.ok()?.items;
            let runs = self.runs.lock().unwrap();
            let seen = |object: &K| {
                let last = runs.get(&object.name_any())?.last()?.last()?;
                (last.resource_version() == object.resource_version()).then_some(())
            };
            live.iter().all(|object| seen(object).is_some()).then_some(())
        };
        wait::eventually(SOON, current, "a watch to be current").await.unwrap();
    }

    /// Everything up to now.
    pub async fn end(self) -> Seen<K> {
        self.until_current().await;
        self.watching.abort();
        Seen { runs: std::mem::take(&mut *self.runs.lock().unwrap()) }
    }
}

async fn watch<K>(api: Api<K>, runs: Arc<Mutex<Runs<K>>>)
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        let mut runs = runs.lock().unwrap();
        match event {
            // What happened since the last event is unknown: no two versions across it follow each other.
            Ok(Event::InitApply(object)) => runs.entry(object.name_any()).or_default().push(vec![object]),
            Ok(Event::Apply(object)) => {
                let all = runs.entry(object.name_any()).or_default();
                match all.last_mut() {
                    Some(run) => run.push(object),
                    None => all.push(vec![object]),
                }
            }
            Ok(Event::Delete(object)) => runs.entry(object.name_any()).or_default().push(Vec::new()),
            Ok(Event::Init | Event::InitDone) | Err(_) => {}
        }
    }
}

impl<K> Seen<K> {
    /// The versions of one object.
    pub fn versions<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a K> + use<'a, K> {
        self.runs[name].iter().flatten()
    }

    /// Versions of one object that follow each other.
    pub fn successions<'a>(&'a self, name: &str) -> impl Iterator<Item = (&'a K, &'a K)> + use<'a, K> {
        self.runs[name].iter().flat_map(|run| run.windows(2).map(|two| (&two[0], &two[1])))
    }
}
