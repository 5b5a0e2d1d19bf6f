//! The one list of the watches of each process: what is watched, under which name in readiness,
//! and who is handed the events.
//!
//! A kind is watched once in a process, and its events go to all that use them, in the order of the lines below: to the gate
//! before head-room. Objects that are read one by one, by name, are watched where they are used: the Leases, and what the
//! operator keeps in shape.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sluice_api::names;
use sluice_controllers::gating::GatingWatch;
use sluice_controllers::managed_quota::ManagedQuotas;
use sluice_gate::cluster_quota_status::ClusterQuotaStatus;
use sluice_gate::{Gate, GateWatches};
use sluice_index::{
    AaqWire, AcrqWire, ArqWire, ClusterQuotaChargeWire, ClusterResourceQuotaWire, HeadroomPolicyWire,
    KubeVirtWire, LimitRangeWire, NamespaceWire, Observed, PodWire, PodWithText, ResourceQuotaWire, VmiWire,
    VmimWire, VmmrqWire,
};
use sluice_runtime::shutdown::Tasks;
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, WentBack, watch};
use sluice_webhook::{AaqSightings, App, EvaluatorSightings};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::evaluators::ActiveEvaluators;
use crate::tls_profile::ProfileWatch;

/// So long the watch of pods waits for the list of evaluators.
const EVALUATORS_LISTED_IN: Duration = Duration::from_secs(5);

/// The kinds that head-room rests on in each process that knows of it.
struct HeadroomWatches {
    kubevirts: WatchHealth,
    vmims: WatchHealth,
    vmis: WatchHealth,
    resource_quotas: WatchHealth,
    vmmrqs: WatchHealth,
    policies: WatchHealth,
    namespaces: WatchHealth,
    pods: WatchHealth,
}

impl HeadroomWatches {
    fn new(pods: &str) -> Self {
        let health = |kind: &str| WatchHealth::new(kind);
        Self {
            kubevirts: health("kubevirts"),
            vmims: health("virtualmachineinstancemigrations"),
            vmis: health("virtualmachineinstances"),
            resource_quotas: health("resourcequotas"),
            vmmrqs: health(names::VMMRQS),
            policies: health(names::HEADROOM_POLICIES),
            namespaces: health("namespaces"),
            pods: health(pods),
        }
    }

    fn all(&self) -> Vec<WatchHealth> {
        let kubevirt = [&self.kubevirts, &self.vmims, &self.vmis];
        let kubernetes = [&self.resource_quotas, &self.namespaces, &self.pods];
        let own = [&self.vmmrqs, &self.policies];
        kubevirt.into_iter().chain(kubernetes).chain(own).cloned().collect()
    }

    /// The kinds whose events go to head-room, and to the others before or after.
    async fn feed(
        &self,
        via: Via<'_>,
        observed: &Observed,
        others: Option<(&Gate, &ManagedQuotas)>,
    ) -> Result<(), WentBack> {
        tokio::try_join!(
            via.watch(&self.kubevirts, if_installed(), |event: Event<KubeVirtWire>| {
                others.iter().for_each(|(gate, _)| gate.on_kubevirts(&event));
                observed.apply(&event);
            }),
            via.watch(&self.vmims, if_installed(), |event: Event<VmimWire>| {
                others.iter().for_each(|(gate, _)| gate.on_migrations(&event));
                observed.apply(&event);
            }),
            via.watch(&self.vmis, if_installed(), |event: Event<VmiWire>| {
                others.iter().for_each(|(gate, _)| gate.on_machines(&event));
                observed.apply(&event);
            }),
            via.watch(&self.resource_quotas, all(), |event: Event<ResourceQuotaWire>| {
                observed.apply(&event);
                others.iter().for_each(|(_, managed)| managed.on_resource_quotas(&event));
            }),
        )
        .map(drop)
    }
}

/// What `sluice controller` does about quotas, as far as it is fed by watches.
pub struct QuotaUsers {
    pub gate: Gate,
    /// What says what pods take in place of Kubernetes.
    pub evaluators: Arc<ActiveEvaluators>,
    /// The managed quotas of quotas of one namespace.
    pub managed: ManagedQuotas,
    /// Those of cluster quotas.
    pub managed_cluster: ManagedQuotas,
    /// What is shown of cluster quotas.
    pub cluster: ClusterQuotaStatus,
}

