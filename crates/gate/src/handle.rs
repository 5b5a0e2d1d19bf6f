//! The gate that the tasks of a process share: the state behind its lock, and what is told when it changes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use sluice_engine::NamespacePattern;
use sluice_index::{Aaqs, DeviceClasses, KubeVirts, ViewKey};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::watch::WatchHealth;
use tokio::sync::{Notify, oneshot, watch as latest};

use super::admission::{Judgement, Ticket};
use super::apply::Apply;
use super::config::{GateConfig, Moment};
use super::evaluators::{Numbered, Wanted};
use super::metrics::{GateMetrics, Work};
use super::shadow::ShadowConfig;
use super::state::State;
use super::targeting::targeting;
use super::texts::Texts;

/// The gate as a running thing; clones share it.
#[derive(Clone)]
pub struct Gate {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) config: Arc<RwLock<GateConfig>>,
    pub(super) news: Arc<Notify>,
    epoch: Instant,
    clock: Arc<ServerClock>,
    pub(super) metrics: GateMetrics,
    pub(super) exempt: Arc<[NamespacePattern]>,
    /// Locked before the state is.
    pub(super) aaqs: Arc<Mutex<Aaqs>>,
    /// Locked before the state is.
    pub(super) kubevirts: Arc<Mutex<KubeVirts>>,
    /// Locked before the state is.
    pub(super) device_classes: Arc<Mutex<DeviceClasses>>,
    pub(super) watches: GateWatches,
    /// Who waits for which answer. Locked while the state is locked.
    pub(super) asking: Arc<Mutex<HashMap<Ticket, oneshot::Sender<Judgement>>>>,
    /// The evaluators by whose selectors pods are read.
    pub(super) evaluators: Arc<latest::Sender<Numbered>>,
    /// The evaluators that the gate prepares, with the number by which pods are read for them.
    pub(super) next: Arc<latest::Sender<Numbered>>,
    /// The evaluators that were handed over last.
    pub(super) wanted: Arc<latest::Sender<Wanted>>,
    /// The number with which the evaluators in force were handed over. Changed while the state is locked.
    pub(super) in_force: Arc<latest::Sender<u64>>,
    /// The watch of pods has handed on a whole list with the JSON of each.
    pub(super) has_texts: Arc<latest::Sender<bool>>,
    /// The rules in the shadow, with the number of their configuration.
    pub(super) shadow: Arc<latest::Sender<(u32, Option<Arc<ShadowConfig>>)>>,
    pub(super) view: Arc<ViewKey>,
    pub(super) texts: Arc<Mutex<Texts>>,
    /// Reads pods, once the gate runs.
    pub(super) reader: Arc<OnceLock<Apply>>,
    /// Told when there is something else to show of cluster quotas.
    clusters_changed: Arc<Notify>,
}

/// The health of the watches that feed the gate.
#[derive(Clone, Debug)]
pub struct GateWatches {
    pub pods: WatchHealth,
    pub namespaces: WatchHealth,
    /// Of `ApplicationAwareResourceQuota`s.
    pub quotas: WatchHealth,
    /// Of `ApplicationAwareClusterResourceQuota`s.
    pub cluster_quotas: WatchHealth,
    /// Of `ClusterQuotaCharge`s.
    pub charges: WatchHealth,
    pub aaqs: WatchHealth,
    pub device_classes: WatchHealth,
    pub evaluators: WatchHealth,
    /// Of VirtualMachineInstances.
    pub machines: WatchHealth,
    /// Of installations of KubeVirt.
    pub kubevirts: WatchHealth,
}

impl Gate {
    /// A gate that has seen nothing yet.
    ///
    /// Pods of the namespaces that are `exempt` are never held; that of the installation must be one of them. `clock` says
    /// when a pod that is being deleted does not count any more.
    #[must_use]
    pub fn new(
        config: GateConfig,
        exempt: &[NamespacePattern],
        metrics: GateMetrics,
        watches: GateWatches,
        clock: Arc<ServerClock>,
    ) -> Self {
        let exempt: Arc<[NamespacePattern]> = exempt.into();
        let targeting = targeting(&Aaqs::default(), &exempt);
        Self {
            config: Arc::new(RwLock::new(config.clone())),
            state: Arc::new(Mutex::new(State::new(config, targeting))),
            news: Arc::new(Notify::new()),
            epoch: Instant::now(),
            clock,
            metrics,
            exempt,
            aaqs: Arc::default(),
            kubevirts: Arc::default(),
            device_classes: Arc::default(),
            watches,
            asking: Arc::default(),
            evaluators: Arc::default(),
            next: Arc::default(),
            wanted: Arc::default(),
            in_force: Arc::default(),
            has_texts: Arc::default(),
            shadow: Arc::default(),
            view: Arc::default(),
            texts: Arc::default(),
            reader: Arc::default(),
            clusters_changed: Arc::default(),
        }
    }

