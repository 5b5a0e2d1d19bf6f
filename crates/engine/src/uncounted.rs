//! Keys of `spec.hard` that nothing counts: what is told about them, by the webhook and in a quota's status.

use crate::managed::{is_countable, is_managed};
use crate::quota_spec::CompiledQuota;
use crate::resource::{KeyKind, VMI_NAMES, key_kind};
use crate::scope::Scopes;

/// Most bytes of keys in one sentence: the API server may cut warnings at 256.
const MAX_KEYS: usize = 100;

/// Why a key limits nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Machines,
    Scopes,
    Nothing,
}

impl Cause {
    const ALL: [Self; 3] = [Self::Machines, Self::Scopes, Self::Nothing];

    fn of(key: &str, scopes: &Scopes) -> Option<Self> {
        let short = key.strip_prefix("requests.").or_else(|| key.strip_prefix("limits.")).unwrap_or(key);
        if key_kind(key) == KeyKind::Pod {
            None
        } else if VMI_NAMES.contains(&short) {
            Some(Self::Machines)
        } else if !is_countable(key) {
            Some(Self::Nothing)
        } else {
            (!is_managed(key, scopes)).then_some(Self::Scopes)
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Machines => {
                "virtual machines are not counted as such in this version, limit their launcher pods by pods, \
                 requests.cpu and requests.memory"
            }
            Self::Scopes => "no such object has the scopes of this quota, use a quota without scopes",
            Self::Nothing => {
                "no pod takes it, an extended resource is limited by the key requests.<its name>"
            }
        }
    }
}

/// The kind of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// About the pods of one namespace.
    Namespace,
    /// About those of all namespaces that it selects.
    Cluster,
}

impl QuotaKind {
    const fn field(self) -> &'static str {
        match self {
            Self::Namespace => "spec.hard",
            Self::Cluster => "spec.quota.hard",
        }
    }
}

/// What is to be told about those keys of `quota` that nothing counts: a sentence per cause, with its keys and a remedy.
#[must_use]
pub fn uncounted(kind: QuotaKind, quota: &CompiledQuota) -> Vec<String> {
    let keys = || quota.entries.iter().map(|entry| &*entry.key);
    let of = |cause| keys().filter(move |key| Cause::of(key, &quota.scopes) == Some(cause));
    Cause::ALL.into_iter().filter_map(|cause| not_enforced(kind, of(cause), cause.remedy())).collect()
}

/// The sentence about keys of a quota that are not enforced, for one reason and with what to do; `None` without any.
#[must_use]
pub fn not_enforced<'k>(
    kind: QuotaKind,
    keys: impl Iterator<Item = &'k str>,
    remedy: &str,
) -> Option<String> {
    Some(format!("{}: not enforced: {}: {remedy}", kind.field(), listed(keys)?))
}

/// The keys with commas between them, as many as there is room for; `None` without any.
fn listed<'k>(keys: impl Iterator<Item = &'k str>) -> Option<String> {
    let mut text = String::new();
    let mut more = 0_usize;
    for key in keys {
        if text.is_empty() {
            let cut = key.floor_char_boundary(MAX_KEYS);
            text.push_str(key.get(..cut).unwrap_or(key));
            text.push_str(if cut < key.len() { "…" } else { "" });
        } else if more > 0 || text.len() + key.len() + 2 > MAX_KEYS {
            more += 1;
        } else {
            text.push_str(", ");
            text.push_str(key);
        }
    }
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    (!text.is_empty()).then_some(text)
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
        uncounted(QuotaKind::Namespace, &quota(keys, &[]))
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
            uncounted(QuotaKind::Namespace, &quota(&keys, &["Terminating"])),
            [
                "spec.hard: not enforced: cpu/vmi, limits.cpu/vmi: virtual machines are not counted as such in this \
                 version, limit their launcher pods by pods, requests.cpu and requests.memory",
                "spec.hard: not enforced: count/secrets: no such object has the scopes of this quota, use a quota \
                 without scopes",
                "spec.hard: not enforced: example.com/license: no pod takes it, an extended resource is limited by the \
                 key requests.<its name>",
            ]
        );
    }

    #[test]
    fn a_cluster_quota_is_told_of_its_own_field() {
        let told = uncounted(QuotaKind::Cluster, &quota(&["pods", "services", "a.com/b"], &[]));
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
        for (keys, cause) in [(&vmi, Cause::Machines), (&many, Cause::Scopes), (&long, Cause::Nothing)] {
            for kind in [QuotaKind::Namespace, QuotaKind::Cluster] {
                let told = not_enforced(kind, keys.iter().map(String::as_str), cause.remedy()).unwrap();
                assert!(told.len() <= 256, "{told:?}");
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
