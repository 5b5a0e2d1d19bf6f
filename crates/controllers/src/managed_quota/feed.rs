//! Feeds the loop: applies the events of its watches to the state, and tells the gate what has changed.

use parking_lot::MutexGuard;
use sluice_index::{
    AaqWire, AcrqWire, ArqWire, ClusterResourceQuotaWire, ClusterResourceQuotas, Key, ResourceQuotaWire,
    ResourceQuotas, Watched,
};
use sluice_runtime::watch::Event;

use super::run::{ManagedQuotas, Observing};
use super::state::State;
use super::wishes::{Quota, key_of};

/// Every replica is fed, leader or not. The events of one kind have to come in their order.
impl ManagedQuotas {
    /// An event of the watch of `ApplicationAwareResourceQuota`s. The gate has to have it already.
    pub fn on_arqs(&self, event: &Event<ArqWire>) {
        self.on_quotas(event);
    }

    /// An event of the watch of `ApplicationAwareClusterResourceQuota`s. The gate has to have it already.
    pub fn on_acrqs(&self, event: &Event<AcrqWire>) {
        self.on_quotas(event);
    }

    fn on_quotas<Q: Quota>(&self, event: &Event<Q>) {
        let state = &mut self.shared.state.lock();
        let changed = match event {
            Event::Init => {
                state.begin_list();
                Vec::new()
            }
            Event::InitApply(quota) | Event::Apply(quota) => {
                let key = key_of(quota.meta());
                if state.upsert(&key, quota) { vec![key] } else { Vec::new() }
            }
            Event::InitDone => state.end_list(),
            Event::Delete(quota) => {
                let key = key_of(quota.meta());
                if state.remove(&key) { vec![key] } else { Vec::new() }
            }
        };
        self.shared.tell(state, &changed);
    }

    /// An event of the watch of `AAQ`s: cluster quotas have an effect while the one that counts allows them.
    pub fn on_aaqs(&self, event: &Event<AaqWire>) {
        let Observing::Cluster(observed) = &self.shared.observing else { return };
        let state = &mut self.shared.state.lock();
        let are_allowed = {
            let aaqs = &mut observed.lock().aaqs;
            aaqs.apply(event);
            aaqs.holding().is_some_and(|aaq| aaq.cluster_quotas)
        };
        if !matches!(event, Event::Init | Event::InitApply(_)) {
            let changed = state.allow(are_allowed);
            self.shared.tell(state, &changed);
        }
    }

    /// An event of the watch of ResourceQuotas. The index has to have it already.
    pub fn on_resource_quotas(&self, event: &Event<ResourceQuotaWire>) {
        self.on_managed::<ResourceQuotas>(&mut self.shared.state.lock(), event);
    }

    /// An event of the watch of ClusterResourceQuotas, and whether the cluster serves them.
    pub fn on_cluster_resource_quotas(
        &self,
        event: &Event<ClusterResourceQuotaWire>,
        is_served: Option<bool>,
    ) {
        let Observing::Cluster(observed) = &self.shared.observing else { return };
        let state = &mut self.shared.state.lock();
        observed.lock().quotas.apply(event);
        if matches!(event, Event::InitDone) {
            state.set_served(is_served);
        }
        self.on_managed::<ClusterResourceQuotas>(state, event);
    }

    fn on_managed<R: Watched>(&self, state: &mut MutexGuard<'_, State>, event: &Event<R::Wire>) {
        let changed: Vec<Key> = match event {
            Event::Init => return,
            // Some may have gone unseen.
            Event::InitDone => state.keys(),
            Event::InitApply(quota) | Event::Apply(quota) | Event::Delete(quota) => {
                let Key { namespace, name } = R::key(quota);
                let Some(quota) = self.shared.kind.quota_of(&name) else { return };
                vec![Key { namespace, name: quota.into() }]
            }
        };
        changed.iter().for_each(|key| state.touch(key));
        self.shared.tell(state, &changed);
    }
}
