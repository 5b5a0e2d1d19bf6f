//! Quotas of namespaces whose pods are not gated, or wait for no quota: what is told of them, by the webhook and in a
//! quota's status.

use std::collections::BTreeSet;
use std::fmt;

use crate::key_list::{MAX_KEYS, listed};
use crate::quota_kind::QuotaKind;
use crate::quota_spec::CompiledQuota;
use crate::resource::KeyKind;
use crate::uncounted::not_enforced_start;

/// Longest part of a selector that is repeated, in bytes.
const MAX_SELECTOR: usize = 60;
/// More names do not fit into a message: each has a letter at least, and a comma and a space.
const MOST_NAMES: usize = MAX_KEYS / 3 + 1;

/// Reason of a quota that pods do not wait for.
const PAUSED: &str = "Paused";

/// Why pods of a namespace are not gated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ungated {
    /// `spec.namespaceSelector` of the `AAQ` does not select the namespace.
    NotTargeted,
    /// The namespace is that of the installation, or `--exempt-namespaces` names it.
    Exempt,
}

/// What a quota does not enforce, as reason and message of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unenforced {
    /// A word for programs.
    pub reason: &'static str,
    /// Which pods are not limited, and what to do.
    pub message: String,
}

/// What `quota` does not enforce in its namespace, whose pods are not gated for this reason; `None` if it limits no pods.
/// `selector` is that of the `AAQ` as text. The message has the length of a warning at most.
#[must_use]
pub fn unenforced(quota: &CompiledQuota, why: Ungated, selector: &str) -> Option<Unenforced> {
    let start = pods_start(QuotaKind::Namespace, quota)?;
    let selector = Shortened(selector);
    Some(match why {
        Ungated::NotTargeted => Unenforced {
            reason: "NamespaceNotTargeted",
            message: format!(
                "{start}: the namespace is not targeted: label it so that spec.namespaceSelector of the AAQ ({selector}) \
                 selects it"
            ),
        },
        Ungated::Exempt => Unenforced {
            reason: "NamespaceExempt",
            message: format!(
                "{start}: the namespace is exempt, being that of Sluice or one that --exempt-namespaces names: limit it by \
                 a ResourceQuota"
            ),
        },
    })
}

/// What the cluster quota `quota` does not enforce in those of the `selected` namespaces whose pods are not gated. Each is
/// given by its name and whether it is one of these. `None` if there are none, or the quota limits no pods.
#[must_use]
pub fn unenforced_in<'n>(
    quota: &CompiledQuota,
    selected: impl Iterator<Item = (&'n str, bool)>,
    selector: &str,
) -> Option<Unenforced> {
    let start = pods_start(QuotaKind::Cluster, quota)?;
    let (Part { many, all, names }, selector) = (Part::of(selected)?, Shortened(selector));
    Some(Unenforced {
        reason: "NamespacesNotGated",
        message: format!(
            "{start} of {many} of {all} selected namespaces, which are not targeted or exempt: {names}: label them so that \
             spec.namespaceSelector of the AAQ ({selector}) selects them, limit exempt ones by a ResourceQuota"
        ),
    })
}

/// What `quota` does not enforce in its namespace while that is paused `until` then, a time as text; `None` if it limits no
/// pods.
#[must_use]
pub fn paused(quota: &CompiledQuota, until: &str) -> Option<Unenforced> {
    let start = pods_start(QuotaKind::Namespace, quota)?;
    let message = format!(
        "{start} until {until}: an administrator has paused the namespace; usage is counted and may exceed spec.hard"
    );
    Some(Unenforced { reason: PAUSED, message })
}

/// What the cluster quota `quota` does not enforce in those of the `selected` namespaces that are paused. Each is given by
/// its name and whether it is one of these. `None` if there are none, or the quota limits no pods.
#[must_use]
pub fn paused_in<'n>(
    quota: &CompiledQuota,
    selected: impl Iterator<Item = (&'n str, bool)>,
) -> Option<Unenforced> {
    let start = pods_start(QuotaKind::Cluster, quota)?;
    let Part { many, all, names } = Part::of(selected)?;
    let message = format!(
        "{start} of {many} of {all} selected namespaces, which an administrator has paused: {names}: usage is counted and \
         may exceed spec.quota.hard"
    );
    Some(Unenforced { reason: PAUSED, message })
}

/// Some of all selected namespaces.
struct Part {
    many: usize,
    all: usize,
    /// Of the first of them, and how many more there are.
    names: String,
}

impl Part {
    /// Each is given by its name and whether it is one of them; `None` if there are none.
    fn of<'n>(selected: impl Iterator<Item = (&'n str, bool)>) -> Option<Self> {
        let (mut all, mut many, mut first) = (0_usize, 0_usize, BTreeSet::new());
        for (name, is_one) in selected {
            all += 1;
            if is_one {
                many += 1;
                first.insert(name);
                if first.len() > MOST_NAMES {
                    first.pop_last();
                }
            }
        }
        let unnamed = many - first.len();
        Some(Self { many, all, names: listed(first.into_iter(), unnamed, MAX_KEYS)? })
    }
}

