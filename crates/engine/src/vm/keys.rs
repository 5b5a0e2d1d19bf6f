//! Which keys of a quota VMs take by each calculator, and the words for it.

use super::Calculator;
use crate::key_list::sentence;
use crate::quota_kind::QuotaKind;
use crate::quota_spec::CompiledQuota;
use crate::resource::{KeyKind, Resource, VMI_NAMES, key_kind};

impl Calculator {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::VmiPodUsage,
        Self::VirtualResources,
        Self::DedicatedVirtualResources,
        Self::GuestEffectiveResources,
        Self::IgnoreVmiCalculator,
    ];

    /// Its name in an `AAQ`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::VmiPodUsage => "VmiPodUsage",
            Self::VirtualResources => "VirtualResources",
            Self::DedicatedVirtualResources => "DedicatedVirtualResources",
            Self::GuestEffectiveResources => "GuestEffectiveResources",
            Self::IgnoreVmiCalculator => "IgnoreVmiCalculator",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|calculator| calculator.name() == name)
    }

    /// Whether a VM may take something of `key`, a key of `spec.hard`.
    #[must_use]
    pub fn takes(self, key: &str) -> bool {
        match (self, Resource::from_quota_key(key)) {
            (Self::DedicatedVirtualResources, Resource::Named(name)) => VMI_NAMES.contains(&&*name),
            (Self::DedicatedVirtualResources, _) => false,
            (
                Self::VirtualResources,
                Resource::Pods
                | Resource::CountPods
                | Resource::Cpu
                | Resource::Memory
                | Resource::LimitsCpu
                | Resource::LimitsMemory,
            ) => true,
            (Self::VirtualResources, _) => false,
            _ => key_kind(key) == KeyKind::Pod,
        }
    }

    /// The keys by which VMs are limited, or the first of them.
    pub(crate) const fn keys(self) -> &'static str {
        match self {
            Self::DedicatedVirtualResources => {
                "requests.instances/vmi, requests.cpu/vmi, requests.memory/vmi"
            }
            _ => "pods, requests.cpu, requests.memory",
        }
    }

    /// What a VM takes, for people.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::VmiPodUsage => {
                "a virtual machine takes what its launcher pod takes, and while it has several what the largest of them \
                 takes: pods, requests.cpu, requests.memory and all other keys of pods"
            }
            Self::VirtualResources => {
                "a virtual machine takes pods, count/pods, requests.cpu, requests.memory, limits.cpu and limits.memory \
                 by the size of its guest, and no other key"
            }
            Self::DedicatedVirtualResources => {
                "a virtual machine takes requests.instances/vmi, requests.cpu/vmi and requests.memory/vmi by the size of \
                 its guest, and no key of pods"
            }
            Self::GuestEffectiveResources => {
                "a virtual machine takes what the container of the guest takes in its launcher pod, of requests.memory \
                 and limits.memory without what KubeVirt adds: pods, requests.cpu, requests.memory and all other keys of \
                 pods"
            }
            Self::IgnoreVmiCalculator => {
                "a virtual machine takes what each of its pods takes, two of them during a migration: pods, \
                 requests.cpu, requests.memory and all other keys of pods"
            }
        }
    }
}

