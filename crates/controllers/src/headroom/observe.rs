//! Reads what is seen of a namespace, and watches what the index does not.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Event;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use sluice_api::names;
use sluice_headroom::Observed;
use sluice_index::headroom::{HeadroomIndex, MigrationRecord, Phase};
use sluice_kube_ext::watch::{Delta, Lenient, WatchHealth, WatchOptions, watch};
use tokio::sync::watch as signal;
use tokio_util::sync::CancellationToken;

use super::facts::{BlockedFacts, NamespaceFacts, WindowFacts};
use super::sights::Sights;

/// Label of the locks of managed-tenant-quota.
pub(super) const LOCK_LABEL: &str = "mtq-lock-server";

/// What the controllers watch beside [`Observed`].
#[derive(Clone, Debug)]
pub(super) struct Sources {
    pub(super) sights: Arc<Mutex<Sights>>,
    /// A number that grows with every change.
    pub(super) changes: Arc<signal::Sender<u64>>,
    healths: [WatchHealth; 6],
}

impl Sources {
    pub(super) fn new() -> Self {
        let health = |kind: &str| WatchHealth::new(format!("{kind} (head-room)"));
        Self {
            sights: Arc::default(),
            changes: Arc::new(signal::Sender::new(0)),
            healths: [
                health("events"),
                health("limitranges"),
                health("kubevirts"),
                health(names::VMMRQS),
                health(names::HEADROOM_POLICIES),
                health("validatingwebhookconfigurations"),
            ],
        }
    }

    pub(super) fn watches(&self) -> &[WatchHealth] {
        &self.healths
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Watches until `cancel`.
    pub(super) async fn observe(self, client: Client, cancel: CancellationToken) {
        let [events, ranges, kubevirts, vmmrqs, policies, locks] = &self.healths;
        let all = WatchOptions::default;
        let refused = all().fields("reason=FailedCreate,involvedObject.kind=VirtualMachineInstance");
        let locked = all().labels(format!("{LOCK_LABEL}={LOCK_LABEL}"));
        let kind = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt"),
            "kubevirts",
        );
        let optional = WatchOptions { absent_is_empty: true, ..all() };
        let kubevirt_api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let any = Api::<Event>::all(client.clone());
        let range_api = Api::<PartialObjectMeta<_>>::all(client.clone());
        let lock_api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
        tokio::join!(
            self.follow(any, refused, events, &cancel, Sights::see_event),
            self.follow(range_api, all(), ranges, &cancel, Sights::see_limit_range),
            self.follow(kubevirt_api, optional, kubevirts, &cancel, Sights::see_kubevirt),
            self.follow_leniently(&client, vmmrqs, &cancel, Sights::see_vmmrq),
            self.follow_leniently(&client, policies, &cancel, Sights::see_policy),
            self.follow(lock_api, locked, locks, &cancel, Sights::see_lock),
        );
    }

    async fn follow<K>(
        &self,
        api: Api<K>,
        options: WatchOptions,
        health: &WatchHealth,
        cancel: &CancellationToken,
        see: fn(&mut Sights, Delta<K>),
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let sink = |delta| {
            see(&mut self.sights.lock(), delta);
            self.changed();
        };
        watch(api, options, sink, health.clone(), cancel.clone()).await;
    }

    /// A version of an object that cannot be read is left out.
    async fn follow_leniently<K>(
        &self,
        client: &Client,
        health: &WatchHealth,
        cancel: &CancellationToken,
        see: fn(&mut Sights, Delta<K>),
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let sink = |delta: Delta<Lenient<K>>| {
            if let Some(delta) = readable(delta) {
                see(&mut self.sights.lock(), delta);
                self.changed();
            }
        };
        let api = Api::<Lenient<K>>::all(client.clone());
        watch(api, WatchOptions::default(), sink, health.clone(), cancel.clone()).await;
    }
}

fn readable<K>(delta: Delta<Lenient<K>>) -> Option<Delta<K>> {
    match delta {
        Delta::ListBegin => Some(Delta::ListBegin),
        Delta::ListEnd => Some(Delta::ListEnd),
        Delta::Listed(object) => object.0.ok().map(Delta::Listed),
        Delta::Applied(object) => object.0.ok().map(Delta::Applied),
        Delta::Deleted(object) => object.0.ok().map(Delta::Deleted),
    }
}

/// What is seen of a namespace.
pub(super) fn facts(observed: &Observed, sights: &Mutex<Sights>, namespace: &str) -> NamespaceFacts {
    let sights = sights.lock();
    observed.read(|index| NamespaceFacts {
        opted_out: index.opted_out(namespace),
        quotas: index.quotas_in(namespace),
        budget: index.budget(namespace),
        window: index
            .windows
            .get(namespace)
            .map(|window| WindowFacts { nonce: Arc::from(&*window.nonce), until: window.until }),
        blocked: blocked(index, &sights, namespace),
        running: running(index, namespace),
        limit_ranges: sights.limit_ranges(namespace),
        creator: index.kubevirt_controller(),
        limits: sights.limits(),
    })
}

fn has_target(index: &HeadroomIndex, migration: &MigrationRecord) -> bool {
    index.targets.of_migration(&migration.uid).next().is_some()
}

fn blocked(index: &HeadroomIndex, sights: &Sights, namespace: &str) -> Vec<BlockedFacts> {
    let all = index.migrations.in_namespace(namespace).iter();
    let mut waiting: Vec<_> =
        all.filter(|migration| migration.is_waiting() && !has_target(index, migration)).collect();
    waiting.sort_by_key(|migration| {
        (Reverse(migration.priority), migration.created, Arc::clone(&migration.name))
    });
    let facts = waiting.into_iter().filter_map(|migration| {
        let machine = index.machines.get(namespace, &migration.machine)?;
        let attempt = sights.attempt(&machine.uid).filter(|attempt| attempt.at >= migration.created);
        Some(BlockedFacts {
            uid: migration.uid.clone(),
            name: Arc::clone(&migration.name),
            version: migration.version.to_string().into(),
            machine: Arc::clone(&machine.name),
            machine_uid: machine.uid.to_string().into(),
            node: machine.node.as_deref().map(Arc::from),
            attempt: attempt.cloned(),
        })
    });
    facts.collect()
}

fn running(index: &HeadroomIndex, namespace: &str) -> Vec<Option<Arc<str>>> {
    let all = index.migrations.in_namespace(namespace).iter();
    let counted = all.filter(|migration| {
        !migration.is_final() && (migration.phase == Phase::Underway || has_target(index, migration))
    });
    let node = |migration: &Arc<MigrationRecord>| {
        let machine = index.machines.get(namespace, &migration.machine)?;
        machine.node.as_deref().map(Arc::from)
    };
    counted.map(node).collect()
}

/// The namespaces in which there may be something to do.
pub(super) fn interesting(observed: &Observed) -> BTreeSet<Arc<str>> {
    observed.read(|index| {
        let raised = index.quotas.raised().map(|key| Arc::clone(&key.namespace));
        let windows = index.windows.iter().map(|window| Arc::clone(&window.namespace));
        let all = index.namespaces.all().iter().map(|namespace| Arc::clone(&namespace.name));
        let busy = all.filter(|namespace| {
            let migrations = index.migrations.in_namespace(namespace);
            migrations.iter().any(|migration| !migration.is_final())
        });
        raised.chain(windows).chain(busy).collect()
    })
}