/// Whether one of the quota's keys is about pods.
#[must_use]
pub fn limits_pods(quota: &CompiledQuota) -> bool {
    quota.entries.iter().any(|entry| entry.kind != KeyKind::Other)
}

fn pods_start(kind: QuotaKind, quota: &CompiledQuota) -> Option<String> {
    limits_pods(quota).then(|| format!("{} on pods", not_enforced_start(kind)))
}

struct Shortened<'t>(&'t str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        let shown = text.get(..text.floor_char_boundary(MAX_SELECTOR)).unwrap_or_default();
        write!(f, "{shown}{}", if shown.len() < text.len() { "…" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use super::*;
    use crate::quantity::Quantity;
    use crate::quota_spec::{RawQuotaSpec, compile};

    fn quota(keys: &[&str]) -> CompiledQuota {
        let hard = keys.iter().map(|key| ((*key).to_owned(), Quantity::ZERO)).collect();
        compile(&RawQuotaSpec { hard, ..RawQuotaSpec::default() }).unwrap()
    }

    #[test]
    fn each_reason_has_its_remedy() {
        let pods = quota(&["pods", "services"]);
        let told = |why| unenforced(&pods, why, "team=a").unwrap();
        let (targeted, exempt) = (told(Ungated::NotTargeted), told(Ungated::Exempt));
        assert_eq!(targeted.reason, "NamespaceNotTargeted");
        assert_eq!(
            targeted.message,
            "spec.hard: not enforced on pods: the namespace is not targeted: label it so that spec.namespaceSelector of the \
             AAQ (team=a) selects it"
        );
        assert_eq!(exempt.reason, "NamespaceExempt");
        assert!(exempt.message.ends_with(": limit it by a ResourceQuota"), "{}", exempt.message);
        assert!(exempt.message.len() <= 256);
    }

    #[test]
    fn what_the_managed_quota_limits_is_enforced_in_every_namespace() {
        assert_eq!(unenforced(&quota(&["services", "count/secrets"]), Ungated::NotTargeted, "a"), None);
        assert_eq!(unenforced_in(&quota(&["services"]), [("a", true)].into_iter(), "a"), None);
    }

    #[test]
    fn a_paused_namespace_says_until_when_and_of_several_which() {
        let told = paused(&quota(&["pods"]), "2026-01-01T12:00:00Z").unwrap();
        assert_eq!(
            told.message,
            "spec.hard: not enforced on pods until 2026-01-01T12:00:00Z: an administrator has paused the namespace; usage \
             is counted and may exceed spec.hard"
        );
        let told = paused_in(&quota(&["pods"]), [("a", true), ("b", false)].into_iter()).unwrap();
        assert_eq!(
            told.message,
            "spec.quota.hard: not enforced on pods of 1 of 2 selected namespaces, which an administrator has paused: a: \
             usage is counted and may exceed spec.quota.hard"
        );
        assert_eq!(paused_in(&quota(&["pods"]), [("b", false)].into_iter()), None);
        assert_eq!(paused(&quota(&["services"]), "x"), None);
    }

    #[test]
    fn a_long_selector_leaves_the_message_a_warnings_length() {
        let told = unenforced(&quota(&["pods"]), Ungated::NotTargeted, &"ä".repeat(200)).unwrap();
        assert!(told.message.len() <= 256, "{}", told.message.len());
        assert!(told.message.contains("ä…)"), "{}", told.message);
    }

    #[test]
    fn a_cluster_quota_names_some_of_the_namespaces_and_says_how_many_there_are() {
        let names: Vec<String> = (0..100).map(|n| format!("namespace-{n:02}")).collect();
        let gated = (0..20).map(|_| ("gated", false));
        let selected = || names.iter().rev().map(|name| (name.as_str(), true)).chain(gated.clone());
        let told = unenforced_in(&quota(&["pods"]), selected(), "team").unwrap();
        assert_eq!(told.reason, "NamespacesNotGated");
        let start = "spec.quota.hard: not enforced on pods of 100 of 120 selected namespaces, ";
        assert!(told.message.starts_with(start), "{}", told.message);
        assert!(told.message.contains(": namespace-00, namespace-01, "), "{}", told.message);
        let shown = told.message.matches("namespace-").count();
        let rest = format!(" and {} more: label them ", 100 - shown);
        assert!(told.message.contains(&rest), "{}", told.message);
        assert!(told.message.len() < 400, "{}", told.message.len());
        assert_eq!(unenforced_in(&quota(&["pods"]), gated.clone(), "team"), None);
    }
}
