//! Pods of the platform that are not charged: while the VM that they serve is, or never.
//!
//! Whether one is exempt depends on records and on which VMs are charged, not on stages. It is found anew when any of that
//! changes: the pod itself, a launcher of the VM, the VM's charge, or what is known of KubeVirt.

use std::collections::BTreeMap;

use sluice_engine::{PodId, Uid};
use sluice_index::{Gates, NamespaceId, PodRecord, PodReference};

use super::Accounts;
use crate::admission::{Change, Judgement};
use crate::cluster::Cluster;
use crate::cluster::machines::Owner;
use crate::platform::Exemption;
use crate::stage::{Stage, Stuck};

/// What is told of a pod that is fixed and is to take more: it would take from its quotas without a charge.
const FIXED: &str = "the pod is one of the platform that is charged as its virtual machine, or may be exempt from quotas \
    (--platform-pods), so it cannot take more than it was created with: \
    have KubeVirt or CDI create it anew with other resources";

impl Accounts {
    /// Whether the pod takes nothing of its quotas.
    pub fn is_exempt(&self, cluster: &Cluster, record: &PodRecord) -> bool {
        let Some(platform) = record.platform() else { return false };
        let kubevirt = cluster.machines.controller();
        match cluster.config.platform.exemption(&record.name, &platform.created_by, kubevirt) {
            Exemption::Never => false,
            Exemption::Always => true,
            Exemption::WithMachine => {
                let launcher = platform.controller.as_ref();
                launcher
                    .is_some_and(|launcher| self.is_of_charged_machine(cluster, record.namespace, launcher))
            }
        }
    }

    /// Whether this is a launcher of a VM that is charged now.
    fn is_of_charged_machine(
        &self,
        cluster: &Cluster,
        namespace: NamespaceId,
        launcher: &PodReference,
    ) -> bool {
        let named = cluster.pods.find(namespace, &launcher.name).and_then(|id| cluster.pods.get(id));
        let Some(record) = named.filter(|record| record.uid == launcher.uid && cluster.is_launcher(record))
        else {
            return false;
        };
        let Some((known, ownership)) = cluster.namespaces.get(namespace).zip(record.ownership()) else {
            return false;
        };
        if self.stages.owners().charged(&Owner::claimed(&known.name, ownership)).is_none() {
            return false;
        }
        // Only a pod without gates charges its VM. Of one that has ended, the VM may go on elsewhere.
        let pods = self.pods_of_machine(cluster, namespace, &ownership.machine);
        pods.into_iter()
            .filter_map(|id| cluster.pods.get(id))
            .any(|pod| pod.gates == Gates::None && !pod.is_over() && cluster.is_launcher(pod))
    }

    /// A pod is not what it was, as which it is given, or is what it was not: if it is or was a launcher, whether those that
    /// are attached to its VM are exempt may have changed.
    pub fn on_launcher_changed(&mut self, cluster: &Cluster, record: &PodRecord) {
        let Some(ownership) = record.ownership().filter(|_| cluster.pods.have_attached()) else {
            return;
        };
        // One without a stamp may be a launcher, or have been.
        if ownership.created_by.as_deref().is_some_and(|by| cluster.machines.controller() != Some(by)) {
            return;
        }
        let attached = cluster.pods.attached_to(record.namespace, &record.uid);
        self.reexamine(cluster, attached);
        self.reexamine_attached(cluster, record.namespace, &ownership.machine);
    }

    /// What a VM is charged has changed, or which pods are its launchers.
    pub(super) fn reexamine_attached(&mut self, cluster: &Cluster, namespace: NamespaceId, machine: &Uid) {
        if !cluster.pods.have_attached() {
            return;
        }
        for id in self.pods_of_machine(cluster, namespace, machine) {
            let Some(launcher) = cluster.pods.get(id).map(|record| record.uid.clone()) else { continue };
            let attached = cluster.pods.attached_to(namespace, &launcher);
            self.reexamine(cluster, attached);
        }
    }

    /// Those of the pods that are charged although they are exempt, or the other way round, find their stage anew.
    pub(super) fn reexamine(&mut self, cluster: &Cluster, pods: Vec<PodId>) {
        let mut wrong: BTreeMap<NamespaceId, Vec<PodId>> = BTreeMap::new();
        for id in pods {
            let Some(record) = cluster.pods.get(id) else { continue };
            if self.is_wrong(id, self.is_exempt(cluster, record)) {
                wrong.entry(record.namespace).or_default().push(id);
            }
        }
        for (namespace, pods) in wrong {
            self.reclassify_later(cluster, namespace, pods);
        }
    }

    fn is_wrong(&self, id: PodId, is_exempt: bool) -> bool {
        match self.stages.get(id) {
            Stage::Counted { charge, .. } => charge.is_empty() != is_exempt,
            Stage::Free { awaited, .. } => (*awaited == 0) != is_exempt,
            Stage::Waiting(_) | Stage::Assumed { .. } => is_exempt,
            Stage::Stuck(
                Stuck::InvalidQuota(_) | Stuck::Unreadable(_) | Stuck::Machine(_) | Stuck::Evaluating,
            ) => is_exempt,
            Stage::Stuck(Stuck::UnknownNamespace | Stuck::Terminating | Stuck::BackingOff)
            | Stage::Foreign => false,
        }
    }

    /// Refuses that a pod that is fixed takes more, gated or not: nothing would charge that, now or when it is exempt later.
    pub(super) fn judge_growth_of_fixed(&self, cluster: &Cluster, change: &Change) -> Result<(), Judgement> {
        let before = &change.before;
        let namespace = cluster.namespaces.id(&before.namespace);
        let is_targeted = namespace.and_then(|id| cluster.namespaces.is_targeted(id));
        if is_targeted == Some(false)
            || !cluster.is_fixed(before, namespace)
            || change.after.charge.above(&before.charge).is_empty()
        {
            return Ok(());
        }
        Err(Judgement::Refused(FIXED.to_owned()))
    }
}
