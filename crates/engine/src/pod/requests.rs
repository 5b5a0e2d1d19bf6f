//! Requests and limits of a whole pod from those of its containers (`docs/quota-semantics.md`, *Requests and limits
//! of a pod*).
//!
//! Resource names are independent of each other, so everything is gathered as entries, sorted by name,
//! and folded per name: the cost is O(n log n) in the number of entries, whatever the names are.

use smallvec::SmallVec;

use super::resize::{self, Sources, Statuses};
use super::role::Role;
use super::{ChargeRules, Container, PodInput, ResizeRule, ResourceList};
use crate::resource::HUGEPAGES;

/// Nano-units by resource name, sorted by name, each name once.
pub(super) type Totals<'a> = SmallVec<[(&'a str, i128); 8]>;

struct Entry<'a> {
    name: &'a str,
    /// Position of the container: app containers first, then init containers in order.
    order: usize,
    role: Role,
    nanos: i128,
}

/// Requests by name, as the quota evaluator sums them.
pub(super) fn pod_requests<'a>(pod: &PodInput<'a>, rules: ChargeRules) -> Totals<'a> {
    let statuses = Statuses::of(pod);
    let sums = match rules.resize {
        ResizeRule::PerContainer => fold_containers(pod, |container, role| {
            resize::per_container_requests(
                container,
                role,
                statuses.get(container.name),
                pod.resize_infeasible,
            )
        }),
        ResizeRule::Aggregate if statuses.is_empty() && !pod.resize_infeasible => {
            fold_containers(pod, |container, _| resize::one(&container.resources.requests))
        }
        ResizeRule::Aggregate => {
            let infeasible = pod.resize_infeasible;
            let allocated = fold_containers(pod, |container, _| {
                resize::allocated_requests(container, statuses.get(container.name), infeasible)
            });
            let actuated = fold_containers(pod, |container, _| {
                resize::actuated_requests(container, statuses.get(container.name), infeasible)
            });
            largest(pod, largest_of(allocated, actuated), |c| &c.resources.requests)
        }
    };
    let sums = match &pod.pod_resources {
        Some(own) => replace_supported(sums, &own.requests),
        None => sums,
    };
    merge(sums, &pod.overhead, |sum, more| Some(sum.unwrap_or(0).saturating_add(more)))
}

/// Limits by name; overhead is added only to limits that are there and not zero.
pub(super) fn pod_limits<'a>(pod: &PodInput<'a>, rules: ChargeRules) -> Totals<'a> {
    let statuses = Statuses::of(pod);
    let infeasible = pod.resize_infeasible;
    let sums = match rules.resize {
        ResizeRule::PerContainer => fold_containers(pod, |container, role| {
            resize::per_container_limits(container, role, statuses.get(container.name), infeasible)
        }),
        ResizeRule::Aggregate => {
            let actuated = fold_containers(pod, |container, _| {
                resize::actuated_limits(container, statuses.get(container.name), infeasible)
            });
            largest(pod, actuated, |c| &c.resources.limits)
        }
    };
    let sums = match &pod.pod_resources {
        Some(own) => replace_supported(sums, &own.limits),
        None => sums,
    };
    merge(sums, &pod.overhead, |sum, more| match sum {
        Some(0) | None => sum,
        Some(sum) => Some(sum.saturating_add(more)),
    })
}

/// The larger of the spec's sums and what the node reports; an infeasible resize leaves the spec out.
fn largest<'a>(
    pod: &PodInput<'a>,
    reported: Totals<'a>,
    list: impl for<'p> Fn(&'p Container<'a>) -> &'p ResourceList<'a>,
) -> Totals<'a> {
    if pod.resize_infeasible {
        return reported;
    }
    largest_of(fold_containers(pod, |container, _| resize::one(list(container))), reported)
}

