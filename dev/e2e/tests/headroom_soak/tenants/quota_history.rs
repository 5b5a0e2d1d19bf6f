//! Every version of a namespace's quotas, by watch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use sluice_e2e::tenant::{SOON, Tenant, amount, hard, used};
use sluice_engine::headroom::MARK;
use sluice_engine::{Amount, Quantity};
use sluice_testbed::wait;
use tokio::task::JoinHandle;

/// The versions of one quota without a gap.
type Run = Vec<ResourceQuota>;

/// Watches the quotas of a namespace.
pub struct QuotaHistory {
    quotas: Api<ResourceQuota>,
    runs: Arc<Mutex<BTreeMap<String, Vec<Run>>>>,
    watching: JoinHandle<()>,
}

/// All versions until [`QuotaHistory::end`].
pub struct SeenQuotas {
    runs: BTreeMap<String, Vec<Run>>,
}

/// An amount from its text.
pub fn exact(text: &str) -> Amount {
    Amount::from(Quantity::parse(text).unwrap())
}

impl QuotaHistory {
    /// Begins with the quotas as they are now.
    pub async fn of(tenant: &Tenant<'_>) -> Self {
        let runs = Arc::<Mutex<BTreeMap<String, Vec<Run>>>>::default();
        let watching = tokio::spawn(watch(tenant.quotas.clone(), Arc::clone(&runs)));
        let history = Self { quotas: tenant.quotas.clone(), runs, watching };
        history.until_current().await;
        history
    }

    async fn until_current(&self) {
        let current = || async {
            let live = self.quotas.list(&ListParams::default()).await.ok()?.items;
            let runs = self.runs.lock().unwrap();
            let seen = |quota: &ResourceQuota| {
                let last = runs.get(&quota.name_any())?.last()?.last()?;
                (last.resource_version() == quota.resource_version()).then_some(())
            };
            live.iter().all(|quota| seen(quota).is_some()).then_some(())
        };
        wait::eventually(SOON, current, "the watch of quotas to be current").await.unwrap();
    }

    /// Everything up to now.
    pub async fn end(self) -> SeenQuotas {
        self.until_current().await;
        self.watching.abort();
        SeenQuotas { runs: std::mem::take(&mut *self.runs.lock().unwrap()) }
    }
}

async fn watch(quotas: Api<ResourceQuota>, runs: Arc<Mutex<BTreeMap<String, Vec<Run>>>>) {
    let mut events = std::pin::pin!(watcher::watcher(quotas, watcher::Config::default()));
    while let Some(event) = events.next().await {
        let mut runs = runs.lock().unwrap();
        match event {
            // What happened since the last event is unknown: no two versions across it follow each other.
            Ok(Event::InitApply(quota)) => runs.entry(quota.name_any()).or_default().push(vec![quota]),
            Ok(Event::Apply(quota)) => {
                let all = runs.entry(quota.name_any()).or_default();
                match all.last_mut() {
                    Some(run) => run.push(quota),
                    None => all.push(vec![quota]),
                }
            }
            Ok(Event::Delete(quota)) => runs.entry(quota.name_any()).or_default().push(Vec::new()),
            Ok(Event::Init | Event::InitDone) | Err(_) => {}
        }
    }
}

impl SeenQuotas {
    fn versions<'a>(&'a self, quota: &str) -> impl Iterator<Item = &'a ResourceQuota> + use<'a> {
        self.runs[quota].iter().flatten()
    }

    fn successions<'a>(
        &'a self,
        quota: &str,
    ) -> impl Iterator<Item = (&'a ResourceQuota, &'a ResourceQuota)> + use<'a> {
        self.runs[quota].iter().flat_map(|run| run.windows(2).map(|two| (&two[0], &two[1])))
    }

    /// How often the quota was marked and raised.
    pub fn raises(&self, quota: &str) -> usize {
        self.successions(quota).filter(|(before, after)| !is_raised(before) && is_raised(after)).count()
    }

    /// No version enforces less than this.
    pub fn assert_never_below(&self, quota: &str, floor: &BTreeMap<String, String>) {
        for version in self.versions(quota) {
            let enforced = hard(version);
            for (key, least) in floor.iter().filter(|_| !enforced.is_empty()) {
                assert!(amount(&enforced, key) >= exact(least), "{key} below {least}: {version:#?}");
            }
        }
    }

    /// The spec was not written.
    pub fn assert_spec_untouched(&self, quota: &str) {
        let mut versions = self.versions(quota);
        let first = versions.next().unwrap();
        for version in versions {
            assert_eq!(version.spec, first.spec);
            assert_eq!(version.metadata.generation, first.metadata.generation);
        }
    }

    /// The most that any version counts as used.
    pub fn most_used(&self, quota: &str, key: &str) -> Amount {
        self.versions(quota)
            .map(used)
            .filter(|used| used.contains_key(key))
            .map(|used| amount(&used, key))
            .max()
            .unwrap_or_default()
    }

    /// By how much usage grew, each time that it did, while the quota was raised.
    pub fn growths_while_raised(&self, quota: &str, key: &str) -> Vec<Amount> {
        let both_raised =
            self.successions(quota).filter(|(before, after)| is_raised(before) && is_raised(after));
        both_raised
            .map(|(before, after)| amount(&used(after), key).saturating_sub(amount(&used(before), key)))
            .filter(|grown| *grown > Amount::default())
            .collect()
    }
}

fn is_raised(quota: &ResourceQuota) -> bool {
    hard(quota).contains_key(MARK)
}
