//! Keys of `spec.hard` that nothing counts: what is told about them, by the webhook and in a quota's status.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::key_list::{MAX_KEYS, listed, sentence};
use crate::managed::{is_countable, is_managed};
use crate::quota_kind::QuotaKind;
use crate::quota_spec::CompiledQuota;
use crate::resource::{DEVICE_CLASS, KeyKind, VMI_NAMES, key_kind};
use crate::scope::Scopes;
use crate::vm::{Calculator, not_taken};

/// Who takes keys that no pod takes by Kubernetes' rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedBy {
    /// How VMs are counted where KubeVirt is known to run.
    pub machines: Option<Calculator>,
    /// Evaluators say what pods take: of any key with a domain.
    pub evaluators: bool,
}

impl From<Option<Calculator>> for CountedBy {
    fn from(machines: Option<Calculator>) -> Self {
        Self { machines, evaluators: false }
    }
}

impl CountedBy {
    /// Whether VMs are charged this key of kind [`KeyKind::Custom`], or evaluators may charge pods it.
    pub(crate) fn takes_custom(self, key: &str) -> bool {
        let is_of_machines = VMI_NAMES.contains(&key.strip_prefix("requests.").unwrap_or(key));
        self.machines.is_some_and(|calculator| calculator.takes(key)) || self.evaluators && !is_of_machines
    }
}

/// Why a key limits nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Machines,
    LimitsOfMachines,
    Scopes,
    Nothing,
}

impl Cause {
    const ALL: [Self; 4] = [Self::Machines, Self::LimitsOfMachines, Self::Scopes, Self::Nothing];

    fn of(key: &str, scopes: &Scopes, by: CountedBy) -> Option<Self> {
        let is_of_machines = |key: &str| VMI_NAMES.contains(&key);
        if key_kind(key) == KeyKind::Pod {
            None
        } else if is_of_machines(key.strip_prefix("requests.").unwrap_or(key)) {
            (!by.takes_custom(key)).then_some(Self::Machines)
        } else if key.strip_prefix("limits.").is_some_and(is_of_machines) {
            Some(Self::LimitsOfMachines)
        } else if key_kind(key) == KeyKind::Custom && by.evaluators {
            None
        } else if !is_countable(key) {
            Some(Self::Nothing)
        } else {
            (!is_managed(key, scopes)).then_some(Self::Scopes)
        }
    }

    fn remedy(self, machines: Option<Calculator>) -> Cow<'static, str> {
        let calculator = machines.unwrap_or(Calculator::DedicatedVirtualResources);
        match self {
            Self::Machines if machines.is_none() => Cow::Borrowed(
                "only virtual machines take it, where KubeVirt runs and the AAQ's calculator is \
                 DedicatedVirtualResources, limit pods by requests.cpu and requests.memory",
            ),
            Self::Machines => Cow::Owned(format!(
                "VMs take {} (calculator {}): limit those, or set vmiCalculatorConfiguration.configName of the AAQ to \
                 DedicatedVirtualResources",
                calculator.keys(),
                calculator.name()
            )),
            Self::LimitsOfMachines => {
                Cow::Owned(format!("nothing takes it, limit virtual machines by {}", calculator.keys()))
            }
            Self::Scopes => {
                Cow::Borrowed("no such object has the scopes of this quota, use a quota without scopes")
            }
            Self::Nothing => Cow::Borrowed(
                "no pod takes it without an evaluator, an extended resource is limited by the key requests.<its name>",
            ),
        }
    }
}

/// What is to be told about those keys of `quota` that nothing counts: a sentence per cause, with its keys and a remedy.
#[must_use]
pub fn uncounted(kind: QuotaKind, quota: &CompiledQuota, by: impl Into<CountedBy>) -> Vec<String> {
    let by = by.into();
    let keys = || quota.entries.iter().map(|entry| &*entry.key);
    let told = |cause: Cause| {
        let of = keys().filter(move |key| Cause::of(key, &quota.scopes, by) == Some(cause));
        // Most quotas have none: no sentence is made then.
        of.clone().next()?;
        sentence(&format!("{}: ", not_enforced_start(kind)), of, &format!(": {}", cause.remedy(by.machines)))
    };
    Cause::ALL.into_iter().filter_map(told).collect()
}