/// The watches of `sluice controller`.
pub struct ControllerWatches {
    /// Of the installation.
    namespace: String,
    arqs: WatchHealth,
    acrqs: WatchHealth,
    charges: WatchHealth,
    aacrqs: WatchHealth,
    cluster_resource_quotas: WatchHealth,
    aaqs: WatchHealth,
    device_classes: WatchHealth,
    evaluators: WatchHealth,
    limit_ranges: WatchHealth,
    headroom: HeadroomWatches,
}

impl ControllerWatches {
    /// Nothing is watched yet. The installation is in `namespace`.
    pub fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            arqs: WatchHealth::new(names::ARQS),
            acrqs: WatchHealth::new(names::ACRQS),
            charges: WatchHealth::new(names::CLUSTER_QUOTA_CHARGES),
            aacrqs: WatchHealth::new(names::AACRQS),
            cluster_resource_quotas: WatchHealth::new(names::CLUSTER_RESOURCE_QUOTAS),
            aaqs: WatchHealth::new(names::AAQS),
            device_classes: WatchHealth::new("deviceclasses"),
            evaluators: WatchHealth::new(names::EVALUATORS),
            limit_ranges: WatchHealth::new("limitranges"),
            headroom: HeadroomWatches::new("pods"),
        }
    }

    /// Those that the gate is fed by.
    pub fn gate(&self) -> GateWatches {
        let (pods, namespaces) = (self.headroom.pods.clone(), self.headroom.namespaces.clone());
        GateWatches {
            pods,
            namespaces,
            quotas: self.arqs.clone(),
            cluster_quotas: self.acrqs.clone(),
            charges: self.charges.clone(),
            aaqs: self.aaqs.clone(),
            device_classes: self.device_classes.clone(),
            evaluators: self.evaluators.clone(),
            machines: self.headroom.vmis.clone(),
            kubevirts: self.headroom.kubevirts.clone(),
        }
    }

    /// Those that head-room is fed by.
    pub fn headroom(&self) -> Vec<WatchHealth> {
        [self.headroom.all(), vec![self.limit_ranges.clone()]].concat()
    }

    /// Those that the managed quotas of quotas of one namespace are fed by.
    pub fn managed_quotas(&self) -> Vec<WatchHealth> {
        vec![self.arqs.clone(), self.headroom.resource_quotas.clone()]
    }

    /// Those that the managed quotas of cluster quotas are fed by.
    pub fn managed_cluster_quotas(&self) -> Vec<WatchHealth> {
        [&self.acrqs, &self.cluster_resource_quotas, &self.aaqs].map(WatchHealth::clone).to_vec()
    }

    /// Those that readiness and liveness rest on: all but that of DeviceClasses, by which nothing is decided.
    pub fn all(&self) -> Vec<WatchHealth> {
        let quotas = [&self.arqs, &self.acrqs, &self.charges, &self.aacrqs, &self.cluster_resource_quotas];
        let said = vec![self.aaqs.clone(), self.evaluators.clone()];
        [quotas.map(WatchHealth::clone).to_vec(), said, self.headroom()].concat()
    }

    /// Feeds all that use them, until `stopped`. Every replica does that, leader or not. A flood of pods delays nothing that
    /// only head-room rests on: that comes by another task and other connections.
    pub fn spawn(
        self,
        tasks: &mut Tasks,
        [client, headroom_client]: [Client; 2],
        (quotas, gating, observed, profile): (QuotaUsers, Arc<GatingWatch>, Arc<Observed>, ProfileWatch),
        stopped: &CancellationToken,
    ) {
        let this = Arc::new(self);
        let beside = (quotas.gate.clone(), quotas.managed.clone(), Arc::clone(&observed));
        let used = (quotas, gating, observed, profile);
        tasks.spawn("watches", Arc::clone(&this).feed(client, used, stopped.clone()));
        tasks.spawn("head-room watches", this.feed_headroom(headroom_client, beside, stopped.clone()));
    }

    async fn feed(
        self: Arc<Self>,
        client: Client,
        (quotas, gating, observed, mut profile): (QuotaUsers, Arc<GatingWatch>, Arc<Observed>, ProfileWatch),
        stopped: CancellationToken,
    ) -> Result<(), WentBack> {
        let QuotaUsers { gate, evaluators, managed, managed_cluster, cluster } = quotas;
        let crqs = &self.cluster_resource_quotas;
        let via = Via { client: &client, cancel: &stopped };
        tokio::try_join!(
            self.watch_pods(via, &gate, &observed),
            via.watch(&self.headroom.namespaces, all(), |event: Event<NamespaceWire>| {
                gate.on_namespaces(&event);
                observed.apply(&event);
            }),
            via.watch(&self.arqs, all(), |event: Event<ArqWire>| {
                gate.on_quotas(&event);
                managed.on_arqs(&event);
            }),
            via.watch(&self.acrqs, if_installed(), |event: Event<AcrqWire>| {
                gate.on_cluster_quotas(&event);
                cluster.on_quotas(&event);
                managed_cluster.on_acrqs(&event);
            }),
            via.watch(crqs, if_installed(), |event: Event<ClusterResourceQuotaWire>| {
                managed_cluster.on_cluster_resource_quotas(&event, crqs.is_served());
            }),
            via.watch(&self.aacrqs, if_installed(), |event| cluster.on_mirrors(&event)),
            // Before Kubernetes 1.34 there is no such kind.
            via.watch(&self.device_classes, if_installed(), |event| gate.on_device_classes(&event)),
            via.watch(&self.evaluators, if_installed(), |event| evaluators.on_evaluators(&event)),
            self.watch_charges(via, &gate),
            via.watch(&self.aaqs, all(), |event: Event<AaqWire>| {
                gate.on_aaqs(&event);
                gating.on_aaqs(&event);
                managed_cluster.on_aaqs(&event);
                profile.apply(&event);
            }),
        )
        .map(drop)
    }

    /// With their JSON from the first evaluator on. Without any, it costs nothing.
    async fn watch_pods(&self, via: Via<'_>, gate: &Gate, observed: &Observed) -> Result<(), WentBack> {
        let pods = &self.headroom.pods;
        // Where there are some, pods need not be listed twice. A start waits for it no longer than for other lists.
        let _ = timeout(EVALUATORS_LISTED_IN, self.evaluators.synced()).await;
        let plainly = |event: Event<PodWire>| {
            gate.on_pods(&event);
            observed.apply(&event);
        };
        tokio::select! {
            biased;
            () = gate.asks_evaluators() => {}
            ended = via.watch(pods, in_small_pages(), plainly) => return ended,
        }
        let with_text = |event: Event<PodWithText>| {
            let (event, text) = PodWithText::split(event);
            gate.on_pods_with_text(&event, text.as_deref().map(RawValue::get));
            observed.apply(&event);
        };
        via.watch(pods, in_small_pages(), with_text).await
    }

    /// They are in the namespace of the installation; in others they are none of ours.
    async fn watch_charges(&self, via: Via<'_>, gate: &Gate) -> Result<(), WentBack> {
        let charges = Api::<ClusterQuotaChargeWire>::namespaced(via.client.clone(), &self.namespace);
        let sink = |event: Event<ClusterQuotaChargeWire>| gate.on_charges(&event);
        watch(charges, if_installed(), sink, self.charges.clone(), via.cancel.clone()).await
    }

    async fn feed_headroom(
        self: Arc<Self>,
        client: Client,
        (gate, managed, observed): (Gate, ManagedQuotas, Arc<Observed>),
        stopped: CancellationToken,
    ) -> Result<(), WentBack> {
        let via = Via { client: &client, cancel: &stopped };
        tokio::try_join!(
            via.watch(&self.limit_ranges, all(), |event| observed.apply::<LimitRangeWire>(&event)),
            via.watch(&self.headroom.vmmrqs, all(), |event| observed.apply::<VmmrqWire>(&event)),
            via.watch(&self.headroom.policies, all(), |event| observed.apply::<HeadroomPolicyWire>(&event)),
            self.headroom.feed(via, &observed, Some((&gate, &managed))),
        )
        .map(drop)
    }
}

