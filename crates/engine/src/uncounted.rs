//! Keys of `spec.hard` that nothing counts: what is told about them, by the webhook and in a quota's status.

use crate::resource::{KeyKind, VMI_NAMES, key_kind};

/// Most bytes of keys in one sentence: the API server may cut warnings at 256.
const MAX_KEYS: usize = 100;

/// Why a key limits nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Machines,
    Objects,
    Nothing,
}

impl Cause {
    fn of(key: &str) -> Option<Self> {
        let short = key.strip_prefix("requests.").or_else(|| key.strip_prefix("limits.")).unwrap_or(key);
        match key_kind(key) {
            KeyKind::Pod => None,
            _ if VMI_NAMES.contains(&short) => Some(Self::Machines),
            KeyKind::Custom => Some(Self::Nothing),
            KeyKind::Other => Some(Self::Objects),
        }
    }

    const fn remedy(self, of: Quota) -> &'static str {
        match self {
            Self::Machines => {
                "virtual machines are not counted as such in this version, limit their launcher pods by pods, \
                 requests.cpu and requests.memory"
            }
            Self::Objects => match of {
                Quota::Namespace => "only pods are counted in this version, use a ResourceQuota",
                Quota::Cluster => {
                    "only pods are counted in this version, use a ResourceQuota in each namespace, or OpenShift's \
                     ClusterResourceQuota"
                }
            },
            Self::Nothing => {
                "no pod takes it, an extended resource is limited by the key requests.<its name>"
            }
        }
    }
}

/// The kind of quota that has the keys.
#[derive(Clone, Copy)]
enum Quota {
    Namespace,
    Cluster,
}

impl Quota {
    const fn field(self) -> &'static str {
        match self {
            Self::Namespace => "spec.hard",
            Self::Cluster => "spec.quota.hard",
        }
    }
}

/// What is to be told about those of `keys` that nothing counts: a sentence per cause, with its keys and a remedy.
#[must_use]
pub fn uncounted<'k>(keys: impl Iterator<Item = &'k str> + Clone) -> Vec<String> {
    sentences(Quota::Namespace, keys)
}

/// As [`uncounted`], for the keys of a cluster quota.
#[must_use]
pub fn uncounted_of_cluster<'k>(keys: impl Iterator<Item = &'k str> + Clone) -> Vec<String> {
    sentences(Quota::Cluster, keys)
}

fn sentences<'k>(of: Quota, keys: impl Iterator<Item = &'k str> + Clone) -> Vec<String> {
    let causes = [Cause::Machines, Cause::Objects, Cause::Nothing];
    let sentences = causes.into_iter().filter_map(|cause| {
        let listed = listed(keys.clone().filter(|key| Cause::of(key) == Some(cause)))?;
        Some(format!("{}: not enforced: {listed}: {}", of.field(), cause.remedy(of)))
    });
    sentences.collect()
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
    use super::*;

    fn told(keys: &[&str]) -> Vec<String> {
        uncounted(keys.iter().copied())
    }

    #[test]
    fn keys_that_are_counted_are_not_mentioned() {
        let counted = ["pods", "count/pods", "cpu", "requests.memory", "limits.cpu", "hugepages-2Mi"];
        assert_eq!(told(&counted), Vec::<String>::new());
        assert_eq!(told(&["requests.nvidia.com/gpu", "limits.ephemeral-storage"]), Vec::<String>::new());
        assert_eq!(told(&[]), Vec::<String>::new());
    }

    #[test]
    fn one_sentence_per_cause_names_its_keys_and_what_to_do() {
        let keys = [
            "count/secrets",
            "cpu/vmi",
            "example.com/license",
            "limits.cpu/vmi",
            "pods",
            "requests.instances/vmi",
            "services",
        ];
        assert_eq!(
            told(&keys),
            [
                "spec.hard: not enforced: cpu/vmi, limits.cpu/vmi, requests.instances/vmi: virtual machines are not \
                 counted as such in this version, limit their launcher pods by pods, requests.cpu and requests.memory",
                "spec.hard: not enforced: count/secrets, services: only pods are counted in this version, use a \
                 ResourceQuota",
                "spec.hard: not enforced: example.com/license: no pod takes it, an extended resource is limited by the \
                 key requests.<its name>",
            ]
        );
    }

    #[test]
    fn a_cluster_quota_is_told_of_its_own_field_and_kind() {
        assert_eq!(
            uncounted_of_cluster(["pods", "services", "count/secrets"].into_iter()),
            [
                "spec.quota.hard: not enforced: services, count/secrets: only pods are counted in this version, use a \
              ResourceQuota in each namespace, or OpenShift's ClusterResourceQuota"
            ]
        );
        assert_eq!(uncounted_of_cluster(["cpu", "count/pods"].into_iter()), Vec::<String>::new());
    }

    #[test]
    fn sentences_are_short_enough_to_arrive_whole() {
        let vmi =
            VMI_NAMES.map(|name| [name.to_owned(), format!("requests.{name}"), format!("limits.{name}")]);
        let vmi = vmi.concat();
        let many: Vec<String> = (0..100).map(|n| format!("count/things{n}.example.com")).collect();
        let long = vec![format!("{}.com/{}", "ä".repeat(200), "b".repeat(60)), "a.com/b".to_owned()];
        for keys in [&vmi, &many, &long] {
            let keys = keys.iter().map(String::as_str);
            for told in [uncounted(keys.clone()), uncounted_of_cluster(keys)] {
                assert_eq!(told.len(), 1, "{told:?}");
                assert!(told.iter().all(|sentence| sentence.len() <= 256), "{told:?}");
            }
        }
        let told = uncounted(many.iter().map(String::as_str));
        assert!(
            told.iter().all(|sentence| sentence.contains("count/things0.example.com, ")
                && sentence.contains(" and 97 more: ")),
            "{told:?}"
        );
    }
}
