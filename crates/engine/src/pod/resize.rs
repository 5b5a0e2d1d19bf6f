//! What a container counts for while its resources are being changed in place (`docs/quota-semantics.md`,
//! *In-place resize*).

use smallvec::SmallVec;

use super::role::Role;
use super::{Container, ContainerStatus, PodInput, ResourceList};

/// Lists of which the largest amount per name counts; a name that is in none is absent.
pub(super) type Sources<'p, 'a> = [Option<&'p ResourceList<'a>>; 3];

/// Container statuses by name.
pub(super) struct Statuses<'p, 'a>(SmallVec<[&'p ContainerStatus<'a>; 4]>);

impl<'p, 'a> Statuses<'p, 'a> {
    /// The statuses that say something about resources. Of several with one name the first counts.
    pub(super) fn of(pod: &'p PodInput<'a>) -> Self {
        let telling = pod.statuses.iter().filter(|s| s.actuated.is_some() || s.allocated.is_some());
        let mut sorted: SmallVec<[&'p ContainerStatus<'a>; 4]> = telling.collect();
        sorted.sort_by_key(|status| status.name);
        sorted.dedup_by_key(|status| status.name);
        Self(sorted)
    }

    pub(super) fn get(&self, name: &str) -> Option<&'p ContainerStatus<'a>> {
        let found = self.0.binary_search_by(|status| status.name.cmp(name)).ok()?;
        self.0.get(found).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub(super) fn one<'p, 'a>(list: &'p ResourceList<'a>) -> Sources<'p, 'a> {
    [Some(list), None, None]
}

/// Up to 1.36: spec, actuated and allocated requests; an ordinary init container has only its spec.
pub(super) fn per_container_requests<'p, 'a>(
    container: &'p Container<'a>,
    role: Role,
    status: Option<&'p ContainerStatus<'a>>,
    infeasible: bool,
) -> Sources<'p, 'a> {
    let spec = &container.resources.requests;
    match status.and_then(|status| Some((status.actuated.as_ref()?, status))) {
        Some((actuated, status)) if role != Role::Init => {
            [(!infeasible).then_some(spec), actuated.requests.as_ref(), status.allocated.as_ref()]
        }
        _ => one(spec),
    }
}

/// Up to 1.36: spec and actuated limits.
pub(super) fn per_container_limits<'p, 'a>(
    container: &'p Container<'a>,
    role: Role,
    status: Option<&'p ContainerStatus<'a>>,
    infeasible: bool,
) -> Sources<'p, 'a> {
    let spec = &container.resources.limits;
    match status.and_then(|status| status.actuated.as_ref()) {
        Some(actuated) if role != Role::Init => {
            [(!infeasible).then_some(spec), actuated.limits.as_ref(), None]
        }
        _ => one(spec),
    }
}

/// From 1.37: what the node has set aside, else the spec unless the resize is infeasible.
pub(super) fn allocated_requests<'p, 'a>(
    container: &'p Container<'a>,
    status: Option<&'p ContainerStatus<'a>>,
    infeasible: bool,
) -> Sources<'p, 'a> {
    let spec = (!infeasible).then_some(&container.resources.requests);
    [status.and_then(|status| status.allocated.as_ref()).or(spec), None, None]
}

/// From 1.37: what is in force, else what is set aside, else the spec unless the resize is infeasible.
pub(super) fn actuated_requests<'p, 'a>(
    container: &'p Container<'a>,
    status: Option<&'p ContainerStatus<'a>>,
    infeasible: bool,
) -> Sources<'p, 'a> {
    let in_force = status.and_then(|status| status.actuated.as_ref()?.requests.as_ref());
    match in_force {
        Some(list) => one(list),
        None => allocated_requests(container, status, infeasible),
    }
}

/// From 1.37: the limits in force, else the spec unless the resize is infeasible.
pub(super) fn actuated_limits<'p, 'a>(
    container: &'p Container<'a>,
    status: Option<&'p ContainerStatus<'a>>,
    infeasible: bool,
) -> Sources<'p, 'a> {
    let in_force = status.and_then(|status| status.actuated.as_ref()?.limits.as_ref());
    [in_force.or_else(|| (!infeasible).then_some(&container.resources.limits)), None, None]
}