/// What is to be told about those keys of `quota` to which a ResourceQuota charges ResourceClaims too, from Kubernetes 1.36
/// (`k8s.io/kubernetes/pkg/quota/v1/evaluator/core/resource_claims.go`): those of device classes, and of the `extended`
/// resources that device classes name. A gate counts what containers request.
#[must_use]
pub fn claims_uncounted(
    kind: QuotaKind,
    quota: &CompiledQuota,
    extended: &BTreeSet<Arc<str>>,
) -> Option<String> {
    let takes_claims = |key: &&str| {
        let name = key.strip_prefix("requests.");
        name.is_some_and(|name| name.starts_with(DEVICE_CLASS) || extended.contains(name))
    };
    let keys = quota.entries.iter().map(|entry| &*entry.key).filter(takes_claims);
    keys.clone().next()?;
    let start = format!("{} on ResourceClaims: ", not_enforced_start(kind));
    let remedy = ": only requests of containers are counted, \
                      limit claims by <class>.deviceclass.resource.k8s.io/devices";
    sentence(&start, keys, remedy)
}

/// What is to be told about `quota` when it is created or changed: what [`uncounted`] and [`claims_uncounted`] say without a
/// look at device classes, and which keys do not limit VMs.
#[must_use]
pub fn warnings(kind: QuotaKind, quota: &CompiledQuota, by: impl Into<CountedBy>) -> Vec<String> {
    let by = by.into();
    let mut told = uncounted(kind, quota, by);
    told.extend(claims_uncounted(kind, quota, &BTreeSet::new()));
    told.extend(by.machines.and_then(|calculator| not_taken(kind, quota, calculator)));
    told
}

/// The sentence about keys of a quota that are not enforced, for one reason and with what to do; `None` without any. It may
/// be too long for a warning.
#[must_use]
pub fn not_enforced<'k>(
    kind: QuotaKind,
    keys: impl Iterator<Item = &'k str>,
    remedy: &str,
) -> Option<String> {
    Some(format!("{}: {}: {remedy}", not_enforced_start(kind), listed(keys, 0, MAX_KEYS)?))
}

