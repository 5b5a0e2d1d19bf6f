//! What the plan looks at: who asks something of the installation, what the operator has made of it, and the names of
//! PriorityClasses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ResourceQuota, Service};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use sluice_api::{RECORDED_IN, holding, names, schema_too_old};
use sluice_manifests::uninstall::{PART_OF, is_of_others};
use sluice_manifests::{Installation, Naming};
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, watch as watch_kind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::kind::{Kind, Operand};
use super::live::Live;
use super::named::Evaluators;
use super::pods::{PodWire, ReplicaPod};
use super::wire::{AaqWire, DefinitionWire, MtqWire, OperandWire, Order, Orders as _, PriorityClassWire};
use crate::owner::{self, Owner};
use crate::presence::{Presence, Removal};
use crate::troubles::AdmissionTroubles;

/// So long a kind is not called out of reach: an API server that has just started answers 403 until its caches are filled.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Everything that the plan depends on. What is missing here was not looked for yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct World {
    /// By name.
    pub(super) aaqs: Option<BTreeMap<String, Order>>,
    /// By name; none where the cluster does not have the kind.
    pub(super) mtqs: Option<BTreeMap<String, Order>>,
    /// Another program keeps the CRD of `AAQ`s.
    pub(super) is_kind_of_others: Option<bool>,
    /// What is wrong with CRDs that the controller records in, by their name.
    pub(super) too_old: BTreeMap<&'static str, String>,
    /// Those that a pod may name.
    pub(super) priority_classes: Option<BTreeSet<String>>,
    /// Which containers they name.
    pub(super) evaluators: Evaluators,
    /// Objects of the kinds of operands that have our labels.
    pub(super) operands: BTreeMap<Kind, Operands>,
    /// Kinds of operands that could not be listed for a while, and why.
    pub(super) unlisted: BTreeMap<Kind, String>,
    /// To what all of them belong.
    pub(super) owner: Owner,
    /// Pods of our Deployments, by name.
    pub(super) pods: BTreeMap<String, ReplicaPod>,
    /// What is wrong with admission objects.
    pub(super) admission: AdmissionTroubles,
    /// By which the Deployments are named.
    pub(super) naming: Naming,
    /// What installs.
    pub(super) mode: Installation,
    /// How far the removal is.
    pub(super) removal: Removal,
}

/// Objects of one kind by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Operands {
    pub(super) live: BTreeMap<String, Live>,
    /// How often one was seen to go that is to be there.
    pub(super) gone: BTreeMap<String, u64>,
}

impl Operands {
    pub(super) fn put(&mut self, name: String, live: Live) {
        self.live.insert(name, live);
    }

    fn replace(&mut self, listed: BTreeMap<String, Live>, is_removed: bool) {
        let gone: Vec<_> = self.live.keys().filter(|name| !listed.contains_key(*name)).cloned().collect();
        gone.iter().for_each(|name| self.take(name, is_removed));
        self.live = listed;
    }

    /// `is_removed`: by this operator, because nothing is to be installed.
    pub(super) fn take(&mut self, name: &str, is_removed: bool) {
        if is_removed {
            self.live.remove(name);
            self.gone.remove(name);
        } else if self.live.remove(name).is_some() {
            *self.gone.entry(name.to_owned()).or_default() += 1;
        }
    }
}

impl World {
    /// The `AAQ` that holds ([`sluice_api::holding`]).
    pub(super) fn aaq(&self) -> Option<&Order> {
        first(self.aaqs.as_ref())
    }

    /// The `AAQ` that holds, unless it is the operator's own: then the `MTQ` is asked.
    pub(super) fn users_aaq(&self) -> Option<&Order> {
        self.aaq().filter(|order| !order.gives_way)
    }

    /// Whether what the operator makes is to be there.
    pub(super) fn presence(&self) -> Presence {
        let aaqs = match (self.mode, &self.aaqs) {
            (Installation::Always, _) => return Presence::Installed,
            (Installation::Cr, None) => return Presence::Unknown,
            (Installation::Cr, Some(aaqs)) => aaqs,
        };
        if aaqs.values().any(|order| !order.is_deleted) {
            return Presence::Installed;
        }
        self.aaq().map_or(Presence::Absent, |leaving| Presence::Leaving(leaving.uid.clone()))
    }

    /// As [`Self::aaq`], of the `MTQ`s.
    pub(super) fn mtq(&self) -> Option<&Order> {
        first(self.mtqs.as_ref())
    }

    /// Whether all kinds of operands were looked for.
    pub(super) fn has_listed_operands(&self) -> bool {
        Kind::ALL.iter().all(|kind| self.operands.contains_key(kind))
    }

