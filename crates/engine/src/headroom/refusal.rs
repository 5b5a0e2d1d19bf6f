//! Why a target pod would be rejected, or must be left alone, whatever the budget is.

use std::sync::Arc;

use super::quota::MARK;
use crate::charge::Amount;
use crate::quantity::Quantity;

/// A reason that no raise can remove. Keys are sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// Containers do not name amounts that the quota makes mandatory.
    #[error("quota {quota}: must specify {}", .missing.join("; "))]
    MustSpecify {
        quota: Arc<str>,
        /// `key for: container,container`, by key.
        missing: Vec<String>,
    },
    /// The quota is enforced but its usage was not computed yet.
    #[error("status unknown for quota: {quota}, resources: {}", .keys.join(","))]
    StatusUnknown {
        quota: Arc<str>,
        /// Keys of `status.hard` without `status.used`.
        keys: Vec<Arc<str>>,
    },
    /// The pod would add less than nothing.
    #[error("quota usage is negative for resource(s): {}", .keys.join(","))]
    NegativeNeed {
        /// Resources by their shortest names.
        keys: Vec<Arc<str>>,
    },
    /// The quota is exceeded, and it or its namespace is excluded from head-room.
    #[error("quota {quota} is exceeded in {} and excluded from head-room by an annotation", .keys.join(","))]
    OptedOut {
        quota: Arc<str>,
        /// Exceeded keys.
        keys: Vec<Arc<str>>,
    },
    /// The quota is exceeded, and its `status.hard` has other keys than `spec.hard`: kube-controller-manager is about to
    /// write it.
    #[error("quota {quota} is exceeded, and its status is not in step with spec.hard in {}", .keys.join(","))]
    NotSynced {
        quota: Arc<str>,
        /// Keys that only one of the two has.
        keys: Vec<Arc<str>>,
    },
    /// The virtual machine grows beyond what the quota allows: by hot-plug, or by what other admission adds to its pod.
    #[error("quota {quota} does not allow the virtual machine to grow by {}: what it takes more than its present pod, \
        beside KubeVirt's own overhead, has to fit spec.hard",
        .grown.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Growth {
        quota: Arc<str>,
        /// What it grows by, in each key that is exceeded.
        grown: Vec<Grown>,
    },
    /// More than `spec.hard` is used already, and not by migrations that are under way.
    #[error("quota {quota} is above its spec.hard in {} by more than migrations under way and KubeVirt's overhead \
        explain{}: nothing is raised until that is over", .keys.join(","), holders(.pods))]
    Unexplained {
        quota: Arc<str>,
        /// Keys that are above `spec.hard`.
        keys: Vec<Arc<str>>,
        /// Names of pods that hold what is above, as far as they are known.
        pods: Vec<Arc<str>>,
    },
    /// `spec.hard` limits the key that raises are marked with.
    #[error("quota {quota} limits {MARK}, which marks raised quotas: remove it from spec.hard")]
    MarkTaken { quota: Arc<str> },
    /// Amounts are not quantities this program can hold, or their sum is not.
    #[error("quota {quota} has amounts that cannot be calculated with: {}", .keys.join(","))]
    Incalculable {
        quota: Arc<str>,
        /// Keys that the pod needs.
        keys: Vec<Arc<str>>,
    },
}

/// What a virtual machine grows by in a key of a quota.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{key}={by} (then used {after}, hard {hard})")]
pub struct Grown {
    /// The key, as the quota has it.
    pub key: Arc<str>,
    /// How much more the machine takes.
    pub by: Quantity,
    /// What is used once its present pod is gone.
    pub after: Quantity,
    /// `spec.hard`.
    pub hard: Quantity,
}

impl Refusal {
    /// Whether it lasts until an administrator or a tenant changes something.
    /// The others end with the next sync of the quota.
    const fn lasts(&self) -> bool {
        !matches!(self, Self::StatusUnknown { .. } | Self::NotSynced { .. })
    }
}

/// What is said of refusals that last; `None` if all of them pass by themselves.
#[must_use]
pub fn lasting(refusals: &[Refusal]) -> Option<String> {
    let lasting: Vec<String> = refusals.iter().filter(|why| why.lasts()).map(ToString::to_string).collect();
    (!lasting.is_empty()).then(|| lasting.join("; "))
}

/// What is said of growth that does not fit, as quota admission says it; `None` of refusals of another kind.
#[must_use]
pub fn quota_words(refusal: &Refusal) -> Option<String> {
    let Refusal::Growth { quota, grown } = refusal else { return None };
    let list = |amount: fn(&Grown) -> Quantity| {
        let each = grown.iter().map(|grown| format!("{}={}", grown.key, amount(grown)));
        each.collect::<Vec<_>>().join(",")
    };
    let used = |grown: &Grown| {
        Amount::from(grown.after).saturating_sub(grown.by.into()).quantity(grown.after.format())
    };
    Some(format!(
        "exceeded quota: {quota}, requested: {}, used: {}, limited: {}",
        list(|grown| grown.by),
        list(used),
        list(|grown| grown.hard)
    ))
}

fn holders(pods: &[Arc<str>]) -> String {
    if pods.is_empty() { String::new() } else { format!(", see pod {}", pods.join(", ")) }
}
