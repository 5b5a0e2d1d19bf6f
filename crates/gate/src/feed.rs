//! Feeds the gate: applies the events of its watches to the state, each while the state is locked.

use std::sync::Arc;

use sluice_api::names;
use sluice_engine::ManagedStatus;
use sluice_engine::vm::Calculator;
use sluice_index::{
    AaqWire, AcrqWire, ArqWire, ClusterQuotaChargeWire, DeviceClassWire, Gates, Key, KubeVirtWire,
    NamespaceWire, PodFacts, PodView, PodWire, VmiWire, VmimWire, Watched as _,
};
use sluice_runtime::watch::Event;

use super::accounts::parts::pauses::Paused;
use super::cluster::machines::KubeVirt;
use super::evaluators::{Content, EvaluatorsConfig};
use super::handle::Gate;
use super::metrics::Work;
use super::shadow::SeenPod;
use super::targeting::{report_released, targeting};

/// Every replica is fed, leader or not. The events of one kind have to come in their order.
impl Gate {
    pub fn on_pods(&self, event: &Event<PodWire>) {
        match event {
            Event::Init => self.change(Work::Watch, |state, _| state.begin_pods()),
            Event::InitDone => self.change(Work::Watch, |state, _| state.end_pods()),
            Event::InitApply(pod) | Event::Apply(pod) => {
                let facts = self.config.read().read(pod, self.now());
                self.change(Work::Watch, |state, now| state.apply_read_pod(facts, now));
            }
            Event::Delete(pod) => self.change(Work::Watch, |state, _| state.delete_pod(pod)),
        }
    }

    /// As [`Self::on_pods`], with the pod's JSON. Where evaluators are asked about pods this is to be used.
    pub fn on_pods_with_text(&self, event: &Event<PodWire>, text: Option<&str>) {
        let (Event::InitApply(pod) | Event::Apply(pod)) = event else {
            self.on_pods(event);
            if matches!(event, Event::InitDone) {
                self.has_texts.send_replace(true);
            }
            return;
        };
        let mut view = None;
        loop {
            // If evaluators change while the pod is applied, it is applied once more, for those.
            let read_for = self.numbers();
            let (revision, config) = self.evaluators.borrow().clone();
            let is_read =
                config.is_some() || self.next.borrow().1.is_some() || self.shadow.borrow().1.is_some();
            if is_read && view.is_none() {
                view = text.and_then(|text| self.view.view(text).ok());
            }
            let Some(view) = view.as_ref().filter(|_| is_read) else {
                self.on_pods(event);
                if read_for == self.numbers() { return } else { continue }
            };
            let facts = self.config.read().read(pod, self.now());
            let (seen, version) = (SeenPod::of(&facts), facts.version);
            match config {
                Some(config) => self.see_content(facts, view, (revision, &config)),
                None => self.locked(Work::Watch, |state, now| state.apply_read_pod(facts, now)),
            }
            self.ask_next(&seen, version, view);
            self.cast_shadow(&seen, version, view);
            self.news.notify_one();
            if read_for == self.numbers() {
                return;
            }
        }
    }

    /// Which evaluators are in force, are next and are in the shadow.
    fn numbers(&self) -> [u32; 3] {
        [self.evaluators.borrow().0, self.next.borrow().0, self.shadow.borrow().0]
    }

    /// A pod that evaluators may be asked about is as the view of it says.
    fn see_content(
        &self,
        facts: PodFacts,
        view: &PodView,
        (revision, config): (u32, &Arc<EvaluatorsConfig>),
    ) {
        let (uid, hash) = (facts.uid.clone(), view.hash);
        let content = Content { hash, selected_by: config.selecting(view), revision };
        let is_selected = content.selected_by != 0 && facts.gates != Gates::Foreign;
        let is_waiting = facts.gates == Gates::Ours;
        let (namespace, name) = (facts.namespace.clone(), facts.name.clone());
        if is_selected && config.asker.is_immediate() {
            // Where no process is asked, nothing has to be kept or read again.
            let question = self.locked(Work::Watch, |state, now| {
                state.apply_pod_with_content(facts, Some(content), now);
                state.ask_at_once(&namespace, &name, &uid, hash)
            });
            if let Some(question) = question {
                self.answer_at_once(question, view.json.clone().into());
            }
            return;
        }
        if is_selected {
            self.texts.lock().keep(uid.clone(), hash, view.json.clone().into(), is_waiting);
        }
        let is_asked = self.locked(Work::Watch, |state, now| {
            state.apply_pod_with_content(facts, Some(content), now);
            is_selected && state.is_evaluated(&namespace, &name, &uid, hash)
        });
        if is_selected && !is_asked {
            self.texts.lock().forget(&uid);
        }
    }

    /// These evaluators do not work, a bit for each, by their places in the configuration: after ten seconds pods may be
    /// counted natively.
    pub fn on_evaluators_broken(&self, broken: u16) {
        self.change(Work::Watch, |state, now| state.set_evaluators_broken(broken, now));
    }

    /// The evaluators take so many questions at once, by their places in the configuration.
    pub fn limit_evaluators(&self, at_once: &[usize]) {
        self.change(Work::Watch, |state, _| state.limit_evaluators(at_once));
    }