pub(crate) fn not_enforced_start(kind: QuotaKind) -> String {
    format!("{}: not enforced", kind.field())
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test stops at the first thing that is not as it must be"
    )]

    use super::*;
    use crate::quantity::Quantity;
    use crate::quota_spec::{RawQuotaSpec, compile};

    fn quota(keys: &[&str], scopes: &[&str]) -> CompiledQuota {
        let hard = keys.iter().map(|key| ((*key).to_owned(), Quantity::ZERO)).collect();
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        compile(&RawQuotaSpec { hard, scopes, scope_selector: None }).unwrap()
    }

    fn told(keys: &[&str]) -> Vec<String> {
        uncounted(QuotaKind::Namespace, &quota(keys, &[]), None)
    }

    fn of_machines(calculator: Calculator, keys: &[&str]) -> Vec<String> {
        warnings(QuotaKind::Namespace, &quota(keys, &[]), Some(calculator))
    }

    #[test]
    fn evaluators_may_charge_keys_with_a_domain_and_no_others() {
        let by = CountedBy { machines: None, evaluators: true };
        let told = |by| {
            uncounted(QuotaKind::Namespace, &quota(&["example.com/license", "requests.cpu/vmi"], &[]), by)
        };
        let without = told(CountedBy::default()).join("; ");
        assert!(without.contains("example.com/license") && without.contains("requests.cpu/vmi"), "{without}");
        let with = told(by).join("; ");
        assert!(!with.contains("example.com/license") && with.contains("requests.cpu/vmi"), "{with}");
    }

    #[test]
    fn keys_that_are_counted_are_not_mentioned() {
        let counted = ["pods", "count/pods", "cpu", "requests.memory", "limits.cpu", "hugepages-2Mi"];
        assert_eq!(told(&counted), Vec::<String>::new());
        assert_eq!(told(&["requests.nvidia.com/gpu", "limits.ephemeral-storage"]), Vec::<String>::new());
        assert_eq!(told(&["services", "count/secrets", "requests.storage"]), Vec::<String>::new());
        assert_eq!(told(&[]), Vec::<String>::new());
    }

    #[test]
    fn one_sentence_per_cause_names_its_keys_and_what_to_do() {
        let keys = ["count/secrets", "cpu/vmi", "example.com/license", "limits.cpu/vmi", "pods"];
        assert_eq!(
            uncounted(QuotaKind::Namespace, &quota(&keys, &["Terminating"]), None),
            [
                "spec.hard: not enforced: cpu/vmi: only virtual machines take it, where KubeVirt runs and the AAQ's \
                 calculator is DedicatedVirtualResources, limit pods by requests.cpu and requests.memory",
                "spec.hard: not enforced: limits.cpu/vmi: nothing takes it, limit virtual machines by \
                 requests.instances/vmi, requests.cpu/vmi, requests.memory/vmi",
                "spec.hard: not enforced: count/secrets: no such object has the scopes of this quota, use a quota \
                 without scopes",
                "spec.hard: not enforced: example.com/license: no pod takes it without an evaluator, an extended \
                 resource is limited by the key requests.<its name>",
            ]
        );
    }

    #[test]
    fn the_keys_of_vms_are_counted_by_one_calculator_and_the_others_name_those_that_they_count() {
        let keys = ["requests.instances/vmi", "cpu/vmi", "memory/vmi"];
        assert_eq!(of_machines(Calculator::DedicatedVirtualResources, &keys), Vec::<String>::new());
        for calculator in Calculator::ALL {
            if calculator == Calculator::DedicatedVirtualResources {
                continue;
            }
            let name = calculator.name();
            assert_eq!(
                of_machines(calculator, &["cpu/vmi"]),
                [format!(
                    "spec.hard: not enforced: cpu/vmi: VMs take pods, requests.cpu, requests.memory (calculator \
                     {name}): limit those, or set vmiCalculatorConfiguration.configName of the AAQ to \
                     DedicatedVirtualResources"
                )]
            );
            let [told] = of_machines(calculator, &["limits.memory/vmi"]).try_into().unwrap();
            assert!(told.ends_with(
                ": nothing takes it, limit virtual machines by pods, requests.cpu, requests.memory"
            ));
        }
        let dedicated = Calculator::DedicatedVirtualResources;
        let [limits, pods] = of_machines(dedicated, &["limits.cpu", "limits.cpu/vmi"]).try_into().unwrap();
        assert!(limits.contains("limits.cpu/vmi: nothing takes it"), "{limits}");
        assert!(pods.starts_with("spec.hard: virtual machines do not take limits.cpu ("), "{pods}");
    }

    #[test]
    fn claims_are_told_of_where_a_resource_quota_would_count_them() {
        let keys = [
            "gpu.deviceclass.resource.k8s.io/devices",
            "requests.cpu",
            "requests.deviceclass.resource.kubernetes.io/gpu",
            "requests.example.com/gpu",
            "requests.example.com/license",
        ];
        let quota = quota(&keys, &[]);
        let told = |extended: &[&str]| {
            let extended = extended.iter().map(|name| Arc::from(*name)).collect();
            claims_uncounted(QuotaKind::Namespace, &quota, &extended).unwrap()
        };
        let remedy = ": only requests of containers are counted, \
                      limit claims by <class>.deviceclass.resource.k8s.io/devices";
        let start =
            "spec.hard: not enforced on ResourceClaims: requests.deviceclass.resource.kubernetes.io/gpu";
        assert_eq!(told(&[]), format!("{start}{remedy}"));
        assert_eq!(
            told(&["example.com/gpu", "unused.com/gpu"]),
            format!("{start}, requests.example.com/gpu{remedy}"),
        );
        assert_eq!(
            warnings(QuotaKind::Namespace, &quota, None),
            [told(&[])],
            "the webhook knows no device classes"
        );
        let plain = self::quota(&["requests.example.com/gpu", "pods"], &[]);
        assert_eq!(claims_uncounted(QuotaKind::Namespace, &plain, &BTreeSet::new()), None);
    }

    #[test]
    fn a_cluster_quota_is_told_of_its_own_field() {
        let told = uncounted(QuotaKind::Cluster, &quota(&["pods", "services", "a.com/b"], &[]), None);
        let [told] = told.as_slice() else { panic!("one: {told:?}") };
        assert!(told.starts_with("spec.quota.hard: not enforced: a.com/b: "), "{told}");
    }

    #[test]
    fn sentences_are_short_enough_to_arrive_whole() {
        let vmi =
            VMI_NAMES.map(|name| [name.to_owned(), format!("requests.{name}"), format!("limits.{name}")]);
        let vmi = vmi.concat();
        let many: Vec<String> = (0..100).map(|n| format!("things{n:02}.example.com/x")).collect();
        let long = vec![format!("{}.com/{}", "ä".repeat(200), "b".repeat(60)), "a.com/b".to_owned()];
        let causes = [
            (&vmi, Cause::Machines),
            (&vmi, Cause::LimitsOfMachines),
            (&many, Cause::Scopes),
            (&long, Cause::Nothing),
        ];
        for (keys, cause) in causes {
            for kind in [QuotaKind::Namespace, QuotaKind::Cluster] {
                let counted = Some(Calculator::DedicatedVirtualResources);
                for machines in Calculator::ALL.map(Some).into_iter().chain([None]) {
                    if cause == Cause::Machines && machines == counted {
                        continue;
                    }
                    let keys = keys.iter().map(String::as_str);
                    let remedy = format!(": {}", cause.remedy(machines));
                    let start = format!("{}: ", not_enforced_start(kind));
                    let told = sentence(&start, keys, &remedy).unwrap();
                    assert!(told.len() <= 256, "{told:?}");
                }
            }
        }
        let told = told(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told.iter().all(|sentence| sentence.contains("things00.example.com/x, ")
                && sentence.contains(" and 96 more: ")),
            "{told:?}"
        );
    }
}
