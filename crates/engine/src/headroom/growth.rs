//! What a migration's target takes more than its source, and whose doing that is.

use super::account::is_memory;
use crate::charge::{Amount, Charge};
use crate::pod::{ChargeRules, PodInput, pod_charge};

/// The pod that a virtual machine runs in, as far as its successor is compared with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Source {
    /// What it takes.
    pub charge: Charge,
    /// Names of its containers, init containers among them.
    pub containers: Box<[Box<str>]>,
}

impl Source {
    /// Of several pods that may be the source, a pod that takes no more than any of them: what a tenant adds to them makes the
    /// source smaller, never larger. `None` without any.
    #[must_use]
    pub fn least(pods: impl IntoIterator<Item = Self>) -> Option<Self> {
        pods.into_iter().reduce(|one, other| {
            let least = |(resource, amount): &(crate::resource::Resource, Amount)| {
                Some((resource.clone(), other.charge.get(resource)?.min(*amount)))
            };
            let shared = one.containers.iter().filter(|name| other.containers.contains(name));
            Self {
                charge: Charge::from_pairs(one.charge.iter().filter_map(least)),
                containers: shared.cloned().collect(),
            }
        })
    }
}

/// By resource, what `target` takes more than its source for another reason than KubeVirt's overhead: always more than 0.
///
/// The containers that both have may take more memory by `overhead` at most, where the source has such a request or limit at all. A
/// container that the source has not, and a resource that it has not, are growth as a whole.
#[must_use]
pub fn growth(target: &PodInput<'_>, source: &Source, overhead: Amount, rules: ChargeRules) -> Charge {
    let is_kept = |name: &str| source.containers.iter().any(|known| **known == *name);
    let fresh =
        PodInput { phase: None, deletion_timestamp: None, deletion_grace_seconds: None, ..target.clone() };
    let kept = PodInput {
        containers: fresh.containers.iter().filter(|container| is_kept(container.name)).cloned().collect(),
        init_containers: fresh.init_containers.iter().filter(|it| is_kept(it.name)).cloned().collect(),
        ..fresh.clone()
    };
    let kept = pod_charge(&kept, rules, 0);
    let all = pod_charge(&fresh, rules, 0);
    let grown = all.iter().map(|(resource, amount)| {
        let kept = kept.get(resource).unwrap_or(Amount::ZERO);
        let allowed = match source.charge.get(resource) {
            Some(before) if is_memory(resource) => before.saturating_add(overhead),
            before => before.unwrap_or(Amount::ZERO),
        };
        let more = kept.saturating_sub(allowed).max(Amount::ZERO);
        (resource.clone(), amount.saturating_sub(kept).max(Amount::ZERO).saturating_add(more))
    });
    Charge::from_pairs(grown.filter(|(_, amount)| *amount > Amount::ZERO))
}
