//! What the plan looks at: who asks something of the installation, its Deployments, and the names of PriorityClasses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::{holding, names};
use sluice_operator::Installation;
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, watch as watch_kind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::fields::Fields;
use super::wire::{AaqWire, DeploymentWire, MtqWire, Order, Orders as _, PriorityClassWire};
use crate::presence::{Presence, Removal};

/// The Deployments that `AAQ` and `MTQ` are about.
pub(super) const OPERANDS: [&str; 2] = [names::CONTROLLER, names::WEBHOOK];

/// Everything that the plan depends on. What is missing here was not looked for yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct World {
    /// By name.
    pub(super) aaqs: Option<BTreeMap<String, Order>>,
    /// By name; none where the cluster does not have the kind.
    pub(super) mtqs: Option<BTreeMap<String, Order>>,
    /// Those that a pod may name.
    pub(super) priority_classes: Option<BTreeSet<String>>,
    /// [`OPERANDS`] and the operator's own; `None` for one that does not exist.
    pub(super) deployments: BTreeMap<&'static str, Option<Operand>>,
    /// Why admission objects that are missing are not created.
    pub(super) withheld: Option<String>,
    /// What installs.
    pub(super) mode: Installation,
    /// How far the removal is.
    pub(super) removal: Removal,
}

/// A Deployment of the installation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Operand {
    pub(super) resource_version: String,
    /// What it says of the fields that an `AAQ` may set.
    pub(super) fields: Fields,
    /// Which version of the operator has written it last.
    pub(super) writer: Option<String>,
    pub(super) rollout: Rollout,
}

/// Pods of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rollout {
    /// So many are asked for.
    pub(super) wanted: i64,
    /// So many there are, in the old form too.
    pub(super) total: i64,
    /// So many have the form that is asked for.
    pub(super) updated: i64,
    /// So many do their work.
    pub(super) ready: i64,
    /// The other numbers are about what is asked for now.
    pub(super) is_observed: bool,
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
}

fn first(orders: Option<&BTreeMap<String, Order>>) -> Option<&Order> {
    holding(orders.into_iter().flat_map(BTreeMap::values), |order| (order.gives_way, order.created))
}

/// Reads a Deployment, whose container has its name.
pub(super) fn operand(object: &DeploymentWire) -> Operand {
    let metadata = &object.metadata;
    let number = |of: &Value, pointer: &str| of.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let replicas = object.spec.get("replicas").and_then(Value::as_i64);
    let annotations = metadata.annotations.as_ref();
    Operand {
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        fields: Fields::of(object),
        writer: annotations.and_then(|all| all.get(names::WRITER_VERSION_ANNOTATION)).cloned(),
        rollout: Rollout {
            wanted: replicas.unwrap_or(1),
            total: number(&object.status, "/replicas"),
            updated: number(&object.status, "/updatedReplicas"),
            ready: number(&object.status, "/readyReplicas"),
            is_observed: number(&object.status, "/observedGeneration")
                >= metadata.generation.unwrap_or_default(),
        },
    }
}

/// The watches that fill a [`World`].
pub(super) struct Sources {
    client: Client,
    namespace: String,
    withheld: watch::Receiver<Option<String>>,
    seen: watch::Sender<World>,
}

impl Sources {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        withheld: watch::Receiver<Option<String>>,
        seen: watch::Sender<World>,
    ) -> Self {
        Self { client, namespace: namespace.to_owned(), withheld, seen }
    }

    /// Follows all of it, with how far the `removal` is, until `cancel`.
    pub(super) async fn follow(self, removal: &watch::Receiver<Removal>, cancel: CancellationToken) {
        let [controller, webhook] = OPERANDS;
        tokio::join!(
            self.follow_orders(&cancel),
            self.follow_all(
                WatchOptions::default(),
                |_: PriorityClassWire| (),
                &cancel,
                |world, classes| {
                    world.priority_classes = Some(classes.into_keys().collect());
                }
            ),
            self.follow_deployment(controller, &cancel),
            self.follow_deployment(webhook, &cancel),
            self.follow_deployment(names::OPERATOR, &cancel),
            cancel.run_until_cancelled(self.follow_told(&self.withheld, |world, why| world.withheld = why)),
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
        let api: Api<K> = Api::all(self.client.clone());
        // If resource versions went back the watches of the Secrets end the process.
        let _ = watch_kind(api, options, sink, WatchHealth::new(K::plural(&())), cancel.clone()).await;
    }

    async fn follow_deployment(&self, name: &'static str, cancel: &CancellationToken) {
        let mut listed = None;
        let sink = |event: Event<DeploymentWire>| {
            let found = match event {
                Event::Init => {
                    listed = None;
                    return;
                }
                Event::InitApply(object) => {
                    listed = Some(operand(&object));
                    return;
                }
                Event::InitDone => listed.take(),
                Event::Apply(object) => Some(operand(&object)),
                Event::Delete(_) => None,
            };
            self.change(|world| {
                world.deployments.insert(name, found);
            });
        };
        let api: Api<DeploymentWire> = Api::namespaced(self.client.clone(), &self.namespace);
        let options = WatchOptions::default().fields(format!("metadata.name={name}"));
        // As above.
        let _ = watch_kind(api, options, sink, WatchHealth::new(name), cancel.clone()).await;
    }

    fn change(&self, change: impl FnOnce(&mut World)) {
        self.seen.send_if_modified(|world| {
            let before = world.clone();
            change(world);
            *world != before
        });
    }
}
