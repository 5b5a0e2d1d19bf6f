//! What only the controllers look at: LimitRanges, and who grants head-room.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::LimitRange;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use sluice_api::{HeadroomPolicy, VirtualMachineMigrationResourceQuota as Vmmrq, names};
use sluice_runtime::watch::{Event, Lenient, WatchHealth, WatchOptions, watch};
use tokio::sync::watch as signal;
use tokio_util::sync::CancellationToken;

/// Namespace and name.
pub(super) type Place = (Arc<str>, Arc<str>);

/// What the controllers watch beside [`sluice_window::Observed`]; clones share it.
#[derive(Clone, Debug)]
pub struct Sources {
    pub(super) sights: Arc<Mutex<Sights>>,
    /// A number that grows with every change.
    pub(super) changes: Arc<signal::Sender<u64>>,
    healths: [WatchHealth; 3],
}

impl Default for Sources {
    fn default() -> Self {
        let health = |kind: &str| WatchHealth::new(format!("{kind} (head-room)"));
        Self {
            sights: Arc::default(),
            changes: Arc::new(signal::Sender::new(0)),
            healths: [health("limitranges"), health(names::VMMRQS), health(names::HEADROOM_POLICIES)],
        }
    }
}

impl Sources {
    /// The health of the watches.
    #[must_use]
    pub fn watches(&self) -> &[WatchHealth] {
        &self.healths
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Watches until `cancel`. Every replica does that, leader or not.
    pub async fn observe(self, client: Client, cancel: CancellationToken) {
        let [ranges, vmmrqs, policies] = &self.healths;
        let range_api = Api::<PartialObjectMeta<_>>::all(client.clone());
        tokio::join!(
            self.follow(range_api, ranges, &cancel, Sights::see_limit_range),
            self.follow_leniently(&client, vmmrqs, &cancel, Sights::see_vmmrq),
            self.follow_leniently(&client, policies, &cancel, Sights::see_policy),
        );
    }

    async fn follow<K>(
        &self,
        api: Api<K>,
        health: &WatchHealth,
        cancel: &CancellationToken,
        see: fn(&mut Sights, Event<K>),
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let sink = |event| {
            see(&mut self.sights.lock(), event);
            self.changed();
        };
        watch(api, WatchOptions::default(), sink, health.clone(), cancel.clone()).await;
    }

    /// A version of an object that cannot be read is left out.
    async fn follow_leniently<K>(
        &self,
        client: &Client,
        health: &WatchHealth,
        cancel: &CancellationToken,
        see: fn(&mut Sights, Event<K>),
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let sink = |event: Event<Lenient<K>>| {
            if let Some(event) = readable(event) {
                see(&mut self.sights.lock(), event);
                self.changed();
            }
        };
        let api = Api::<Lenient<K>>::all(client.clone());
        watch(api, WatchOptions::default(), sink, health.clone(), cancel.clone()).await;
    }
}

fn readable<K>(event: Event<Lenient<K>>) -> Option<Event<K>> {
    match event {
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
        Event::InitApply(object) => object.0.ok().map(Event::InitApply),
        Event::Apply(object) => object.0.ok().map(Event::Apply),
        Event::Delete(object) => object.0.ok().map(Event::Delete),
    }
}

/// Everything that is seen.
#[derive(Debug, Default)]
pub(super) struct Sights {
    limit_ranges: LimitRanges,
    pub(super) vmmrqs: Objects<Vmmrq>,
    pub(super) policies: Objects<HeadroomPolicy>,
    /// Namespaces about which something changed.
    pub(super) dirty: BTreeSet<Arc<str>>,
    /// Something changed that matters everywhere.
    pub(super) all: bool,
}

/// Objects of a kind of which there are few.
#[derive(Debug)]
pub(super) struct Objects<K> {
    known: BTreeMap<Place, Arc<K>>,
    listed: Option<BTreeSet<Place>>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), listed: None }
    }
}

