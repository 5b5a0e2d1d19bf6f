//! From a decoded pod to the facts a record is made of.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_engine::headroom::{Allowance, Need, Source, growth};
use sluice_engine::pod::{
    ActuatedResources, Container, ContainerStatus, PodInput, ResourceList, Resources, pod_charge,
    stops_counting_at,
};
use sluice_engine::{Amount, Charge, ChargeRules, Format, Quantity, Resource, ScopeFacts, Uid};

use super::ownership::may_be_of_kubevirt;
use super::types::{Gates, Ownership, PodFacts};
use super::{ContainerStatusWire, ContainerWire, ListWire, PodAffinityWire, PodWire, ResourcesWire};
use crate::quantity::ResourceTexts;
use crate::version::Version;

impl PodFacts {
    /// Reads a pod as of `now` (seconds since the epoch). `gate` is the name of our gate.
    #[must_use]
    pub fn read(wire: &PodWire, gate: &str, rules: ChargeRules, now: i64) -> Self {
        let meta = &wire.metadata;
        let (input, unreadable) = input(wire);
        let overdue_at = stops_counting_at(&input).filter(|at| now < *at);
        let mut scope_facts = ScopeFacts::of(&input);
        // KubeVirt sets no deadline. One that others have set would put the pods of one VM under different quotas; of a pod
        // of anybody else it is the creator's choice to have none.
        scope_facts.terminating &= !may_be_of_kubevirt(meta);
        let (charge, crowded) = bounded(pod_charge(&input, rules, now));
        Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: Uid::parse(meta.uid.as_deref().unwrap_or_default()),
            version: Version::parse(meta.resource_version.as_deref()),
            priority: wire.spec.priority.unwrap_or(0),
            created: seconds(meta.creation_timestamp.as_ref()).unwrap_or(now),
            charge,
            unreadable: unreadable.or(crowded),
            scope_facts,
            gates: gates(wire, gate),
            has_ephemeral_volumes: wire.spec.has_ephemeral_volumes,
            overdue_at,
            ownership: Ownership::of(meta, || bounded(pod_charge(&compute_only(&input), rules, now)).0),
            platform: None,
        }
    }
}

/// Most extended resources and huge pages of a pod that are kept. A pod with more is not decided on, and what is kept of it
/// does not depend on how many more a tenant has written.
const MOST_NAMES: usize = 64;

/// The charge without its extended resources and huge pages if these are too many, and what is told then.
pub(super) fn bounded(charge: Charge) -> (Charge, Option<Arc<str>>) {
    let is_named = |(resource, _): &&(Resource, Amount)| matches!(resource, Resource::Named(_));
    let names = charge.iter().filter(is_named).count();
    if names <= MOST_NAMES {
        return (charge, None);
    }
    let rest = Charge::from_pairs(charge.iter().filter(|it| !is_named(it)).cloned());
    (
        rest,
        Some(format!("spec.containers: {names} extended resources, at most {MOST_NAMES} are counted").into()),
    )
}

/// The container of a guest.
const COMPUTE: &str = "compute";

/// The pod as if the container of its guest was all it had.
fn compute_only<'w>(pod: &PodInput<'w>) -> PodInput<'w> {
    PodInput {
        containers: pod.containers.iter().filter(|container| container.name == COMPUTE).cloned().collect(),
        statuses: pod.statuses.iter().filter(|status| status.name == COMPUTE).cloned().collect(),
        init_containers: Vec::new(),
        overhead: ResourceList::default(),
        pod_resources: None,
        ..pod.clone()
    }
}

/// What a pod that is being created takes from native quotas.
///
/// # Errors
/// Names the first field that cannot be read.
pub fn need_of(wire: &PodWire, rules: ChargeRules) -> Result<Need, Arc<str>> {
    let (input, unreadable) = input(wire);
    match unreadable {
        None => Ok(sluice_engine::headroom::need_of(&input, rules)),
        Some(field) => Err(field),
    }
}

/// What a pod that is being created takes more than its source, beside what KubeVirt may add.
#[must_use]
pub fn growth_of(wire: &PodWire, source: &Source, allowed: Allowance, rules: ChargeRules) -> Charge {
    growth(&input(wire).0, source, allowed, rules)
}

fn gates(wire: &PodWire, gate: &str) -> Gates {
    match wire.spec.scheduling_gates.as_slice() {
        [] => Gates::None,
        [only] if only.name == gate => Gates::Ours,
        _ => Gates::Foreign,
    }
}

