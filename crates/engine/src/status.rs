//! What a quota's status should say (`docs/quota-semantics.md`, *Status*).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::charge::Amount;
use crate::ledger::Ledger;
use crate::managed::ManagedStatus;
use crate::quantity::{Format, NANOS_PER_UNIT, Quantity};
use crate::quota_kind::QuotaKind;
use crate::quota_spec::{CompiledQuota, HardEntry};
use crate::resource::{KeyKind, Resource};
use crate::uncounted::{CountedBy, uncounted};
use crate::ungated::Unenforced;
use crate::vm::Calculator;

/// The status a quota should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusTarget {
    /// `status.hard`: the limits that are enforced, that is the specification's.
    pub hard: Vec<(String, Quantity)>,
    /// `status.used`, with the number format of the limit beside it. Of keys that the managed quota limits, what it
    /// says; those of which nothing is known are left out, for a 0 would be wrong.
    pub used: Vec<(String, Quantity)>,
    /// `status.requests`: `used/hard` of everything that is counted but limits, for people.
    pub requests: String,
    /// `status.limits`: `used/hard` of the limits, for people.
    pub limits: String,
    /// What is to be told about keys that nothing enforces; empty without such keys.
    pub uncounted: String,
    /// How VMs are counted; `None` where no KubeVirt is known to run.
    pub machines: Option<Calculator>,
    /// What is not enforced because pods are not gated; [`status_target`] leaves it out.
    pub unenforced: Option<Unenforced>,
}

/// The largest binary quantity that survives being read: a larger one would be read as this and written again
/// and again.
const BINARY_CAP: Amount = Amount::from_nanos(i64::MAX as i128 * NANOS_PER_UNIT);

/// The status that `quota`, of this kind, should have while `ledger` holds its sums, its managed quota says `managed`, and
/// what no pod takes by Kubernetes' rules is counted so.
#[must_use]
pub fn status_target(
    kind: QuotaKind,
    quota: &CompiledQuota,
    ledger: &Ledger,
    managed: &ManagedStatus,
    by: impl Into<CountedBy>,
) -> StatusTarget {
    let by = by.into();
    let hard = quota.entries.iter().map(|entry| (entry.key.to_string(), entry.hard)).collect();
    let used_of = |entry: &HardEntry| match entry.kind {
        KeyKind::Other => managed.used.get(&entry.key).copied(),
        KeyKind::Pod | KeyKind::Custom => Some(shown(entry, total_of(entry, ledger))),
    };
    let is_counted = |entry: &HardEntry| entry.kind != KeyKind::Custom || by.takes_custom(&entry.key);
    let text = |limits: bool| {
        let parts: Vec<String> = quota
            .entries
            .iter()
            .filter(|entry| is_counted(entry) && entry.key.starts_with("limits.") == limits)
            .filter_map(|entry| Some(format!("{}: {}/{}", entry.key, used_of(entry)?, entry.hard)))
            .collect();
        parts.join(", ")
    };
    let mut told = uncounted(kind, quota, by);
    told.extend(managed.trouble.clone());
    let used = used_by(quota, used_of);
    let uncounted = told.join("; ");
    StatusTarget {
        hard,
        requests: text(false),
        limits: text(true),
        used,
        uncounted,
        machines: by.machines,
        unenforced: None,
    }
}

/// `used` of one share, which takes these amounts of the lines of `ledger`, nothing of those that are left out, and of which
/// the managed quota says `managed`.
#[must_use]
pub fn share_used(
    quota: &CompiledQuota,
    ledger: &Ledger,
    share: &[Amount],
    managed: Option<&BTreeMap<Arc<str>, Quantity>>,
) -> Vec<(String, Quantity)> {
    used_by(quota, |entry| {
        if entry.kind == KeyKind::Other {
            return managed?.get(&entry.key).copied();
        }
        let of_lines = ledger.lines().iter().zip(share);
        let mut of_entry = of_lines.filter(|(line, _)| line.resource == entry.resource);
        let used = of_entry.next().map_or(Amount::ZERO, |(_, amount)| *amount);
        Some(shown(entry, used))
    })
}

fn used_by(quota: &CompiledQuota, used: impl Fn(&HardEntry) -> Option<Quantity>) -> Vec<(String, Quantity)> {
    quota.entries.iter().filter_map(|entry| Some((entry.key.to_string(), used(entry)?))).collect()
}

fn total_of(entry: &HardEntry, ledger: &Ledger) -> Amount {
    ledger.line(&entry.resource).map_or(Amount::ZERO, crate::ledger::Line::used)
}

