//! What is told of pods that are held, and of quotas.

use jiff::Timestamp;
use sluice_engine::quota_spec::HardEntry;
use sluice_engine::status::keys_of;
use sluice_engine::{Amount, CompiledQuota, Deadline, Excess, QuotaKind, Reason};

/// The kinds of reasons, as `reason` of events.
pub(super) mod reasons {
    /// A quota has no room.
    pub const EXCEEDED: &str = "ExceededQuota";
    /// A pod asks for more than the whole quota.
    pub const EXCEEDS_LIMIT: &str = "ExceedsLimit";
    /// There is room, but an older pod comes first.
    pub const QUEUED: &str = "WaitingInQueue";
    /// The pod asks for something that cannot be read.
    pub const UNREADABLE: &str = "UnreadablePod";
    /// A quota has kept the target of a migration waiting for long.
    pub const TARGET_HELD: &str = "MigrationTargetHeld";
    /// The VM that the pod runs cannot be counted.
    pub const UNKNOWN_MACHINE: &str = "UnknownMachine";
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
    /// They wait again.
    pub const PAUSE_ENDED: &str = "PauseEnded";
    /// The annotation of a pause cannot be read.
    pub const PAUSE_IGNORED: &str = "PauseIgnored";
    /// The API server refuses to let the gate be removed.
    pub const REFUSED: &str = "ReleaseRefused";
}

/// Why there is no room in a quota.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lack<'n> {
    /// There is too little.
    Exceeded,
    /// It is kept for this pod of the same namespace.
    KeptForOwn(&'n str),
    /// It is kept for a pod of another namespace, of which nothing is told, or for one that has gone.
    KeptForOther,
}

impl Lack<'_> {
    /// As `reason` of an event.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Exceeded => reasons::EXCEEDED,
            Self::KeptForOwn(_) | Self::KeptForOther => reasons::QUEUED,
        }
    }
}

/// `exceeded quota: q, requested: …, used: …, limited: …` with only the keys that are exceeded, sorted
/// (`docs/quota-semantics.md`, *Enforcement*). If room is kept for another pod, all keys.
pub(super) fn exceeded(quota: &str, compiled: &CompiledQuota, reason: &Reason, lack: Lack<'_>) -> String {
    // A quota may name a resource twice (`cpu` and `requests.cpu`) with different limits.
    let is_short = |excess: &Excess, entry: &HardEntry| {
        !matches!(lack, Lack::Exceeded) || excess.used.saturating_add(excess.requested) > entry.hard.into()
    };
    let list = |amount: fn(&Excess, &HardEntry) -> Amount| {
        let mut parts: Vec<String> = reason
            .excess
            .iter()
            .flat_map(|excess| keys_of(compiled, &excess.resource).map(move |entry| (excess, entry)))
            .filter(|(excess, entry)| is_short(excess, entry))
            .map(|(excess, entry)| {
                format!("{}={}", entry.key, amount(excess, entry).quantity(entry.hard.format()))
            })
            .collect();
        parts.sort();
        parts.join(",")
    };
    let requested = list(|excess, _| excess.requested);
    let used = list(|excess, _| excess.used);
    let limited = list(|_, entry| entry.hard.into());
    let amounts = format!("requested: {requested}, used: {used}, limited: {limited}");
    let kept = format!("waiting in queue: room in quota {quota} is kept for");
    match lack {
        Lack::Exceeded => format!("exceeded quota: {quota}, {amounts}"),
        Lack::KeptForOwn(pod) => format!("{kept} pod {pod}, which has waited longer, {amounts}"),
        Lack::KeptForOther => format!("{kept} a pod that has waited longer, {amounts}"),
    }
}

/// What is to be told after [`exceeded`] of a pod that asks for more than the whole quota: the field to change;
/// `None` of any other.
pub(super) fn never_fits(kind: QuotaKind, compiled: &CompiledQuota, reason: &Reason) -> Option<String> {
    let is_short = |(excess, entry): &(&Excess, &HardEntry)| excess.requested > entry.hard.into();
    let exceeded = reason.excess.iter().flat_map(|excess| {
        let entries = keys_of(compiled, &excess.resource).map(move |entry| (excess, entry));
        entries.filter(is_short).map(|(_, entry)| &*entry.key)
    });
    let mut keys: Vec<&str> = exceeded.collect();
    keys.sort_unstable();
    let field = kind.field();
    (!keys.is_empty()).then(|| {
        format!(
            "the pod alone is more than the whole quota and can never be released: raise {field}[{}] of the quota, or \
             change the template of the pod's controller and delete the pod",
            keys.join(",")
        )
    })
}

/// What is to be told of a held pod whose ephemeral volumes have claims.
pub(super) const HELD_CLAIMS: &str = "claims of its ephemeral volumes exist already and count in quotas on storage: delete \
    the pod to free them";

/// Of the target of a migration that is held for long, and why. Says moments and not how long that is: so it stays the same.
pub(super) fn target_held(since: i64, deadline: Deadline, why: &str) -> String {
    let moment = |second| Timestamp::from_second(second).ok();
    let since = moment(since).unwrap_or_default();
    match moment(deadline.0) {
        Some(end) => {
            format!("target of a migration, held since {since}, KubeVirt gives it up at {end}: {why}")
        }
        None => format!("target of a migration, held since {since}, KubeVirt does not give it up: {why}"),
    }
}