/// What is to be told about keys of `quota` that pods take and VMs do not, where VMs are counted by `calculator`. A key says
/// nothing wrong beside the one that limits the same of VMs.
pub(crate) fn not_taken(kind: QuotaKind, quota: &CompiledQuota, calculator: Calculator) -> Option<String> {
    let limits = |name: &str| quota.entries.iter().any(|entry| entry.resource.key() == name);
    let is_beside = |resource: &Resource| match resource {
        Resource::Pods | Resource::CountPods => limits("instances/vmi"),
        Resource::Cpu | Resource::LimitsCpu => limits("cpu/vmi"),
        Resource::Memory | Resource::LimitsMemory => limits("memory/vmi"),
        _ => false,
    };
    let keys = quota.entries.iter().filter(|entry| {
        entry.kind == KeyKind::Pod && !calculator.takes(&entry.key) && !is_beside(&entry.resource)
    });
    let before = format!("{}: virtual machines do not take ", kind.field());
    let after = format!(" (calculator {}): limit them by {}", calculator.name(), calculator.keys());
    sentence(&before, keys.map(|entry| &*entry.key), &after)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use super::*;
    use crate::charge::{Amount, Charge};
    use crate::quantity::Quantity;
    use crate::quota_spec::{RawQuotaSpec, compile};
    use crate::vm::{KubeVirtFacts, Launcher, VmFacts, vm_charge};

    /// What pods may take.
    const OF_PODS: [&str; 11] = [
        "pods",
        "count/pods",
        "cpu",
        "memory",
        "ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "hugepages-2Mi",
        "requests.nvidia.com/gpu",
        "requests.devices.kubevirt.io/kvm",
    ];
    const OTHERS: [&str; 8] = [
        "cpu/vmi",
        "instances/vmi",
        "memory/vmi",
        "limits.cpu/vmi",
        "limits.memory/vmi",
        "example.com/license",
        "services",
        "count/secrets",
    ];

    fn told(calculator: Calculator, keys: &[&str]) -> Option<String> {
        let hard = keys.iter().map(|key| ((*key).to_owned(), Quantity::ZERO)).collect();
        let quota = compile(&RawQuotaSpec { hard, ..RawQuotaSpec::default() }).unwrap();
        not_taken(QuotaKind::Cluster, &quota, calculator)
    }

    /// Not more and not less than what the arithmetic charges.
    #[test]
    fn the_keys_that_vms_take_are_those_that_they_are_charged_to() {
        let pod = Charge::from_pairs(OF_PODS.map(|key| (Resource::from_quota_key(key), Amount::ONE)));
        let vm = VmFacts { guest_memory: Some(Amount::ONE), ..VmFacts::default() };
        for calculator in Calculator::ALL {
            let launcher = Launcher { whole: &pod, compute: &pod };
            let kubevirt = KubeVirtFacts::default();
            let charge = vm_charge(calculator, &vm, [launcher], Some(&kubevirt)).unwrap();
            // Nothing for the VM: each pod for itself.
            let charge = charge.unwrap_or_else(|| pod.clone());
            for key in OF_PODS.into_iter().chain(OTHERS) {
                let is_charged = charge.iter().any(|(of, _)| *of == Resource::from_quota_key(key));
                assert_eq!(calculator.takes(key), is_charged, "{calculator:?}: {key}");
                let long = format!("requests.{key}");
                if Resource::from_quota_key(&long) == Resource::from_quota_key(key) {
                    assert_eq!(calculator.takes(&long), is_charged, "{calculator:?}: {long}");
                }
            }
            assert!(calculator.keys().split(", ").all(|key| calculator.takes(key)), "{calculator:?}");
            assert!(calculator.keys().split(", ").all(|key| calculator.explanation().contains(key)));
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for calculator in Calculator::ALL {
            assert_eq!(Calculator::from_name(calculator.name()), Some(calculator));
        }
        assert_eq!(Calculator::from_name("Guess"), None);
    }

    #[test]
    fn a_key_of_pods_that_vms_pass_by_is_told_unless_the_one_of_vms_is_there_too() {
        let dedicated = Calculator::DedicatedVirtualResources;
        assert_eq!(
            told(dedicated, &["limits.cpu", "pods"]).unwrap(),
            "spec.quota.hard: virtual machines do not take limits.cpu, pods (calculator DedicatedVirtualResources): limit \
             them by requests.instances/vmi, requests.cpu/vmi, requests.memory/vmi"
        );
        assert_eq!(
            told(dedicated, &["cpu", "limits.cpu", "requests.cpu/vmi", "pods", "instances/vmi"]),
            None
        );
        let gpu = told(dedicated, &["cpu", "cpu/vmi", "requests.nvidia.com/gpu"]).unwrap();
        assert!(gpu.contains("do not take requests.nvidia.com/gpu (calc"), "{gpu}");
        assert_eq!(told(dedicated, &["services", "cpu/vmi", "example.com/license"]), None);
        let of_guest = Calculator::VirtualResources;
        assert_eq!(told(of_guest, &["pods", "cpu", "memory", "limits.cpu", "cpu/vmi"]), None);
        assert_eq!(
            told(of_guest, &["cpu", "hugepages-2Mi"]).unwrap(),
            "spec.quota.hard: virtual machines do not take hugepages-2Mi (calculator VirtualResources): limit them by \
             pods, requests.cpu, requests.memory"
        );
        for calculator in Calculator::ALL {
            let all: Vec<_> = OF_PODS.into_iter().chain(OTHERS).collect();
            let told = told(calculator, &all);
            assert!(told.as_ref().is_none_or(|told| told.len() <= 256), "{told:?}");
            assert_eq!(told.is_some(), [dedicated, of_guest].contains(&calculator), "{told:?}");
        }
    }
}