    pub fn on_namespaces(&self, event: &Event<NamespaceWire>) {
        self.change(Work::Watch, |state, now| match event {
            Event::Init => state.begin_namespaces(),
            Event::InitDone => state.end_namespaces(now),
            Event::InitApply(namespace) | Event::Apply(namespace) => state.apply_namespace(namespace, now),
            Event::Delete(namespace) => state.delete_namespace(namespace, now),
        });
    }

    /// An event of the watch of `ApplicationAwareResourceQuota`s.
    pub fn on_quotas(&self, event: &Event<ArqWire>) {
        self.change(Work::Watch, |state, now| match event {
            Event::Init => state.begin_quotas(),
            Event::InitDone => state.end_quotas(now),
            Event::InitApply(quota) => state.apply_listed_quota(quota, now),
            Event::Apply(quota) => state.apply_watched_quota(quota, now),
            Event::Delete(quota) => state.delete_watched_quota(quota, now),
        });
    }

    /// The managed quota of a quota says something else; `None`: it has none.
    pub fn on_managed_status(&self, quota: &Key, status: Option<ManagedStatus>) {
        self.change(Work::Watch, |state, _| state.set_managed_status(quota, status));
    }

    /// An event of the watch of `ApplicationAwareClusterResourceQuota`s.
    pub fn on_cluster_quotas(&self, event: &Event<AcrqWire>) {
        self.change(Work::Watch, |state, now| match event {
            Event::Init => state.begin_cluster_quotas(),
            Event::InitDone => state.end_cluster_quotas(now),
            Event::InitApply(quota) | Event::Apply(quota) => state.apply_cluster_quota(quota, now),
            Event::Delete(quota) => state.delete_cluster_quota(quota, now),
        });
    }

    /// An event of the watch of `ClusterQuotaCharge`s.
    pub fn on_charges(&self, event: &Event<ClusterQuotaChargeWire>) {
        self.change(Work::Watch, |state, now| match event {
            Event::Init => state.begin_charges(),
            Event::InitDone => state.end_charges(now),
            Event::InitApply(charge) | Event::Apply(charge) => state.apply_charge(charge, now),
            Event::Delete(charge) => state.delete_charge(charge, now),
        });
    }

    /// An event of the watch of VirtualMachineInstances.
    pub fn on_machines(&self, event: &Event<VmiWire>) {
        self.change(Work::Watch, |state, now| match event {
            Event::Init => state.begin_machines(),
            Event::InitDone => state.end_machines(now),
            Event::InitApply(machine) | Event::Apply(machine) => state.apply_machine(machine, now),
            Event::Delete(machine) => state.delete_machine(machine, now),
        });
    }

    /// An event of the watch of VirtualMachineInstanceMigrations.
    pub fn on_migrations(&self, event: &Event<VmimWire>) {
        self.change(Work::Watch, |state, now| match event {
            Event::Init => state.begin_migrations(),
            Event::InitDone => state.end_migrations(now),
            Event::InitApply(migration) | Event::Apply(migration) => state.apply_migration(migration, now),
            Event::Delete(migration) => state.delete_migration(migration, now),
        });
    }

    /// An event of the watch of installations of KubeVirt. VMs are counted as before until a list is complete.
    pub fn on_kubevirts(&self, event: &Event<KubeVirtWire>) {
        let mut kubevirts = self.kubevirts.lock();
        kubevirts.apply(event);
        if matches!(event, Event::Init | Event::InitApply(_)) {
            return;
        }
        let kubevirt = kubevirts.oldest().map(|oldest| KubeVirt {
            controller: names::kubevirt_controller_username(&oldest.namespace).into(),
            facts: (***oldest).clone(),
        });
        self.change(Work::Watch, |state, now| state.set_kubevirt(kubevirt, now));
    }

    /// An event of the watch of DeviceClasses. What is told of claims stays until a list is complete.
    pub fn on_device_classes(&self, event: &Event<DeviceClassWire>) {
        let mut classes = self.device_classes.lock();
        classes.apply(event);
        if !matches!(event, Event::Init | Event::InitApply(_)) {
            let extended = classes.extended_resources();
            self.change(Work::Watch, |state, _| state.set_claimed_resources(extended));
        }
    }

    /// An event of the watch of `AAQ`s. Namespaces are targeted as before until a list is complete.
    pub fn on_aaqs(&self, event: &Event<AaqWire>) {
        let mut aaqs = self.aaqs.lock();
        aaqs.apply(event);
        if matches!(event, Event::Init | Event::InitApply(_)) {
            return;
        }
        self.change(Work::Watch, |state, now| {
            let calculator = aaqs.holding().map_or_else(Calculator::default, |aaq| aaq.calculator);
            state.count_machines_by(calculator, now);
            state.allow_cluster_quotas(aaqs.holding().is_some_and(|aaq| aaq.cluster_quotas), now);
            let released = state.retarget(targeting(&aaqs, &self.exempt), now);
            report_released(state, &aaqs, released);
            let pause = aaqs
                .holding()
                .and_then(|aaq| Paused::read(&aaq.name, aaq.uid.clone(), aaq.pause.as_ref(), now));
            state.pause_all(pause, now);
        });
    }
}
