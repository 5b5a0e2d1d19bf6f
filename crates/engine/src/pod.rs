//! What a plain pod costs (`docs/quota-semantics.md`, *What a pod is charged*).

mod constraints;
mod qos;
mod requests;
mod resize;
mod role;

use smallvec::SmallVec;

use crate::charge::{Amount, Charge};
use crate::quantity::Quantity;
use crate::resource::{DEVICE_CLASS, HUGEPAGES, Resource, is_extended};

pub use constraints::{MissingResources, constraints};
pub(crate) use qos::is_best_effort;

/// Unix time in whole seconds.
pub type UnixSeconds = i64;

/// Amounts by resource name, sorted by name, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceList<'a>(SmallVec<[(&'a str, Quantity); 4]>);

impl<'a> ResourceList<'a> {
    /// Sets the amount of `name`; the last one wins, as in a JSON object. Appending in name order, which
    /// is what the API server sends, costs O(1).
    pub fn insert(&mut self, name: &'a str, quantity: Quantity) {
        if self.0.last().is_none_or(|(last, _)| *last < name) {
            self.0.push((name, quantity));
            return;
        }
        match self.0.binary_search_by(|(candidate, _)| (*candidate).cmp(name)) {
            Ok(found) => {
                if let Some(entry) = self.0.get_mut(found) {
                    entry.1 = quantity;
                }
            }
            Err(place) => self.0.insert(place, (name, quantity)),
        }
    }

    /// The amount of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Quantity> {
        let found = self.0.binary_search_by(|(candidate, _)| (*candidate).cmp(name)).ok()?;
        self.0.get(found).map(|(_, quantity)| *quantity)
    }

    /// All entries by name.
    pub fn iter(&self) -> std::slice::Iter<'_, (&'a str, Quantity)> {
        self.0.iter()
    }

    /// Whether the list has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<(&'a str, Quantity)> for ResourceList<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, Quantity)>>(entries: I) -> Self {
        let mut sorted: SmallVec<[(&'a str, Quantity); 4]> = entries.into_iter().collect();
        // Stable, so that of repeated names the last stays last and wins below.
        sorted.sort_by_key(|(name, _)| *name);
        let mut list = Self::default();
        for (name, quantity) in sorted {
            list.insert(name, quantity);
        }
        list
    }
}

/// `resources` of a container or a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources<'a> {
    pub requests: ResourceList<'a>,
    pub limits: ResourceList<'a>,
}

/// A container or init container of the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container<'a> {
    pub name: &'a str,
    pub resources: Resources<'a>,
    /// `restartPolicy` is `Always`; only looked at for init containers.
    pub restartable: bool,
}

/// What the node reports of a container's resources. Absent and empty differ in the rules of in-place
/// resize.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerStatus<'a> {
    pub name: &'a str,
    /// `resources`, if there.
    pub actuated: Option<ActuatedResources<'a>>,
    /// `allocatedResources`, if there.
    pub allocated: Option<ResourceList<'a>>,
}

/// `resources` of a container status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActuatedResources<'a> {
    /// `requests`, if there.
    pub requests: Option<ResourceList<'a>>,
    /// `limits`, if there.
    pub limits: Option<ResourceList<'a>>,
}

/// The facts of a pod that its charge and its scopes depend on. Ephemeral containers never count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodInput<'a> {
    /// `spec.containers`.
    pub containers: Vec<Container<'a>>,
    /// `spec.initContainers`, in order.
    pub init_containers: Vec<Container<'a>>,
    /// `spec.overhead`.
    pub overhead: ResourceList<'a>,
    /// `spec.resources`, if there: it replaces the containers' sum. An API server that does not know it drops it.
    pub pod_resources: Option<Resources<'a>>,
    /// `status.containerStatuses`, then `status.initContainerStatuses`.
    pub statuses: Vec<ContainerStatus<'a>>,
    /// The first condition of type `PodResizePending` has the reason `Infeasible`.
    pub resize_infeasible: bool,
    /// `status.phase`.
    pub phase: Option<&'a str>,
    /// `metadata.deletionTimestamp`.
    pub deletion_timestamp: Option<UnixSeconds>,
    /// `metadata.deletionGracePeriodSeconds`.
    pub deletion_grace_seconds: Option<i64>,
    /// `spec.activeDeadlineSeconds`.
    pub active_deadline_seconds: Option<i64>,
    /// `spec.priorityClassName`, if there and not empty.
    pub priority_class_name: Option<&'a str>,
    /// `status.qosClass`, if there and not empty.
    pub qos_class: Option<&'a str>,
    /// A required or preferred term of pod affinity or anti-affinity has non-empty `namespaces` or a
    /// `namespaceSelector` (even an empty one).
    pub cross_namespace_affinity: bool,
}

