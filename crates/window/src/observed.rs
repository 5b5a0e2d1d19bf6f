//! What a process knows of the cluster, kept current by watches.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use sluice_api::names;
use sluice_engine::Uid;
use sluice_engine::headroom::{Amounts, MARK, NUDGE_KEY};
use sluice_index::headroom::{Change, HeadroomIndex, Phase, Watched};
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, watch};
use tokio::sync::watch as signal;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::protocol::Rests;
use crate::requests::{BudgetWires, GrantNames};

/// What changed since it was last asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Namespaces in which something changed.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Something changed that may matter everywhere: a policy, or what KubeVirt is.
    pub all: bool,
}

/// The index, its watches, and a signal for every change.
#[derive(Debug)]
pub struct Observed {
    index: RwLock<HeadroomIndex>,
    changes: signal::Sender<u64>,
    dirty: Option<Mutex<Dirty>>,
    healths: Healths,
    rests: Mutex<Rests>,
    epoch: Instant,
}

#[derive(Debug)]
struct Healths {
    kubevirts: WatchHealth,
    migrations: WatchHealth,
    machines: WatchHealth,
    quotas: WatchHealth,
    vmmrqs: WatchHealth,
    policies: WatchHealth,
    namespaces: WatchHealth,
    targets: WatchHealth,
}

impl Observed {
    /// Nothing is known yet. `remember_dirty`: the caller is going to ask for what changed.
    #[must_use]
    pub fn new(remember_dirty: bool) -> Arc<Self> {
        let health = WatchHealth::new;
        let healths = Healths {
            kubevirts: health("kubevirts"),
            migrations: health("virtualmachineinstancemigrations"),
            machines: health("virtualmachineinstances"),
            quotas: health("resourcequotas"),
            vmmrqs: health(names::VMMRQS),
            policies: health(names::HEADROOM_POLICIES),
            namespaces: health("namespaces (head-room)"),
            targets: health("pods (migration targets)"),
        };
        Arc::new(Self {
            index: RwLock::default(),
            changes: signal::Sender::new(0),
            dirty: remember_dirty.then(Mutex::default),
            healths,
            rests: Mutex::default(),
            epoch: Instant::now(),
        })
    }

    /// The watches, for readiness and metrics.
    #[must_use]
    pub fn watches(&self) -> Vec<WatchHealth> {
        let all = &self.healths;
        let kubevirt = [&all.kubevirts, &all.migrations, &all.machines];
        let own = [&all.quotas, &all.vmmrqs, &all.policies, &all.namespaces, &all.targets];
        kubevirt.into_iter().chain(own).cloned().collect()
    }

