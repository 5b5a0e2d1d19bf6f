//! What a migration's target takes more than its source, and whose doing that is.

use crate::charge::{Amount, Charge};
use crate::pod::{ChargeRules, Container, PodInput, pod_charge};
use crate::resource::Resource;
use crate::scope::ScopeFacts;
use crate::vm::{Feature, KubeVirtFacts, Launcher, VmFacts, largest_overhead, overhead_of_interfaces};

/// Devices that KubeVirt gives each launcher by itself (`pkg/virt-controller/services/template.go`).
const OWN_DEVICES: &str = "requests.devices.kubevirt.io/";

/// How many thousandths of its request of memory the limit is that KubeVirt sets where its namespace says nothing else
/// (`DefaultMemoryLimitOverheadRatio` in KubeVirt's `pkg/virt-controller/services/template.go`).
const DEFAULT_LIMIT_RATIO: i128 = 2_000;

/// The same with what the namespace says in a label, rounded up (`getMemoryLimitsRatio` in `renderresources.go` there).
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "what is cast is at most a thousand millions")]
pub fn limit_ratio(label: Option<&str>) -> i128 {
    let said = label.and_then(|text| text.parse::<f64>().ok());
    let said = said.filter(|ratio| (1.0..=1_000_000.0).contains(ratio));
    said.map_or(DEFAULT_LIMIT_RATIO, |ratio| (ratio * 1_000.0).ceil() as i128)
}

/// The container of a guest. KubeVirt adds its overhead here and nowhere else.
const COMPUTE: &str = "compute";

/// The pod that a virtual machine runs in, as far as its successor is compared with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Source {
    pub charge: Charge,
    /// What it would take if the container of the guest was all it had.
    pub compute: Charge,
    /// Names of its containers, init containers among them.
    pub containers: Box<[Box<str>]>,
    /// What decides which quotas count it.
    pub facts: ScopeFacts,
}

/// What KubeVirt may do to a virtual machine from one launcher to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Allowance {
    /// So much memory may lie beside the guest.
    pub overhead: Amount,
    /// So much of it is there for interfaces, which are devices: where one is plugged in, that is the tenant's.
    pub interfaces: Amount,
    /// So much memory was plugged in: that is the tenant's.
    pub plugged: Amount,
    /// The overhead is in limits alone (`overcommitGuestOverhead`).
    pub overcommits: bool,
    /// The machine states no limit of memory: KubeVirt gives its launchers one where a quota limits it, so many thousandths
    /// of the request.
    pub limits_memory: Option<i128>,
    /// The machine states no limit of CPUs: KubeVirt gives its launchers one where a quota limits it, of so many.
    pub limits_cpu: Option<Amount>,
}

impl Allowance {
    /// What this KubeVirt may do to this machine, with the [`limit_ratio`] of its namespace.
    #[must_use]
    pub fn of(machine: &VmFacts, kubevirt: &KubeVirtFacts, limit_ratio: i128) -> Self {
        Self {
            overhead: largest_overhead(machine, kubevirt).unwrap_or_default(),
            interfaces: overhead_of_interfaces(machine, kubevirt).unwrap_or_default(),
            plugged: machine.plugged_memory(),
            overcommits: machine.overhead.features.has(Feature::OvercommittedOverhead),
            limits_memory: machine.limits.memory.is_none().then_some(limit_ratio),
            limits_cpu: machine.limits.cpu.is_none().then(|| machine.present_cpus().unwrap_or_default()),
        }
    }

    /// What an amount of the request is in the limit: once in one that is stated, to which KubeVirt adds it.
    fn in_limit(&self, amount: Amount) -> Amount {
        let Some(ratio) = self.limits_memory else { return amount };
        // Whole bytes, rounded up: KubeVirt calculates in floating point.
        let thousandths = amount.nanos().saturating_mul(ratio.max(1_000));
        Amount::from_nanos(thousandths.saturating_add(999).div_euclid(1_000))
    }
}

impl Source {
    /// What is read of a pod, whether it has finished or not.
    #[must_use]
    pub fn of(pod: &PodInput<'_>, rules: ChargeRules) -> Self {
        let pod = fresh(pod);
        let names = pod.containers.iter().chain(&pod.init_containers).map(|container| container.name.into());
        Self {
            containers: names.collect(),
            charge: pod_charge(&pod, rules, 0),
            compute: pod_charge(&only(&pod, |name| name == COMPUTE), rules, 0),
            facts: ScopeFacts::of(&pod),
        }
    }