/// How in-place resize enters the charge (`docs/quota-semantics.md`, *In-place resize*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResizeRule {
    /// Up to 1.36: the largest of spec and status per container, then the sum.
    PerContainer,
    /// From 1.37: the sums of spec and of status, then the largest.
    Aggregate,
}

/// The rules that depend on the server's minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChargeRules {
    /// How in-place resize enters the charge.
    pub resize: ResizeRule,
    /// Requests of `deviceclass.resource.kubernetes.io/…` are charged (1.35+).
    pub device_classes: bool,
}

impl ChargeRules {
    /// The rules of Kubernetes 1.`minor`.
    #[must_use]
    pub const fn for_minor(minor: u32) -> Self {
        Self {
            resize: if minor >= 37 { ResizeRule::Aggregate } else { ResizeRule::PerContainer },
            device_classes: minor >= 35,
        }
    }
}

/// What the pod takes at `now`: `count/pods` always, everything else while it [`counts`].
#[must_use]
pub fn pod_charge(pod: &PodInput<'_>, rules: ChargeRules, now: UnixSeconds) -> Charge {
    let mut pairs: SmallVec<[(Resource, Amount); 8]> = SmallVec::new();
    pairs.push((Resource::CountPods, Amount::ONE));
    if counts(pod, now) {
        pairs.push((Resource::Pods, Amount::ONE));
        for (name, nanos) in requests::pod_requests(pod, rules) {
            if let Some(resource) = charged_request(name, rules) {
                pairs.push((resource, Amount::from_nanos(nanos)));
            }
        }
        for (name, nanos) in requests::pod_limits(pod, rules) {
            if let Some(resource) = charged_limit(name) {
                pairs.push((resource, Amount::from_nanos(nanos)));
            }
        }
    }
    Charge::from_pairs(pairs)
}

/// Whether the pod takes more than `count/pods` at `now`: it is not finished, and not overdue after its
/// deletion (`docs/quota-semantics.md`, *Terminal and overdue pods*).
#[must_use]
pub fn counts(pod: &PodInput<'_>, now: UnixSeconds) -> bool {
    !is_finished(pod) && stops_counting_at(pod).is_none_or(|end| now < end)
}

/// The first second at which a pod that is being deleted no longer counts: the one after its deletion
/// timestamp plus its grace period. The timestamp already contains one grace period. Nothing reports that
/// moment, so a program that keeps sums must set a timer.
#[must_use]
pub fn stops_counting_at(pod: &PodInput<'_>) -> Option<UnixSeconds> {
    let deleted = pod.deletion_timestamp?;
    let grace = pod.deletion_grace_seconds?;
    Some(deleted.saturating_add(grace).saturating_add(1))
}

fn is_finished(pod: &PodInput<'_>) -> bool {
    matches!(pod.phase, Some("Succeeded" | "Failed"))
}

fn charged_request(name: &str, rules: ChargeRules) -> Option<Resource> {
    match name {
        "cpu" => Some(Resource::Cpu),
        "memory" => Some(Resource::Memory),
        "ephemeral-storage" => Some(Resource::EphemeralStorage),
        _ if name.starts_with(HUGEPAGES) => Some(Resource::from_quota_key(name)),
        _ if is_extended(name) || (rules.device_classes && name.starts_with(DEVICE_CLASS)) => {
            Some(Resource::from_quota_key(&format!("requests.{name}")))
        }
        _ => None,
    }
}

fn charged_limit(name: &str) -> Option<Resource> {
    match name {
        "cpu" => Some(Resource::LimitsCpu),
        "memory" => Some(Resource::LimitsMemory),
        "ephemeral-storage" => Some(Resource::LimitsEphemeralStorage),
        _ => None,
    }
}