    /// `None` if there is none.
    pub(super) fn operand(&self, operand: &Operand) -> Option<&Live> {
        self.operands.get(&operand.kind)?.live.get(&operand.name)
    }

    /// All that is there.
    pub(super) fn operands(&self) -> impl Iterator<Item = (Operand, &Live)> {
        self.operands
            .iter()
            .flat_map(|(kind, all)| all.live.iter().map(|(name, live)| (Operand::new(*kind, name), live)))
    }

    /// How often it was seen to go.
    pub(super) fn times_gone(&self, operand: &Operand) -> u64 {
        let of_kind = self.operands.get(&operand.kind);
        of_kind.and_then(|all| all.gone.get(&operand.name)).copied().unwrap_or_default()
    }

    /// Names of the Deployments that `AAQ` and `MTQ` are about.
    pub(super) const fn deployment_names(&self) -> [&'static str; 2] {
        let parts = self.naming.parts();
        [parts.controller, parts.webhook]
    }

    /// One of these. The outer `None`: it was not looked for yet.
    pub(super) fn deployment(&self, name: &str) -> Option<Option<&Live>> {
        Some(self.operands.get(&Kind::Deployment)?.live.get(name))
    }
}

fn first(orders: Option<&BTreeMap<String, Order>>) -> Option<&Order> {
    holding(orders.into_iter().flat_map(BTreeMap::values), |order| (order.gives_way, order.created))
}

/// The watches that fill a [`World`].
pub(super) struct Sources {
    pub(super) client: Client,
    namespace: String,
    admission: watch::Receiver<AdmissionTroubles>,
    seen: watch::Sender<World>,
}