    /// Whether everything that a target is judged by was listed once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.watches().iter().all(WatchHealth::is_synced)
    }

    /// Looks at what is known. Events wait meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&HeadroomIndex) -> T) -> T {
        look(&self.index.read())
    }

    /// A number that grows with every change.
    #[must_use]
    pub fn changes(&self) -> signal::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What changed since the last call.
    #[must_use]
    pub fn take_dirty(&self) -> Dirty {
        self.dirty.as_ref().map(|dirty| std::mem::take(&mut *dirty.lock())).unwrap_or_default()
    }

    /// Waits until `look` finds something, in at most `time`.
    pub async fn until<T>(&self, time: Duration, look: impl Fn(&HeadroomIndex) -> Option<T>) -> Option<T> {
        let mut changes = self.changes();
        let found = async {
            loop {
                changes.mark_unchanged();
                if let Some(found) = self.read(&look) {
                    return Some(found);
                }
                changes.changed().await.ok()?;
            }
        };
        timeout(time, found).await.ok().flatten()
    }

    /// Takes in what was read beside the watches, as far as it is newer: what of `asked` was not found is gone.
    pub fn learn(&self, namespace: &str, asked: &GrantNames, budget: &BudgetWires) {
        let mut index = self.index.write();
        let is_it = |meta: &ObjectMeta, name: &str| meta.name.as_deref() == Some(name);
        for name in
            asked.vmmrqs.iter().filter(|name| !budget.vmmrqs.iter().any(|wire| is_it(&wire.metadata, name)))
        {
            index.vmmrqs.remove_named(namespace, name);
        }
        for name in asked
            .policies
            .iter()
            .filter(|name| !budget.policies.iter().any(|wire| is_it(&wire.metadata, name)))
        {
            index.policies.remove_named("", name);
        }
        for vmmrq in &budget.vmmrqs {
            index.vmmrqs.upsert(vmmrq);
        }
        for policy in &budget.policies {
            index.policies.upsert(policy);
        }
        if let Some(namespace) = &budget.namespace {
            index.namespaces.upsert(namespace);
        }
    }

    /// Whether nothing is to be raised in the namespace now, because raising did not help or it was locked too much.
    #[must_use]
    pub fn is_resting(&self, namespace: &str) -> bool {
        let rests = self.rests.lock();
        !rests.is_empty()
            && rests.is_resting(namespace, self.read(|index| situation(index, namespace)), self.now_ms())
    }

    /// Stands for what decides, in the hands of administrators, whether raising helps in a namespace.
    #[must_use]
    pub fn situation(&self, namespace: &str) -> u64 {
        self.read(|index| situation(index, namespace))
    }

    /// A pod that room was not made for has taken it.
    pub fn taken(&self, namespace: &Arc<str>) {
        let situation = self.situation(namespace);
        self.rests.lock().taken(namespace, situation, self.now_ms());
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes note of locks that begin and end.
    fn note_locks(&self, places: &[Place]) {
        for place in places {
            let Place::Namespace(namespace) = place else { continue };
            let mut rests = self.rests.lock();
            self.read(|index| {
                let raised =
                    index.quotas.raised_in(namespace).filter_map(|key| index.quota(namespace, &key.name));
                let marked: Vec<_> =
                    raised.filter(|quota| quota.mark().is_some()).map(|quota| quota.used).collect();
                let usage = (!marked.is_empty()).then(|| hash(&marked));
                if usage.is_some() || rests.knows(namespace) {
                    rests.see(namespace, usage, situation(index, namespace), self.now_ms());
                }
                if rests.awaits_migrations(namespace) {
                    let all = index.migrations.in_namespace(namespace).iter();
                    let unfinished = all.filter(|one| !one.is_final()).map(|one| one.uid.clone()).collect();
                    let succeeded = |uid: &Uid| {
                        index.migrations.by_uid(uid).is_some_and(|one| one.phase == Phase::Succeeded)
                    };
                    rests.see_migrations(namespace, unfinished, succeeded, self.now_ms());
                }
            });
        }
    }

    /// Watches until `cancel`.
    pub async fn observe(self: Arc<Self>, client: Client, cancel: CancellationToken) {
        let kubevirt = || WatchOptions { absent_is_empty: true, ..WatchOptions::default() };
        let all = WatchOptions::default;
        let targets = all().labels(names::MIGRATION_JOB_LABEL);
        let healths = &self.healths;
        let (a, b, c) = (kubevirt(), kubevirt(), kubevirt());
        tokio::join!(
            self.follow(&client, a, &healths.kubevirts, &cancel, everywhere, |i| &mut i.kubevirts),
            self.follow(&client, b, &healths.migrations, &cancel, namespace_of, |i| &mut i.migrations),
            self.follow(&client, c, &healths.machines, &cancel, namespace_of, |i| &mut i.machines),
            self.follow(&client, all(), &healths.quotas, &cancel, namespace_of, |i| &mut i.quotas),
            self.follow(&client, all(), &healths.vmmrqs, &cancel, namespace_of, |i| &mut i.vmmrqs),
            self.follow(&client, all(), &healths.policies, &cancel, everywhere, |i| &mut i.policies),
            self.follow(&client, all(), &healths.namespaces, &cancel, own_name, |i| &mut i.namespaces),
            self.follow(&client, targets, &healths.targets, &cancel, namespace_of, |i| &mut i.targets),
        );
    }

    async fn follow<W>(
        &self,
        client: &Client,
        options: WatchOptions,
        health: &WatchHealth,
        cancel: &CancellationToken,
        place: fn(&W::Wire) -> Place,
        pick: fn(&mut HeadroomIndex) -> &mut W,
    ) where
        W: Watched,
        W::Wire: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let sink = |event| {
            let places = self.note(event, place, pick);
            if places.is_empty() {
                return;
            }
            self.note_locks(&places);
            self.remember(places);
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        };
        watch(Api::<W::Wire>::all(client.clone()), options, sink, health.clone(), cancel.clone()).await;
    }

    /// Brings the index up to date. Returns where something changed.
    fn note<W: Watched>(
        &self,
        event: Event<W::Wire>,
        place: fn(&W::Wire) -> Place,
        pick: fn(&mut HeadroomIndex) -> &mut W,
    ) -> Vec<Place> {
        let mut index = self.index.write();
        let part = pick(&mut index);
        match event {
            Event::Init => {
                part.begin_list();
                Vec::new()
            }
            Event::InitApply(wire) | Event::Apply(wire) => match part.upsert(&wire) {
                Change::Same => Vec::new(),
                Change::Added | Change::Changed | Change::Replaced => vec![place(&wire)],
            },
            Event::Delete(wire) => {
                if part.remove(&wire) {
                    vec![place(&wire)]
                } else {
                    Vec::new()
                }
            }
            // Also when nothing is missing: callers that wait for the first list have to look again.
            Event::InitDone => {
                let gone = part.end_list().into_iter();
                gone.map(|key| Place::of(&key.namespace)).chain([Place::Nowhere]).collect()
            }
        }
    }

    fn remember(&self, places: Vec<Place>) {
        let Some(dirty) = &self.dirty else { return };
        let mut dirty = dirty.lock();
        for place in places {
            match place {
                Place::Namespace(namespace) => {
                    dirty.namespaces.insert(namespace);
                }
                Place::Everywhere => dirty.all = true,
                Place::Nowhere => {}
            }
        }
    }
}

fn hash(used: &[Amounts]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (key, amount) in used.iter().flatten().filter(|(key, _)| &***key != MARK && &***key != NUDGE_KEY) {
        (key, amount.nanos()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Stands for what decides, in the hands of administrators, whether raising helps in a namespace.
fn situation(index: &HeadroomIndex, namespace: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for quota in index.quotas.records_in(namespace) {
        quota.raw().spec_hard.hash(&mut hasher);
    }
    for grant in index.budget(namespace).grants {
        grant.source().hash(&mut hasher);
        format!("{:?}", grant.additional()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Where a change may matter.
enum Place {
    Namespace(Arc<str>),
    Everywhere,
    Nowhere,
}

impl Place {
    fn of(namespace: &str) -> Self {
        if namespace.is_empty() { Self::Everywhere } else { Self::Namespace(namespace.into()) }
    }
}

fn namespace_of<K: Resource>(object: &K) -> Place {
    Place::of(object.meta().namespace.as_deref().unwrap_or_default())
}

fn own_name<K: Resource>(object: &K) -> Place {
    Place::of(object.meta().name.as_deref().unwrap_or_default())
}

fn everywhere<K: Resource>(_: &K) -> Place {
    Place::Everywhere
}