/// The watches of `sluice webhook`.
pub struct WebhookWatches {
    aaqs: WatchHealth,
    cluster_resource_quotas: WatchHealth,
    evaluators: WatchHealth,
    headroom: HeadroomWatches,
}

impl WebhookWatches {
    /// Nothing is watched yet.
    pub fn new() -> Self {
        Self {
            aaqs: WatchHealth::new(names::AAQS),
            cluster_resource_quotas: WatchHealth::new(names::CLUSTER_RESOURCE_QUOTAS),
            evaluators: WatchHealth::new(names::EVALUATORS),
            headroom: HeadroomWatches::new("pods (of virtual machines)"),
        }
    }

    /// Those that head-room is fed by.
    pub fn headroom(&self) -> Vec<WatchHealth> {
        self.headroom.all()
    }

    /// Feeds the endpoints, until `stopped`. Not part of readiness: pods are judged without them.
    pub async fn feed(
        self,
        client: Client,
        (app, observed, mut profile): (Arc<App>, Arc<Observed>, ProfileWatch),
        stopped: CancellationToken,
    ) -> Result<(), WentBack> {
        let via = Via { client: &client, cancel: &stopped };
        let kinds = &self.headroom;
        // A launcher without its label explains nothing, and its machine gets no room.
        let launchers = in_small_pages().labels(names::LAUNCHER_ROLES);
        let mut aaqs = AaqSightings::default();
        let mut evaluators = EvaluatorSightings::default();
        // Whether the kind exists is all that is asked, so no objects are.
        let (crqs, none) = (&self.cluster_resource_quotas, format!("metadata.name={}", names::PROBE_NAME));
        tokio::try_join!(
            via.watch(&self.aaqs, all(), |event| {
                app.set_aaq(aaqs.apply(&event));
                app.set_by(&aaqs);
                profile.apply(&event);
            }),
            via.watch(crqs, if_installed().fields(none), |_: Event<ClusterResourceQuotaWire>| {
                app.set_cluster_resource_quotas(crqs.is_served());
            }),
            via.watch(&self.evaluators, if_installed(), |event| {
                if let Some(seen) = evaluators.apply(&event) {
                    app.set_evaluators(&seen);
                }
            }),
            via.watch(&kinds.pods, launchers, |event| observed.apply::<PodWire>(&event)),
            via.watch(&kinds.namespaces, all(), |event| observed.apply::<NamespaceWire>(&event)),
            // No conditions are written here, so no status is kept.
            via.watch(&kinds.vmmrqs, all(), |event: Event<VmmrqWire>| {
                observed.apply(&event.modify(|vmmrq| vmmrq.status = None));
            }),
            via.watch(&kinds.policies, all(), |event: Event<HeadroomPolicyWire>| {
                observed.apply(&event.modify(|policy| policy.status = None));
            }),
            kinds.feed(via, &observed, None),
        )
        .map(drop)
    }
}

/// By which connection, and until when.
#[derive(Clone, Copy)]
struct Via<'v> {
    client: &'v Client,
    cancel: &'v CancellationToken,
}

impl Via<'_> {
    /// Watches a kind in all namespaces.
    async fn watch<K>(
        self,
        health: &WatchHealth,
        options: WatchOptions,
        sink: impl FnMut(Event<K>),
    ) -> Result<(), WentBack>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let api = Api::<K>::all(self.client.clone());
        watch(api, options, sink, health.clone(), self.cancel.clone()).await
    }
}

fn all() -> WatchOptions {
    WatchOptions::default()
}

/// Of pods: a tenant may make each of them as large as etcd takes, 1.5 MiB, and a page is in memory at once.
fn in_small_pages() -> WatchOptions {
    WatchOptions { page_size: 50, ..WatchOptions::default() }
}

/// A cluster without KubeVirt, or OpenShift, has no such kind, and no such objects.
fn if_installed() -> WatchOptions {
    WatchOptions { absent_is_empty: true, ..WatchOptions::default() }
}
