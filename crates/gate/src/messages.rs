//! What is told of pods that are held, and of quotas.

use jiff::Timestamp;
use sluice_engine::Deadline;

/// The kind of reason, and the sentence.
pub(crate) type Text = (&'static str, String);

/// The kinds of reasons, as `reason` of events.
pub(crate) mod reasons {
    /// A quota has no room.
    pub const EXCEEDED: &str = "QuotaExceeded";
    /// A cluster quota has no room.
    pub const CLUSTER_EXCEEDED: &str = "ClusterQuotaExceeded";
    /// A pod asks for more than the whole quota.
    pub const EXCEEDS_LIMIT: &str = "ExceedsLimit";
    /// There is room, but an older pod comes first.
    pub const QUEUED: &str = "QueuedBehind";
    /// The pod asks for something that cannot be read.
    pub const UNREADABLE: &str = "Unreadable";
    /// The pod has no gate, and is counted.
    pub const RELEASED: &str = "Released";
    /// The pod runs no more.
    pub const OVER: &str = "Finished";
    /// The pod was not looked at yet, or its gate is about to be removed.
    pub const PENDING: &str = "PendingEvaluation";
    /// Gates of others hold the pod.
    pub const OTHER_GATES: &str = "WaitingForOtherGates";
    /// The pod goes without a charge.
    pub const NOT_TARGETED: &str = "NotTargeted";
    /// The namespace of the pod is being deleted.
    pub const TERMINATING: &str = "NamespaceTerminating";
    /// A quota has kept the target of a migration waiting for long.
    pub const TARGET_HELD: &str = "MigrationTargetHeld";
    /// The VM that the pod runs cannot be counted.
    pub const UNKNOWN_MACHINE: &str = "UnknownMachine";
    /// Evaluators do not say what the pod takes.
    pub const NOT_EVALUATED: &str = "NotEvaluated";
    /// A quota of the namespace cannot be understood.
    pub const INVALID_QUOTA: &str = "InvalidQuota";
    /// Another writes the status of the quota.
    pub const STATUS_CONTESTED: &str = "StatusContested";
    /// Another removed the gate of a pod that waited for the quota.
    pub const GATE_REMOVED: &str = "GateRemoved";
    /// Pods that the quota is about are not gated.
    pub const NOT_ENFORCED: &str = "NotEnforced";
    /// Pods go without a charge because their namespaces are not targeted any more.
    pub const NO_LONGER_TARGETED: &str = "NoLongerTargeted";
    /// Pods do not wait for quota for a time.
    pub const PAUSED: &str = "Paused";
    /// Pods wait for quota again.
    pub const PAUSE_ENDED: &str = "PauseEnded";
    /// The annotation of a pause cannot be read.
    pub const PAUSE_IGNORED: &str = "PauseIgnored";
    /// The API server refuses to let the gate be removed.
    pub const REFUSED: &str = "ReleaseRefused";
}

/// What is to be told of a held pod whose ephemeral volumes have claims.
pub(crate) const HELD_CLAIMS: &str = "claims of its ephemeral volumes exist already and count in quotas on storage: delete \
    the pod to free them";

/// What [`target_held`] says takes so many bytes at most, without why.
pub(crate) const TARGET_HELD_BYTES: usize = 160;

/// Of the target of a migration that is held for long, and why. Says moments and not how long that is: so it stays the same.
pub(crate) fn target_held(since: i64, deadline: Deadline, why: &str) -> String {
    let moment = |second| Timestamp::from_second(second).ok();
    let since = moment(since).unwrap_or_default();
    match moment(deadline.0) {
        Some(end) => {
            format!("target of a migration, held since {since}, KubeVirt gives it up at {end}: {why}")
        }
        None => format!("target of a migration, held since {since}, KubeVirt does not give it up: {why}"),
    }
}