impl<K: Resource> Objects<K> {
    /// Takes note of a change. Returns the namespaces that it is about.
    pub(super) fn see(&mut self, event: Event<K>) -> Vec<Arc<str>> {
        match event {
            Event::Init => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => {
                let place = place(&object);
                if let Some(listed) = &mut self.listed {
                    listed.insert(place.clone());
                }
                let changed = vec![Arc::clone(&place.0)];
                self.known.insert(place, Arc::new(object));
                changed
            }
            Event::InitDone => {
                let Some(listed) = self.listed.take() else { return Vec::new() };
                let gone = self.known.extract_if(.., |place, _| !listed.contains(place));
                gone.map(|((namespace, _), _)| namespace).collect()
            }
            Event::Delete(object) => {
                let place = place(&object);
                self.known.remove(&place);
                vec![place.0]
            }
        }
    }

    pub(super) fn get(&self, place: &Place) -> Option<&Arc<K>> {
        self.known.get(place)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Place, &Arc<K>)> {
        self.known.iter()
    }

    pub(super) fn in_namespace<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Place, &'a Arc<K>)> {
        let first: Place = (namespace.into(), "".into());
        self.known.range(first..).take_while(move |(place, _)| &*place.0 == namespace)
    }
}

fn place(object: &impl Resource) -> Place {
    let meta = object.meta();
    (meta.namespace.as_deref().unwrap_or_default().into(), meta.name.as_deref().unwrap_or_default().into())
}

/// How often the LimitRanges of each namespace changed.
#[derive(Debug, Default)]
struct LimitRanges {
    objects: Objects<PartialObjectMeta<LimitRange>>,
    changes: BTreeMap<Arc<str>, u64>,
}

impl LimitRanges {
    fn see(&mut self, event: Event<PartialObjectMeta<LimitRange>>) -> Vec<Arc<str>> {
        if let Event::InitApply(object) | Event::Apply(object) = &event
            && self
                .objects
                .get(&place(object))
                .is_some_and(|known| known.metadata.resource_version == object.metadata.resource_version)
        {
            if let Some(listed) = &mut self.objects.listed {
                listed.insert(place(object));
            }
            return Vec::new();
        }
        let changed = self.objects.see(event);
        for namespace in &changed {
            *self.changes.entry(Arc::clone(namespace)).or_default() += 1;
        }
        changed
    }
}

impl Sights {
    pub(super) fn see_limit_range(&mut self, event: Event<PartialObjectMeta<LimitRange>>) {
        self.dirty.extend(self.limit_ranges.see(event));
    }

    pub(super) fn see_vmmrq(&mut self, event: Event<Vmmrq>) {
        self.dirty.extend(self.vmmrqs.see(event));
    }

    pub(super) fn see_policy(&mut self, event: Event<HeadroomPolicy>) {
        self.all |= !self.policies.see(event).is_empty();
    }

    /// Grows when a LimitRange of the namespace changes.
    pub(super) fn limit_ranges(&self, namespace: &str) -> u64 {
        self.limit_ranges.changes.get(namespace).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_range_that_is_listed_again_has_not_changed() {
        let mut sights = Sights::default();
        let range = |version: &str| -> PartialObjectMeta<LimitRange> {
            serde_json::from_value(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": { "name": "limits", "namespace": "shop", "resourceVersion": version },
            }))
            .unwrap()
        };
        sights.see_limit_range(Event::Apply(range("1")));
        assert_eq!(sights.limit_ranges("shop"), 1);
        for event in [Event::Init, Event::InitApply(range("1")), Event::InitDone] {
            sights.see_limit_range(event);
        }
        assert_eq!(sights.limit_ranges("shop"), 1);
        for event in [Event::Init, Event::InitDone] {
            sights.see_limit_range(event);
        }
        assert_eq!(sights.limit_ranges("shop"), 2, "it is gone");
    }
}