/// Gathers the entries of all containers and folds them per name.
fn fold_containers<'p, 'a>(
    pod: &'p PodInput<'a>,
    sources: impl Fn(&'p Container<'a>, Role) -> Sources<'p, 'a>,
) -> Totals<'a> {
    let mains = pod.containers.iter().map(|container| (container, Role::Main));
    let inits = pod.init_containers.iter().map(|container| match container.restartable {
        true => (container, Role::Sidecar),
        false => (container, Role::Init),
    });
    let mut entries: SmallVec<[Entry<'a>; 8]> = SmallVec::new();
    for (order, (container, role)) in mains.chain(inits).enumerate() {
        for list in sources(container, role).into_iter().flatten() {
            let found = list.iter().map(|(name, quantity)| (*name, quantity.nanos()));
            entries.extend(found.map(|(name, nanos)| Entry { name, order, role, nanos }));
        }
    }
    // Of several sources of one container the largest comes first and is the one that counts.
    entries.sort_unstable_by(|left, right| {
        (left.name, left.order).cmp(&(right.name, right.order)).then(right.nanos.cmp(&left.nanos))
    });
    entries.dedup_by(|next, kept| next.order == kept.order && next.name == kept.name);
    entries
        .chunk_by(|left, right| left.name == right.name)
        .filter_map(|group| {
            let mut peak = Peak::default();
            group.iter().for_each(|entry| peak.add(entry.role, entry.nanos));
            Some((group.first()?.name, peak.total()?))
        })
        .collect()
}

/// The most that the containers hold at one time, for one resource.
#[derive(Default)]
struct Peak {
    /// App containers and sidecars together.
    running: Option<i128>,
    /// Sidecars started so far.
    sidecars: i128,
    /// The largest need of any moment of the initialisation.
    initialising: Option<i128>,
}

impl Peak {
    fn add(&mut self, role: Role, nanos: i128) {
        if role != Role::Init {
            self.running = Some(self.running.unwrap_or(0).saturating_add(nanos));
        }
        let need = match role {
            Role::Main => return,
            Role::Init => nanos.saturating_add(self.sidecars),
            Role::Sidecar => {
                self.sidecars = self.sidecars.saturating_add(nanos);
                self.sidecars
            }
        };
        self.initialising = self.initialising.max(Some(need));
    }

    fn total(&self) -> Option<i128> {
        self.running.max(self.initialising)
    }
}

/// Whether a resource may be set for the pod as a whole.
pub(super) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with(HUGEPAGES)
}

fn replace_supported<'a>(sums: Totals<'a>, own: &ResourceList<'a>) -> Totals<'a> {
    let own: ResourceList<'a> = own.iter().filter(|(name, _)| is_pod_level(name)).copied().collect();
    merge(sums, &own, |_, value| Some(value))
}

fn largest_of<'a>(left: Totals<'a>, right: Totals<'a>) -> Totals<'a> {
    merge_sorted(left, right.into_iter(), |sum, value| sum.max(Some(value)))
}

fn merge<'a>(
    sums: Totals<'a>,
    list: &ResourceList<'a>,
    combine: impl Fn(Option<i128>, i128) -> Option<i128>,
) -> Totals<'a> {
    if list.is_empty() {
        return sums;
    }
    merge_sorted(sums, list.iter().map(|(name, quantity)| (*name, quantity.nanos())), combine)
}

/// Combines each entry of `more` with the sum of the same name; both are sorted by name.
fn merge_sorted<'a>(
    sums: Totals<'a>,
    more: impl Iterator<Item = (&'a str, i128)>,
    combine: impl Fn(Option<i128>, i128) -> Option<i128>,
) -> Totals<'a> {
    let mut merged = Totals::with_capacity(sums.len());
    let mut sums = sums.into_iter().peekable();
    for (name, value) in more {
        while let Some(earlier) = sums.next_if(|(candidate, _)| *candidate < name) {
            merged.push(earlier);
        }
        let sum = sums.next_if(|(candidate, _)| *candidate == name).map(|(_, sum)| sum);
        merged.extend(combine(sum, value).map(|sum| (name, sum)));
    }
    merged.extend(sums);
    merged
}