    /// Of several pods that may be the source, a pod that takes no more than any of them: what a tenant adds to them makes
    /// the source smaller, never larger. Of pods that different quotas count nothing is the same. `None` without any.
    #[must_use]
    pub fn least(pods: impl IntoIterator<Item = Self>) -> Option<Self> {
        pods.into_iter().reduce(|one, other| {
            if one.facts != other.facts {
                return Self { facts: one.facts, ..Self::default() };
            }
            let shared = one.containers.iter().filter(|name| other.containers.contains(name));
            Self {
                facts: one.facts,
                charge: one.charge.min(&other.charge),
                compute: one.compute.min(&other.compute),
                containers: shared.cloned().collect(),
            }
        })
    }

    /// By resource, how much of a launcher like this is KubeVirt's own doing: the overhead of a resource that its guest's
    /// container names. In a limit that KubeVirt sets itself it lies as many times as the guest does.
    #[must_use]
    pub fn own_doing(&self, allowed: Allowance) -> Charge {
        let overhead = match devices(&self.compute).next() {
            Some(_) => allowed.overhead,
            None => allowed.overhead.saturating_sub(allowed.interfaces),
        };
        let own = [(Resource::Memory, overhead), (Resource::LimitsMemory, allowed.in_limit(overhead))];
        let named = own.into_iter().filter_map(|(resource, amount)| {
            let there = self.compute.get(&resource)?;
            Some((resource, amount.min(there)))
        });
        Charge::from_pairs(named)
    }

    /// What the next launcher takes at least where an interface is plugged in: as much as this one, and the memory beside
    /// it. Which devices it takes its network alone says.
    #[must_use]
    pub fn with_interfaces(&self, allowed: Allowance) -> Charge {
        let more = |resource: &Resource| match resource {
            Resource::Memory if !allowed.overcommits => allowed.interfaces,
            Resource::LimitsMemory => allowed.in_limit(allowed.interfaces),
            _ => Amount::ZERO,
        };
        let of_guest =
            |resource: &Resource| self.compute.get(resource).map_or(Amount::ZERO, |_| more(resource));
        let amounts = self
            .charge
            .iter()
            .map(|(resource, amount)| (resource.clone(), amount.saturating_add(of_guest(resource))));
        Charge::from_pairs(amounts)
    }

    /// What the guest's container of the next launcher may take of a resource without being growth,
    /// beside what was plugged in.
    fn allowed(&self, resource: &Resource, allowed: Allowance) -> Amount {
        let before = self.compute.get(resource);
        match resource {
            Resource::Memory => before.map_or(Amount::ZERO, |before| before.saturating_add(allowed.overhead)),
            Resource::LimitsMemory => {
                let kept = before.map(|before| before.saturating_add(allowed.in_limit(allowed.overhead)));
                let request = self.compute.get(&Resource::Memory).unwrap_or(Amount::ZERO);
                let set =
                    allowed.limits_memory.map(|_| allowed.in_limit(request.saturating_add(allowed.overhead)));
                kept.into_iter().chain(set).max().unwrap_or(Amount::ZERO)
            }
            Resource::LimitsCpu => before.unwrap_or(Amount::ZERO).max(allowed.limits_cpu.unwrap_or_default()),
            _ => before.unwrap_or(Amount::ZERO),
        }
    }
}

/// The devices that it takes beside those of every launcher.
fn devices(compute: &Charge) -> impl Iterator<Item = &(Resource, Amount)> {
    compute.iter().filter(|(resource, _)| {
        let key = resource.key();
        key.starts_with("requests.") && key.contains('/') && !key.starts_with(OWN_DEVICES)
    })
}

/// A launcher that follows the source.
struct Next {
    all: Charge,
    /// Of the containers that the source has.
    kept: Charge,
    /// Of the container of the guest.
    compute: Charge,
}

