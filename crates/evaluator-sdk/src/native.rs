//! What Kubernetes counts for a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use sluice_engine::pod::{ActuatedResources, Container, ContainerStatus, PodInput, ResourceList, Resources};
use sluice_engine::{Charge, ChargeRules, Quantity, pod_charge};

use crate::Error;

/// The minor version of Kubernetes whose rules are used.
const MINOR: u32 = 36;

type Texts = BTreeMap<String, Text>;

/// What Kubernetes counts for the pod at `now` (seconds since the epoch).
pub(crate) fn charge(pod: &v1::Pod, now: i64) -> Result<Charge, Error> {
    Ok(pod_charge(&input(pod)?, ChargeRules::for_minor(MINOR), now))
}

fn input(pod: &v1::Pod) -> Result<PodInput<'_>, Error> {
    let spec = pod.spec.as_ref().ok_or_else(|| Error::new("reading the pod: it has no spec"))?;
    let status = pod.status.as_ref();
    let statuses = |of: fn(&v1::PodStatus) -> &Option<Vec<v1::ContainerStatus>>| {
        status.and_then(|status| of(status).as_deref()).unwrap_or_default()
    };
    let resizing = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let infeasible = resizing.iter().find(|condition| condition.type_ == "PodResizePending");
    Ok(PodInput {
        containers: containers(&spec.containers)?,
        init_containers: containers(spec.init_containers.as_deref().unwrap_or_default())?,
        overhead: list(spec.overhead.as_ref())?,
        pod_resources: spec.resources.as_ref().map(resources).transpose()?,
        statuses: statuses(|status| &status.container_statuses)
            .iter()
            .chain(statuses(|status| &status.init_container_statuses))
            .map(container_status)
            .collect::<Result<_, _>>()?,
        resize_infeasible: infeasible.is_some_and(|it| it.reason.as_deref() == Some("Infeasible")),
        phase: status.and_then(|status| status.phase.as_deref()),
        deletion_timestamp: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second()),
        deletion_grace_seconds: pod.metadata.deletion_grace_period_seconds,
        active_deadline_seconds: spec.active_deadline_seconds,
        // Scopes and classes of service decide which quotas count a pod, not what it takes.
        priority_class_name: None,
        qos_class: None,
        cross_namespace_affinity: false,
    })
}

fn containers(containers: &[v1::Container]) -> Result<Vec<Container<'_>>, Error> {
    containers.iter().map(container).collect()
}

fn container(container: &v1::Container) -> Result<Container<'_>, Error> {
    Ok(Container {
        name: &container.name,
        resources: container.resources.as_ref().map(resources).transpose()?.unwrap_or_default(),
        restartable: container.restart_policy.as_deref() == Some("Always"),
    })
}

fn resources(resources: &v1::ResourceRequirements) -> Result<Resources<'_>, Error> {
    Ok(Resources { requests: list(resources.requests.as_ref())?, limits: list(resources.limits.as_ref())? })
}

fn container_status(status: &v1::ContainerStatus) -> Result<ContainerStatus<'_>, Error> {
    let actuated = status.resources.as_ref().map(|resources| {
        Ok::<_, Error>(ActuatedResources {
            requests: resources.requests.as_ref().map(|texts| list(Some(texts))).transpose()?,
            limits: resources.limits.as_ref().map(|texts| list(Some(texts))).transpose()?,
        })
    });
    Ok(ContainerStatus {
        name: &status.name,
        actuated: actuated.transpose()?,
        allocated: status.allocated_resources.as_ref().map(|texts| list(Some(texts))).transpose()?,
    })
}

fn list(texts: Option<&Texts>) -> Result<ResourceList<'_>, Error> {
    let mut list = ResourceList::default();
    for (name, text) in texts.into_iter().flatten() {
        let amount = Quantity::parse_json_text(&text.0);
        list.insert(name, amount.map_err(|error| Error::new(format!("{name}: {error}")))?);
    }
    Ok(list)
}
