//! What only the controllers look at: refused attempts, LimitRanges, KubeVirt's limits, who grants head-room, and
//! what managed-tenant-quota locked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Event, LimitRange};
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt as _};
use serde_json::Value;
use sluice_api::{HeadroomPolicy, VirtualMachineMigrationResourceQuota as Vmmrq};
use sluice_engine::Uid;
use sluice_kube_ext::watch::Delta;

use super::attempt::Attempt;
use super::facts::Limits;

/// Namespace and name.
pub(super) type Place = (Arc<str>, Arc<str>);

/// Everything that is seen.
#[derive(Debug, Default)]
pub(super) struct Sights {
    attempts: Attempts,
    limit_ranges: LimitRanges,
    limits: BTreeMap<(Option<Timestamp>, String), Limits>,
    pub(super) vmmrqs: Objects<Vmmrq>,
    pub(super) policies: Objects<HeadroomPolicy>,
    pub(super) locks: Objects<ValidatingWebhookConfiguration>,
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
    pub(super) fn see(&mut self, delta: Delta<K>) -> Vec<Arc<str>> {
        match delta {
            Delta::ListBegin => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            Delta::Listed(object) | Delta::Applied(object) => {
                let place = place(&object);
                if let Some(listed) = &mut self.listed {
                    listed.insert(place.clone());
                }
                let changed = vec![Arc::clone(&place.0)];
                self.known.insert(place, Arc::new(object));
                changed
            }
            Delta::ListEnd => {
                let Some(listed) = self.listed.take() else { return Vec::new() };
                let gone = self.known.extract_if(.., |place, _| !listed.contains(place));
                gone.map(|((namespace, _), _)| namespace).collect()
            }
            Delta::Deleted(object) => {
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

/// The newest refused attempt for each virtual machine, with the name of the event that tells of it.
#[derive(Debug, Default)]
struct Attempts {
    known: BTreeMap<Uid, (String, Attempt)>,
    listing: Option<BTreeMap<Uid, (String, Attempt)>>,
}

impl Attempts {
    fn see(&mut self, delta: Delta<Event>) -> Option<Arc<str>> {
        match delta {
            Delta::ListBegin => self.listing = Some(BTreeMap::new()),
            Delta::ListEnd => {
                if let Some(listing) = self.listing.take() {
                    self.known = listing;
                }
            }
            Delta::Listed(event) => {
                let listing = self.listing.get_or_insert_default();
                return note(listing, &event);
            }
            Delta::Applied(event) => return note(&mut self.known, &event),
            Delta::Deleted(event) => {
                let machine = machine(&event);
                if self.known.get(&machine).is_some_and(|(name, _)| *name == event.name_any()) {
                    self.known.remove(&machine);
                }
            }
        }
        None
    }
}

fn machine(event: &Event) -> Uid {
    Uid::parse(event.involved_object.uid.as_deref().unwrap_or_default())
}

/// Returns the namespace if this is news.
fn note(known: &mut BTreeMap<Uid, (String, Attempt)>, event: &Event) -> Option<Arc<str>> {
    let attempt = Attempt::read(event.message.as_deref()?, last_seen(event)?)?;
    let machine = machine(event);
    if known.get(&machine).is_some_and(|(_, other)| other.at > attempt.at) {
        return None;
    }
    let other = known.insert(machine, (event.name_any(), attempt.clone()));
    let same = other.is_some_and(|(_, other)| other.requested == attempt.requested);
    (!same).then(|| event.namespace().unwrap_or_default().into())
}

/// When it last happened. Which of the times is filled depends on who wrote the event.
fn last_seen(event: &Event) -> Option<i64> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let seconds = series.map(|time| time.0.as_second());
    let seconds = seconds.or_else(|| event.last_timestamp.as_ref().map(|time| time.0.as_second()));
    seconds.or_else(|| event.event_time.as_ref().map(|time| time.0.as_second()))
}

/// How often the LimitRanges of each namespace changed.
#[derive(Debug, Default)]
struct LimitRanges {
    objects: Objects<PartialObjectMeta<LimitRange>>,
    changes: BTreeMap<Arc<str>, u64>,
}

impl LimitRanges {
    fn see(&mut self, delta: Delta<PartialObjectMeta<LimitRange>>) -> Vec<Arc<str>> {
        if let Delta::Listed(object) | Delta::Applied(object) = &delta
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
        let changed = self.objects.see(delta);
        for namespace in &changed {
            *self.changes.entry(Arc::clone(namespace)).or_default() += 1;
        }
        changed
    }
}

impl Sights {
    pub(super) fn see_event(&mut self, delta: Delta<Event>) {
        self.dirty.extend(self.attempts.see(delta));
    }

    pub(super) fn see_limit_range(&mut self, delta: Delta<PartialObjectMeta<LimitRange>>) {
        self.dirty.extend(self.limit_ranges.see(delta));
    }

    pub(super) fn see_vmmrq(&mut self, delta: Delta<Vmmrq>) {
        self.dirty.extend(self.vmmrqs.see(delta));
    }

    pub(super) fn see_policy(&mut self, delta: Delta<HeadroomPolicy>) {
        self.all |= !self.policies.see(delta).is_empty();
    }

    pub(super) fn see_lock(&mut self, delta: Delta<ValidatingWebhookConfiguration>) {
        self.all |= !self.locks.see(delta).is_empty();
    }

    pub(super) fn see_kubevirt(&mut self, delta: Delta<kube::core::DynamicObject>) {
        let key = |object: &kube::core::DynamicObject| {
            let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created, format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()))
        };
        let before = self.limits();
        match delta {
            Delta::ListBegin => self.limits.clear(),
            Delta::ListEnd => {}
            Delta::Listed(object) | Delta::Applied(object) => {
                self.limits.insert(key(&object), limits(&object.data));
            }
            Delta::Deleted(object) => {
                self.limits.remove(&key(&object));
            }
        }
        self.all |= before != self.limits();
    }

    /// KubeVirt's limits; of several installations those of the oldest.
    pub(super) fn limits(&self) -> Limits {
        self.limits.values().next().copied().unwrap_or_default()
    }

    /// The last refused attempt for a virtual machine.
    pub(super) fn attempt(&self, machine: &Uid) -> Option<&Attempt> {
        self.attempts.known.get(machine).map(|(_, attempt)| attempt)
    }

    /// Grows when a LimitRange of the namespace changes.
    pub(super) fn limit_ranges(&self, namespace: &str) -> u64 {
        self.limit_ranges.changes.get(namespace).copied().unwrap_or(0)
    }
}

fn limits(kubevirt: &Value) -> Limits {
    let read = |key: &str| {
        let number = kubevirt.pointer(&format!("/spec/configuration/migrations/{key}"))?.as_u64()?;
        usize::try_from(number).ok()
    };
    let default = Limits::default();
    Limits {
        cluster: read("parallelMigrationsPerCluster").unwrap_or(default.cluster),
        outbound: read("parallelOutboundMigrationsPerNode").unwrap_or(default.outbound),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, machine: &str, memory: u64, at: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "shop" },
            "involvedObject": { "kind": "VirtualMachineInstance", "uid": machine },
            "message": format!("exceeded quota: rq, requested: memory={memory}, used: memory=1, limited: memory=1"),
            "lastTimestamp": at,
        }))
        .unwrap()
    }

    #[test]
    fn the_newest_attempt_counts_until_its_event_is_gone() {
        let mut sights = Sights::default();
        let (first, second) =
            (event("a", "vm", 5, "2026-01-01T00:00:01Z"), event("b", "vm", 7, "2026-01-01T00:00:02Z"));
        sights.see_event(Delta::Applied(second.clone()));
        assert_eq!(sights.dirty.pop_first().as_deref(), Some("shop"));
        sights.see_event(Delta::Applied(first.clone()));
        sights.see_event(Delta::Applied(second.clone()));
        assert_eq!(sights.dirty.pop_first(), None, "neither is news");
        sights.see_event(Delta::Deleted(first));
        assert!(sights.attempt(&Uid::parse("vm")).is_some());
        sights.see_event(Delta::Deleted(second));
        assert_eq!(sights.attempt(&Uid::parse("vm")), None);
    }

    #[test]
    fn a_list_replaces_what_was_known() {
        let mut sights = Sights::default();
        sights.see_event(Delta::Applied(event("a", "vm", 5, "2026-01-01T00:00:01Z")));
        sights.see_event(Delta::ListBegin);
        sights.see_event(Delta::Listed(event("b", "other", 5, "2026-01-01T00:00:01Z")));
        assert!(sights.attempt(&Uid::parse("vm")).is_some(), "until the list is complete");
        sights.see_event(Delta::ListEnd);
        assert_eq!(sights.attempt(&Uid::parse("vm")), None);
        assert!(sights.attempt(&Uid::parse("other")).is_some());
    }

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
        sights.see_limit_range(Delta::Applied(range("1")));
        assert_eq!(sights.limit_ranges("shop"), 1);
        for delta in [Delta::ListBegin, Delta::Listed(range("1")), Delta::ListEnd] {
            sights.see_limit_range(delta);
        }
        assert_eq!(sights.limit_ranges("shop"), 1);
        for delta in [Delta::ListBegin, Delta::ListEnd] {
            sights.see_limit_range(delta);
        }
        assert_eq!(sights.limit_ranges("shop"), 2, "it is gone");
    }

    #[test]
    fn kubevirts_limits_have_its_defaults() {
        let configured =
            json!({ "spec": { "configuration": { "migrations": { "parallelMigrationsPerCluster": 20 } } } });
        assert_eq!(limits(&configured), Limits { cluster: 20, outbound: 2 });
        assert_eq!(limits(&json!({})), Limits { cluster: 5, outbound: 2 });
    }
}
