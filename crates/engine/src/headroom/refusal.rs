//! Why a target pod would be rejected, or must be left alone, whatever the budget is.

use std::sync::Arc;

use super::quota::MARK;

/// A reason that no raise can remove. Keys are sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// Containers do not name amounts that the quota makes mandatory.
    #[error("quota {quota}: must specify {}", .missing.join("; "))]
    MustSpecify {
        /// Name of the quota.
        quota: Arc<str>,
        /// `key for: container,container`, by key.
        missing: Vec<String>,
    },
    /// The quota is enforced but its usage was not computed yet.
    #[error("status unknown for quota: {quota}, resources: {}", .keys.join(","))]
    StatusUnknown {
        /// Name of the quota.
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
        /// Name of the quota.
        quota: Arc<str>,
        /// Exceeded keys.
        keys: Vec<Arc<str>>,
    },
    /// The quota is exceeded, and its `status.hard` has other keys than `spec.hard`: kube-controller-manager is about to
    /// write it.
    #[error("quota {quota} is exceeded, and its status is not in step with spec.hard in {}", .keys.join(","))]
    NotSynced {
        /// Name of the quota.
        quota: Arc<str>,
        /// Keys that only one of the two has.
        keys: Vec<Arc<str>>,
    },
    /// The machine grows by hot-plug beyond what the quota allows.
    #[error("quota {quota} does not allow the machine to grow in {}: what a hot-plug adds has to fit spec.hard", .keys.join(","))]
    Growth {
        /// Name of the quota.
        quota: Arc<str>,
        /// Exceeded keys of which the machine takes more than before.
        keys: Vec<Arc<str>>,
    },
    /// `spec.hard` limits the key that raises are marked with.
    #[error("quota {quota} limits {MARK}, which marks raised quotas: remove it from spec.hard")]
    MarkTaken {
        /// Name of the quota.
        quota: Arc<str>,
    },
    /// Amounts are not quantities this program can hold, or their sum is not.
    #[error("quota {quota} has amounts that cannot be calculated with: {}", .keys.join(","))]
    Incalculable {
        /// Name of the quota.
        quota: Arc<str>,
        /// Keys that the pod needs.
        keys: Vec<Arc<str>>,
    },
}
