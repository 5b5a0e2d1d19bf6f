//! What a quota's status should say (`docs/quota-semantics.md`, *Status*).

use crate::charge::Amount;
use crate::ledger::Ledger;
use crate::quantity::{Format, NANOS_PER_UNIT, Quantity};
use crate::quota_spec::{CompiledQuota, HardEntry};
use crate::resource::{KeyKind, Resource};
use crate::uncounted::uncounted;

/// The status a quota should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusTarget {
    /// `status.hard`: the limits that are enforced, that is the specification's.
    pub hard: Vec<(String, Quantity)>,
    /// `status.used`, with the number format of the limit beside it. Keys of other objects are left out:
    /// nothing here knows what is used of them.
    pub used: Vec<(String, Quantity)>,
    /// `status.requests`: `used/hard` of everything that is counted but limits, for people.
    pub requests: String,
    /// `status.limits`: `used/hard` of the limits, for people.
    pub limits: String,
    /// What is to be told about keys that nothing counts; empty without such keys.
    pub uncounted: String,
}

/// The largest binary quantity that survives being read: a larger one would be read as this and written again
/// and again.
const BINARY_CAP: Amount = Amount::from_nanos(i64::MAX as i128 * NANOS_PER_UNIT);

/// The status that `quota` should have while `ledger` holds its sums.
#[must_use]
pub fn status_target(quota: &CompiledQuota, ledger: &Ledger) -> StatusTarget {
    let hard = quota.entries.iter().map(|entry| (entry.key.to_string(), entry.hard)).collect();
    let used = used_by(quota, |entry| total_of(entry, ledger));
    let text = |limits: bool| {
        let parts: Vec<String> = quota
            .entries
            .iter()
            .filter(|entry| entry.kind == KeyKind::Pod && entry.key.starts_with("limits.") == limits)
            .map(|entry| format!("{}: {}/{}", entry.key, shown(entry, total_of(entry, ledger)), entry.hard))
            .collect();
        parts.join(", ")
    };
    let uncounted = uncounted(quota.entries.iter().map(|entry| &*entry.key)).join("; ");
    StatusTarget { hard, requests: text(false), limits: text(true), used, uncounted }
}

/// `used` of one share, which takes these amounts of the lines of `ledger`; nothing of those that are left out.
#[must_use]
pub fn share_used(quota: &CompiledQuota, ledger: &Ledger, share: &[Amount]) -> Vec<(String, Quantity)> {
    used_by(quota, |entry| {
        let of_lines = ledger.lines().iter().zip(share);
        let mut of_entry = of_lines.filter(|(line, _)| line.resource == entry.resource);
        of_entry.next().map_or(Amount::ZERO, |(_, amount)| *amount)
    })
}

fn used_by(quota: &CompiledQuota, used: impl Fn(&HardEntry) -> Amount) -> Vec<(String, Quantity)> {
    let counted = quota.entries.iter().filter(|entry| entry.kind != KeyKind::Other);
    counted.map(|entry| (entry.key.to_string(), shown(entry, used(entry)))).collect()
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
        let mut ledger = Ledger::new(enforced(quota));
        for charge in charges {
            let pairs = charge
                .iter()
                .map(|(key, text)| (Resource::from_quota_key(key), Quantity::parse(text).unwrap().into()));
            ledger.apply(Claim::Counted, &Charge::from_pairs(pairs));
        }
        status_target(quota, &ledger)
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
    fn what_other_objects_take_is_not_reported_as_used() {
        let quota = quota(&[("count/secrets", "5"), ("pods", "1")]);
        let target = charged(&quota, &[]);
        assert_eq!(texts(&target.hard), ["count/secrets=5", "pods=1"]);
        assert_eq!(texts(&target.used), ["pods=0"]);
    }

    #[test]
    fn keys_that_nothing_counts_have_an_entry_and_are_told_about() {
        let hard = [
            ("a.com/b", "1"),
            ("limits.cpu/vmi", "2"),
            ("memory/vmi", "1Gi"),
            ("pods", "1"),
            ("services", "1"),
        ];
        let target = charged(&quota(&hard), &[]);
        assert_eq!(texts(&target.used), ["a.com/b=0", "limits.cpu/vmi=0", "memory/vmi=0", "pods=0"]);
        assert_eq!((&*target.requests, &*target.limits), ("pods: 0/1", ""), "people are shown what holds");
        for key in ["limits.cpu/vmi, memory/vmi: ", "services: ", "a.com/b: "] {
            assert!(target.uncounted.contains(key), "{}", target.uncounted);
        }
        assert_eq!(charged(&quota(&[("pods", "1")]), &[]).uncounted, "");
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