fn shown(entry: &HardEntry, used: Amount) -> Quantity {
    match shown_format(entry) {
        Format::BinarySi => used.min(BINARY_CAP).quantity(Format::BinarySi),
        format => used.quantity(format),
    }
}

/// A limit that was written without a suffix says nothing about how amounts of bytes are best read.
fn shown_format(entry: &HardEntry) -> Format {
    let bytes = matches!(
        entry.resource,
        Resource::Memory
            | Resource::EphemeralStorage
            | Resource::LimitsMemory
            | Resource::LimitsEphemeralStorage
    );
    if bytes && entry.hard.is_zero() { Format::BinarySi } else { entry.hard.format() }
}

/// The keys by which `quota` names a resource, with the limit of each.
pub fn keys_of<'q>(quota: &'q CompiledQuota, resource: &'q Resource) -> impl Iterator<Item = &'q HardEntry> {
    quota.entries.iter().filter(move |entry| entry.resource == *resource)
}

/// The limits of a quota as a ledger takes them: only keys that pods can take.
pub fn enforced(quota: &CompiledQuota) -> impl Iterator<Item = (Resource, Amount)> {
    quota
        .entries
        .iter()
        .filter(|entry| entry.kind != KeyKind::Other)
        .map(|entry| (entry.resource.clone(), Amount::from(entry.hard)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use super::*;
    use crate::charge::Charge;
    use crate::ledger::Claim;
    use crate::quota_spec::{RawQuotaSpec, compile};

    fn quota(hard: &[(&str, &str)]) -> CompiledQuota {
        let hard =
            hard.iter().map(|(key, text)| ((*key).to_owned(), Quantity::parse(text).unwrap())).collect();
        compile(&RawQuotaSpec { hard, ..RawQuotaSpec::default() }).unwrap()
    }

    fn charged(quota: &CompiledQuota, charges: &[&[(&str, &str)]]) -> StatusTarget {
        charged_with(quota, charges, None)
    }

    fn charged_with(
        quota: &CompiledQuota,
        charges: &[&[(&str, &str)]],
        machines: Option<Calculator>,
    ) -> StatusTarget {
        let mut ledger = Ledger::new(enforced(quota));
        for charge in charges {
            let pairs = charge
                .iter()
                .map(|(key, text)| (Resource::from_quota_key(key), Quantity::parse(text).unwrap().into()));
            ledger.apply(Claim::Counted, &Charge::from_pairs(pairs));
        }
        status_target(QuotaKind::Namespace, quota, &ledger, &ManagedStatus::default(), machines)
    }

    fn texts(list: &[(String, Quantity)]) -> Vec<String> {
        list.iter().map(|(key, quantity)| format!("{key}={quantity}")).collect()
    }

    #[test]
    fn used_is_written_in_the_format_of_its_limit() {
        let quota = quota(&[
            ("limits.memory", "2G"),
            ("memory", "2Gi"),
            ("pods", "10"),
            ("requests.cpu", "4"),
            ("requests.ephemeral-storage", "0"),
        ]);
        let pod: &[(&str, &str)] = &[
            ("limits.memory", "512Mi"),
            ("memory", "512Mi"),
            ("pods", "1"),
            ("requests.cpu", "250m"),
            ("requests.ephemeral-storage", "1Gi"),
        ];
        let target = charged(&quota, &[pod, pod]);
        assert_eq!(
            texts(&target.used),
            [
                "limits.memory=1073741824",
                "memory=1Gi",
                "pods=2",
                "requests.cpu=500m",
                "requests.ephemeral-storage=2Gi"
            ]
        );
        assert_eq!(
            target.requests,
            "memory: 1Gi/2Gi, pods: 2/10, requests.cpu: 500m/4, requests.ephemeral-storage: 2Gi/0"
        );
        assert_eq!(target.limits, "limits.memory: 1073741824/2G");
    }

    #[test]
    fn the_two_names_of_a_resource_show_the_same_use() {
        let quota = quota(&[("cpu", "4"), ("requests.cpu", "2")]);
        let target = charged(&quota, &[&[("cpu", "1500m")]]);
        assert_eq!(texts(&target.used), ["cpu=1500m", "requests.cpu=1500m"]);
    }

    #[test]
    fn of_other_objects_what_the_managed_quota_says_is_shown_and_never_a_zero_for_it() {
        let quota = quota(&[("count/secrets", "5"), ("pods", "1"), ("services", "2")]);
        let ledger = Ledger::new(enforced(&quota));
        let secrets = (Arc::from("count/secrets"), Quantity::parse("3").unwrap());
        let trouble = Some("services: told".to_owned());
        let managed = ManagedStatus { used: [secrets].into(), trouble, ..ManagedStatus::default() };
        let target = status_target(QuotaKind::Namespace, &quota, &ledger, &managed, None);
        assert_eq!(texts(&target.hard), ["count/secrets=5", "pods=1", "services=2"]);
        assert_eq!(texts(&target.used), ["count/secrets=3", "pods=0"]);
        assert_eq!(target.requests, "count/secrets: 3/5, pods: 0/1");
        assert_eq!(target.uncounted, "services: told");
    }

    #[test]
    fn a_quota_without_a_managed_one_shows_nothing_of_other_objects_and_neither_does_a_share() {
        let quota = quota(&[("count/secrets", "5"), ("pods", "9"), ("requests.cpu", "1")]);
        let target = charged(&quota, &[&[("pods", "1")]]);
        assert_eq!(texts(&target.hard), ["count/secrets=5", "pods=9", "requests.cpu=1"]);
        assert_eq!(texts(&target.used), ["pods=1", "requests.cpu=0"]);
        assert_eq!(target.requests, "pods: 1/9, requests.cpu: 0/1");
        let ledger = Ledger::new(enforced(&quota));
        let share = ledger.lines().iter().map(|line| match line.resource {
            Resource::Pods => Quantity::parse("2").unwrap().into(),
            _ => Amount::ZERO,
        });
        let share = share.collect::<Vec<_>>();
        assert_eq!(texts(&share_used(&quota, &ledger, &share, None)), ["pods=2", "requests.cpu=0"]);
        let managed = BTreeMap::from([(Arc::from("count/secrets"), Quantity::parse("4").unwrap())]);
        let used = share_used(&quota, &ledger, &share, Some(&managed));
        assert_eq!(texts(&used), ["count/secrets=4", "pods=2", "requests.cpu=0"]);
    }

    #[test]
    fn keys_that_nothing_counts_have_an_entry_and_are_told_about() {
        let hard = [("a.com/b", "1"), ("limits.cpu/vmi", "2"), ("memory/vmi", "1Gi"), ("pods", "1")];
        let target = charged(&quota(&hard), &[]);
        assert_eq!(texts(&target.used), ["a.com/b=0", "limits.cpu/vmi=0", "memory/vmi=0", "pods=0"]);
        assert_eq!((&*target.requests, &*target.limits), ("pods: 0/1", ""), "people are shown what holds");
        for key in ["limits.cpu/vmi: ", " memory/vmi: ", "a.com/b: "] {
            assert!(target.uncounted.contains(key), "{}", target.uncounted);
        }
        assert_eq!(charged(&quota(&[("pods", "1")]), &[]).uncounted, "");
    }

    #[test]
    fn keys_of_vms_are_shown_where_vms_take_them() {
        let quota = quota(&[("limits.cpu/vmi", "1"), ("pods", "1"), ("requests.cpu/vmi", "8")]);
        let charge: &[&[(&str, &str)]] = &[&[("cpu/vmi", "2"), ("instances/vmi", "1")]];
        let dedicated = Some(Calculator::DedicatedVirtualResources);
        let target = charged_with(&quota, charge, dedicated);
        assert_eq!(texts(&target.used), ["limits.cpu/vmi=0", "pods=0", "requests.cpu/vmi=2"]);
        assert_eq!((&*target.requests, &*target.limits), ("pods: 0/1, requests.cpu/vmi: 2/8", ""));
        assert!(!target.uncounted.contains("requests.cpu/vmi: "), "{}", target.uncounted);
        assert_eq!(target.machines, dedicated);
        let target = charged_with(&quota, &[], Some(Calculator::VirtualResources));
        assert_eq!(target.requests, "pods: 0/1");
        assert!(
            target.uncounted.contains("not enforced: requests.cpu/vmi: VMs take"),
            "{}",
            target.uncounted
        );
    }

    #[test]
    fn a_binary_sum_beyond_what_can_be_read_stays_readable() {
        let quota = quota(&[("memory", "1Gi")]);
        let target = charged(&quota, &[&[("memory", "7Ei")], &[("memory", "7Ei")]]);
        let (_, used) = target.used.first().unwrap();
        let read = Quantity::parse(&used.to_string()).unwrap();
        assert_eq!(read.nanos(), BINARY_CAP.nanos());
        assert_eq!(read, *used, "what is read back is what was written, so it is written once");
        // A decimal one is not capped when it is read, so it is exact.
        let quota = self::quota(&[("memory", "1G")]);
        let target = charged(&quota, &[&[("memory", "7Ei")], &[("memory", "7Ei")]]);
        assert_eq!(target.used.first().unwrap().1.nanos(), 14 * (1 << 60) * NANOS_PER_UNIT);
    }
}