    /// The state, for metrics and tests.
    #[must_use]
    pub fn state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }

    /// Waits until this moment of its clock (milliseconds), or for ever.
    pub(crate) async fn until(&self, at_ms: Option<u64>) {
        match at_ms {
            // One millisecond late rather than early: an early one would find nothing to do.
            Some(ms) => tokio::time::sleep_until((self.epoch + Duration::from_millis(ms + 1)).into()).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until there is something else to show of cluster quotas.
    pub(crate) async fn clusters_changed(&self) {
        self.clusters_changed.notified().await;
    }

    pub(crate) fn now(&self) -> Moment {
        Moment {
            mono_ms: u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX),
            unix_ms: self.clock.reckoned().as_millisecond(),
        }
    }

    /// Has the state locked for this work, and measures how long.
    pub(super) fn locked<T>(&self, work: Work, run: impl FnOnce(&mut State, Moment) -> T) -> T {
        let mut state = self.state.lock();
        let begin = Instant::now();
        let made = run(&mut state, self.now());
        let have_clusters_changed = state.have_clusters_changed();
        drop(state);
        if have_clusters_changed {
            self.clusters_changed.notify_one();
        }
        self.metrics.observe_held(work, begin.elapsed());
        made
    }

    /// Changes the state, and has it decide.
    pub(super) fn change(&self, work: Work, change: impl FnOnce(&mut State, Moment)) {
        self.locked(work, change);
        self.news.notify_one();
    }
}

#[cfg(test)]
impl Gate {
    /// A gate that no watch feeds.
    pub(super) fn unfed(clock: Arc<ServerClock>) -> Self {
        let health = || WatchHealth::new("test");
        let watches = GateWatches {
            pods: health(),
            namespaces: health(),
            quotas: health(),
            cluster_quotas: health(),
            charges: health(),
            aaqs: health(),
            device_classes: health(),
            evaluators: health(),
            machines: health(),
            kubevirts: health(),
        };
        let config = GateConfig::new(sluice_api::names::GATE, sluice_engine::ChargeRules::for_minor(36));
        Self::new(config, &[], GateMetrics::default(), watches, clock)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;
    use sluice_engine::Resource;
    use sluice_runtime::watch::Event;

    use super::*;

    const FIVE_MINUTES: SignedDuration = SignedDuration::from_mins(5);

    /// Whether a pod counts whose deletion ends so long after the present of the API server, whose clock differs from the
    /// local one by `skew`; `None`: nothing is known of that clock.
    fn counts(skew: Option<SignedDuration>, ends_in: SignedDuration) -> bool {
        let clock = Arc::new(ServerClock::default());
        let gate = Gate::unfed(Arc::clone(&clock));
        let there = Timestamp::now() + skew.unwrap_or_default();
        clock.observe(skew.map(|_| there));
        // It counts for its grace period once more.
        let ends = there + ends_in - SignedDuration::from_secs(30);
        let pod = json!({
            "metadata": {
                "name": "p", "namespace": "team", "uid": "p", "resourceVersion": "1",
                "deletionTimestamp": ends.to_string(), "deletionGracePeriodSeconds": 30,
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        });
        gate.on_pods(&Event::Apply(serde_json::from_value(pod).unwrap()));
        let state = gate.state();
        let state = state.lock();
        let (_, record) = state.index().0.iter().next().unwrap();
        record.charge.get(&Resource::Cpu).is_some()
    }

    #[test]
    fn a_pod_that_is_being_deleted_stops_counting_by_the_api_servers_clock() {
        let minute = SignedDuration::from_mins(1);
        for skew in [-FIVE_MINUTES, SignedDuration::ZERO, FIVE_MINUTES] {
            assert!(counts(Some(skew), minute), "it may run for another minute: {skew:#}");
            assert!(!counts(Some(skew), -minute), "nothing waits for the local clock: {skew:#}");
        }
        assert!(counts(None, -minute), "before anything is known of that clock nothing ends");
    }
}