fn seconds(time: Option<&Time>) -> Option<i64> {
    time.map(|time| time.0.as_second())
}

/// The engine's view of the pod, and the first quantity in it that cannot be read; for such a one stands [`Amount::LIMIT`].
pub(super) fn input(wire: &PodWire) -> (PodInput<'_>, Option<Arc<str>>) {
    let mut reader = Reader { unreadable: None };
    let spec = &wire.spec;
    let status = &wire.status;
    let affinity = spec.affinity.as_ref();
    let infeasible = status
        .conditions
        .iter()
        .find(|condition| condition.kind == "PodResizePending")
        .filter(|condition| {
            // What a node said of an earlier resize says nothing of this one.
            condition.observed_generation.is_none_or(|about| Some(about) == wire.metadata.generation)
        })
        .is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"));
    let input = PodInput {
        containers: reader.containers("spec.containers", &spec.containers),
        init_containers: reader.containers("spec.initContainers", &spec.init_containers),
        overhead: reader.list(&spec.overhead, || "spec.overhead".to_owned()),
        pod_resources: spec
            .resources
            .as_ref()
            .map(|resources| reader.resources(resources, || "spec.resources".to_owned())),
        statuses: status
            .container_statuses
            .iter()
            .chain(&status.init_container_statuses)
            .map(|status| reader.status(status))
            .collect(),
        resize_infeasible: infeasible,
        phase: status.phase.as_deref(),
        deletion_timestamp: seconds(wire.metadata.deletion_timestamp.as_ref()),
        deletion_grace_seconds: wire.metadata.deletion_grace_period_seconds,
        active_deadline_seconds: spec.active_deadline_seconds,
        priority_class_name: spec.priority_class_name.as_deref().filter(|name| !name.is_empty()),
        qos_class: status.qos_class.as_deref().filter(|class| !class.is_empty()),
        cross_namespace_affinity: affinity.is_some_and(|affinity| {
            [&affinity.pod_affinity, &affinity.pod_anti_affinity]
                .into_iter()
                .flatten()
                .any(PodAffinityWire::crosses_namespaces)
        }),
    };
    (input, reader.unreadable)
}

struct Reader {
    unreadable: Option<Arc<str>>,
}

impl Reader {
    fn containers<'w>(&mut self, field: &str, containers: &'w [ContainerWire]) -> Vec<Container<'w>> {
        containers
            .iter()
            .map(|container| Container {
                name: &container.name,
                resources: container
                    .resources
                    .as_ref()
                    .map(|resources| {
                        self.resources(resources, || format!("{field}[{}].resources", container.name))
                    })
                    .unwrap_or_default(),
                restartable: container.restart_policy.as_deref() == Some("Always"),
            })
            .collect()
    }

    fn resources<'w>(&mut self, wire: &'w ResourcesWire, field: impl Fn() -> String) -> Resources<'w> {
        Resources {
            requests: self
                .optional(wire.requests.as_ref(), || format!("{}.requests", field()))
                .unwrap_or_default(),
            limits: self.optional(wire.limits.as_ref(), || format!("{}.limits", field())).unwrap_or_default(),
        }
    }

    fn status<'w>(&mut self, wire: &'w ContainerStatusWire) -> ContainerStatus<'w> {
        let field = || format!("status.containerStatuses[{}]", wire.name);
        ContainerStatus {
            name: &wire.name,
            actuated: wire.resources.as_ref().map(|resources| ActuatedResources {
                requests: self.optional(resources.requests.as_ref(), field),
                limits: self.optional(resources.limits.as_ref(), field),
            }),
            allocated: self.optional(wire.allocated_resources.as_ref(), field),
        }
    }

    fn optional<'w>(
        &mut self,
        list: Option<&'w ListWire>,
        field: impl Fn() -> String,
    ) -> Option<ResourceList<'w>> {
        list.map(|list| self.list(&list.0, field))
    }

    fn list<'w>(&mut self, texts: &'w ResourceTexts, field: impl Fn() -> String) -> ResourceList<'w> {
        texts
            .iter()
            .map(|(name, text)| {
                let quantity = Quantity::parse_json_text(&text.0).unwrap_or_else(|error| {
                    if self.unreadable.is_none() {
                        self.unreadable = Some(format!("{}[{name}]: {error}", field()).into());
                    }
                    Amount::LIMIT.quantity(Format::DecimalSi)
                });
                (name.as_str(), quantity)
            })
            .collect()
    }
}