/// By resource, what `target` takes more than its source for another reason than KubeVirt's overhead: always more than 0.
///
/// The guest's container may take more memory by the overhead at most, where the source has such a request or limit at all,
/// and limits that KubeVirt sets by itself; what was plugged in is growth, and what lies beside an interface that was.
/// A container that the source has not, and a resource that it has not, are growth as a whole.
#[must_use]
pub fn growth(target: &PodInput<'_>, source: &Source, allowed: Allowance, rules: ChargeRules) -> Charge {
    let target = fresh(target);
    let is_kept = |name: &str| source.containers.iter().any(|known| **known == *name);
    let next = Next {
        all: pod_charge(&target, rules, 0),
        kept: pod_charge(&only(&target, is_kept), rules, 0),
        compute: pod_charge(&only(&target, |name| name == COMPUTE && is_kept(name)), rules, 0),
    };
    next.growth(source, allowed)
}

/// The same of a target that is not there yet and is to take `charge`: what that is more, the guest's container takes.
#[must_use]
pub fn growth_to(charge: &Charge, source: &Source, allowed: Allowance) -> Charge {
    let of_guest = charge.iter().filter_map(|(resource, amount)| {
        let more = amount.saturating_sub(source.charge.get(resource)?);
        Some((resource.clone(), source.compute.get(resource)?.saturating_add(more)))
    });
    let compute = Charge::from_pairs(of_guest);
    Next { all: charge.clone(), kept: charge.clone(), compute }.growth(source, allowed)
}

/// The same of launchers of which no containers are known: what `target` takes more beside its guest is growth. Of several
/// sources, what is more than each of them. Empty without any.
#[must_use]
pub fn growth_of_launcher<'s>(
    target: Launcher<'_>,
    sources: impl IntoIterator<Item = Launcher<'s>>,
    allowed: Allowance,
) -> Charge {
    let of = |source: Launcher<'_>| {
        let source =
            Source { charge: source.whole.clone(), compute: source.compute.clone(), ..Source::default() };
        let (all, compute) = (target.whole.clone(), target.compute.clone());
        Next { kept: all.clone(), all, compute }.growth(&source, allowed)
    };
    sources.into_iter().map(of).reduce(|one, other| one.min(&other)).unwrap_or_default()
}

impl Next {
    /// Whether it takes a device that its source has not, or has none to look at.
    fn has_new_devices(&self, source: &Charge) -> bool {
        let is_new = |(resource, amount): &(Resource, Amount)| {
            source.get(resource).is_none_or(|before| *amount > before)
        };
        devices(source).next().is_none() || devices(&self.compute).any(is_new)
    }

    fn growth(&self, source: &Source, allowed: Allowance) -> Charge {
        let plugged_in = match self.has_new_devices(&source.compute) {
            true => allowed.plugged.saturating_add(allowed.interfaces),
            false => allowed.plugged,
        };
        let grown = self.all.iter().map(|(resource, amount)| {
            let of = |charge: &Charge| charge.get(resource).unwrap_or(Amount::ZERO);
            let more = |now: Amount, before: Amount| now.saturating_sub(before).max(Amount::ZERO);
            let others = |all: &Charge, guest: &Charge| more(of(all), of(guest));
            let guest = more(of(&self.compute), of(&source.compute));
            // What was plugged in comes first: the overhead is no room for it.
            let plugged = match resource {
                Resource::Memory => guest.min(plugged_in),
                Resource::LimitsMemory if allowed.limits_memory.is_none() => guest.min(plugged_in),
                _ => Amount::ZERO,
            };
            let rest = more(more(of(&self.compute), plugged), source.allowed(resource, allowed));
            let beside = more(others(&self.kept, &self.compute), others(&source.charge, &source.compute));
            let new = more(*amount, of(&self.kept));
            (resource.clone(), plugged.saturating_add(rest).saturating_add(beside).saturating_add(new))
        });
        Charge::from_pairs(grown.filter(|(_, amount)| *amount > Amount::ZERO))
    }
}

fn fresh<'p>(pod: &PodInput<'p>) -> PodInput<'p> {
    PodInput { phase: None, deletion_timestamp: None, deletion_grace_seconds: None, ..pod.clone() }
}

fn only<'p>(pod: &PodInput<'p>, is_it: impl Fn(&str) -> bool) -> PodInput<'p> {
    let some = |containers: &[Container<'p>]| {
        containers.iter().filter(|container| is_it(container.name)).cloned().collect::<Vec<_>>()
    };
    PodInput { containers: some(&pod.containers), init_containers: some(&pod.init_containers), ..pod.clone() }
}
