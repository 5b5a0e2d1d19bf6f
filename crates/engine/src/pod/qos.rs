//! Whether a pod is best effort (`docs/quota-semantics.md`, *Scopes*).

use super::{Container, PodInput, ResourceList, Resources};

/// By `status.qosClass` if the server has set it, else because nothing asks for cpu or memory.
pub(crate) fn is_best_effort(pod: &PodInput<'_>) -> bool {
    if let Some(class) = pod.qos_class {
        return class == "BestEffort";
    }
    match &pod.pod_resources {
        Some(own) => asks_for_nothing(own),
        None => all_containers(pod).all(|container| asks_for_nothing(&container.resources)),
    }
}

/// App containers, then init containers.
pub(super) fn all_containers<'p, 'a>(pod: &'p PodInput<'a>) -> impl Iterator<Item = &'p Container<'a>> {
    pod.containers.iter().chain(&pod.init_containers)
}

fn asks_for_nothing(resources: &Resources<'_>) -> bool {
    let asks = |list: &ResourceList<'_>| {
        ["cpu", "memory"].iter().any(|name| list.get(name).is_some_and(|q| q.nanos() > 0))
    };
    !asks(&resources.requests) && !asks(&resources.limits)
}