impl Sources {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        admission: watch::Receiver<AdmissionTroubles>,
        seen: watch::Sender<World>,
    ) -> Self {
        Self { client, namespace: namespace.to_owned(), admission, seen }
    }

    /// Follows all of it, with how far the `removal` is, until `cancel`.
    pub(super) async fn follow(self, removal: &watch::Receiver<Removal>, cancel: CancellationToken) {
        let (client, namespace) = (|| self.client.clone(), self.namespace.as_str());
        let of_pods = WatchHealth::new("pods");
        tokio::join!(
            self.follow_orders(&cancel),
            self.follow_all(
                WatchOptions::default().fields(format!("metadata.name={}", names::AAQ_DEFINITION)),
                |definition: DefinitionWire| is_of_others(&definition.metadata, namespace),
                &cancel,
                |world, found| world.is_kind_of_others = Some(found.into_values().any(|is| is)),
            ),
            join_all(RECORDED_IN.map(|name| self.follow_schema(name, &cancel))),
            self.follow_all(
                WatchOptions::default(),
                |_: PriorityClassWire| (),
                &cancel,
                |world, classes| {
                    world.priority_classes = Some(classes.into_keys().collect());
                }
            ),
            self.follow_evaluators(&cancel),
            self.follow_in(
                Api::namespaced(client(), namespace),
                WatchOptions::default().labels(format!("{PART_OF}={}", names::APP)),
                (PodWire::of_deployment, &of_pods),
                &cancel,
                |world, pods| {
                    let ours = pods.into_iter().filter_map(|(name, pod)| Some((name, pod?)));
                    world.pods = ours.collect();
                },
            ),
            self.follow_kind::<Deployment>(Kind::Deployment, Api::namespaced(client(), namespace), &cancel),
            self.follow_kind::<FlowSchema>(Kind::FlowSchema, Api::all(client()), &cancel),
            self.follow_kind::<NetworkPolicy>(
                Kind::NetworkPolicy,
                Api::namespaced(client(), namespace),
                &cancel
            ),
            self.follow_kind::<PodDisruptionBudget>(
                Kind::DisruptionBudget,
                Api::namespaced(client(), namespace),
                &cancel
            ),
            self.follow_kind::<PriorityLevelConfiguration>(Kind::PriorityLevel, Api::all(client()), &cancel),
            self.follow_kind::<ResourceQuota>(
                Kind::ResourceQuota,
                Api::namespaced(client(), namespace),
                &cancel
            ),
            self.follow_kind::<Service>(Kind::Service, Api::namespaced(client(), namespace), &cancel),
            owner::follow(client(), &cancel, |owner| self.change(|world| world.owner = owner)),
            cancel.run_until_cancelled(
                self.follow_told(&self.admission, |world, troubles| world.admission = troubles)
            ),
            cancel.run_until_cancelled(self.follow_told(removal, |world, removal| world.removal = removal)),
        );
    }

    /// What another loop tells, until that ends.
    async fn follow_told<T: Clone>(&self, told: &watch::Receiver<T>, store: impl Fn(&mut World, T)) {
        let mut told = told.clone();
        told.mark_changed();
        while told.changed().await.is_ok() {
            let now = told.borrow_and_update().clone();
            self.change(|world| store(world, now));
        }
    }

    /// Follows who asks something, until `cancel`.
    pub(super) async fn follow_orders(&self, cancel: &CancellationToken) {
        let if_installed = WatchOptions { absent_is_empty: true, ..WatchOptions::default() };
        tokio::join!(
            self.follow_all(WatchOptions::default(), AaqWire::order, cancel, |world, aaqs| {
                world.aaqs = Some(aaqs);
            }),
            self.follow_all(if_installed, MtqWire::order, cancel, |world, mtqs| world.mtqs = Some(mtqs)),
        );
    }

    /// Whether this CRD keeps what the controller records.
    async fn follow_schema(&self, name: &'static str, cancel: &CancellationToken) {
        let options = WatchOptions::default().fields(format!("metadata.name={name}"));
        let read = |crd: CustomResourceDefinition| schema_too_old(&crd);
        self.follow_all(options, read, cancel, |world, found| match found.into_values().flatten().next() {
            Some(why) => drop(world.too_old.insert(name, why)),
            None => drop(world.too_old.remove(name)),
        })
        .await;
    }

    /// All objects of a kind, by name.
    async fn follow_all<K, T>(
        &self,
        options: WatchOptions,
        read: impl Fn(K) -> T,
        cancel: &CancellationToken,
        store: impl Fn(&mut World, BTreeMap<String, T>),
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
        T: Clone,
    {
        let health = WatchHealth::new(K::plural(&()));
        self.follow_in(Api::all(self.client.clone()), options, (read, &health), cancel, store).await;
    }

    /// Those that `api` has, by name.
    pub(super) async fn follow_in<K, T>(
        &self,
        api: Api<K>,
        options: WatchOptions,
        (read, health): (impl Fn(K) -> T, &WatchHealth),
        cancel: &CancellationToken,
        store: impl Fn(&mut World, BTreeMap<String, T>),
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
        T: Clone,
    {
        let (mut known, mut is_complete) = (BTreeMap::new(), false);
        let sink = |event: Event<K>| {
            match event {
                Event::Init => {
                    known.clear();
                    is_complete = false;
                }
                Event::InitDone => is_complete = true,
                Event::InitApply(object) | Event::Apply(object) => {
                    known.insert(object.name_any(), read(object));
                }
                Event::Delete(object) => {
                    known.remove(&object.name_any());
                }
            }
            if is_complete {
                self.change(|world| store(world, known.clone()));
            }
        };
        // If resource versions went back the watches of the Secrets end the process.
        let _ = watch_kind(api, options, sink, health.clone(), cancel.clone()).await;
    }

    /// The objects of a kind of operands that have our labels. One that loses them counts as gone, and gets them back.
    async fn follow_kind<K>(&self, kind: Kind, api: Api<OperandWire<K>>, cancel: &CancellationToken)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + 'static,
    {
        let mut listed = None;
        let sink = |event: Event<OperandWire<K>>| match event {
            Event::Init => listed = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                listed.get_or_insert_default().insert(object.name_any(), Live::of(object));
            }
            Event::InitDone => {
                let listed = listed.take().unwrap_or_default();
                self.change(|world| {
                    let is_removed = world.presence().is_to_go();
                    world.unlisted.remove(&kind);
                    world.operands.entry(kind).or_default().replace(listed, is_removed);
                });
            }
            Event::Apply(object) => {
                let (name, live) = (object.name_any(), Live::of(object));
                self.change(|world| world.operands.entry(kind).or_default().put(name, live));
            }
            Event::Delete(object) => {
                self.change(|world| {
                    let is_removed = world.presence().is_to_go();
                    world.operands.entry(kind).or_default().take(&object.name_any(), is_removed);
                });
            }
        };
        let options = WatchOptions::default().labels(format!("{PART_OF}={}", names::APP));
        let health = WatchHealth::new(kind.resource().plural);
        let unlisted = async {
            while tokio::time::timeout(PATIENCE, health.synced()).await.is_err() {
                if let Err(why) = health.check() {
                    self.change(|world| drop(world.unlisted.insert(kind, why)));
                }
            }
        };
        // As above.
        let _ = tokio::join!(
            watch_kind(api, options, sink, health.clone(), cancel.clone()),
            cancel.run_until_cancelled(unlisted),
        );
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut World)) {
        self.seen.send_if_modified(|world| {
            let before = world.clone();
            change(world);
            *world != before
        });
    }
}
