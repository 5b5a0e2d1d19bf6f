//! What a session asks for and what it is told.

use std::sync::Arc;

use sluice_engine::Uid;
use sluice_engine::headroom::{Account, Budget, NativeQuota, Raise, Refusal, Shortage};

/// A quota by its name and identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuotaRef {
    pub name: Arc<str>,
    /// Its identity: a quota of the same name that was created later is another one.
    pub uid: Uid,
}

/// Where a look takes its facts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// What the watches have shown, but the objects that grant something are read anew, by their names.
    Grants,
    /// The quotas are read from the API server, the objects that grant something by their names, and where more of a quota
    /// is used than its spec says, all pods of the namespace.
    Live,
    /// What the watches have shown, once that of quotas has shown the raises, and so every earlier one.
    Raised,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Look at quotas and budget.
    Look(Look),
    /// Wait until no quota of the namespace has a live mark of another session.
    WaitForOther,
    /// End the raises of other sessions whose marks are over.
    Clear,
    /// Write the exact fit and the mark to one quota, if it is still as it was seen. The last one, the primary, carries the
    /// amount that API servers are asked for.
    Raise {
        raise: Raise,
        /// The amount of the mark.
        mark: i64,
    },
    /// Ask each API server until it knows of this mark: then it keeps other pods away, and its quota admission knows of the
    /// raises.
    Settle(i64),
    /// Let the target's creation go on.
    LetIn,
    /// Wait until the raised quotas are charged, the target exists, or its creation failed.
    Await,
    /// Set the marks of [`super::WindowSession::raised`] anew: the API server may still be waiting for another webhook.
    Renew,
    /// End the raises of [`super::WindowSession::raised`]. What cannot be ended is left to the sweep.
    Restore,
    /// The raised quotas were charged: wait until the target exists, or find out that no pod does.
    Confirm,
    /// The session is over.
    Stop(Ending),
}

/// Facts for a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// All quotas of the namespace.
    pub quotas: Vec<NativeQuota>,
    /// What may be granted.
    pub budget: Budget,
    /// The pods that explain what is above a quota already. Without any where no quota is above its spec.
    pub account: Account,
    /// The API server's clock, at most a second behind; milliseconds since the epoch.
    pub now_ms: i64,
    /// The mark that a lock taken now gets: its end in milliseconds, unlike any other and any other plus one.
    pub mark: i64,
}

/// How a command went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// What was looked at.
    Seen(Snapshot),
    /// Nothing was read: reading did not help a moment ago.
    Spared,
    /// No live mark of another session is left.
    Free,
    /// Everything was written that can be.
    Written,
    /// The quota is not as it was seen, or does not exist any more; nothing was written.
    Conflict,
    /// The write has no answer; it may have been done, or be done yet.
    Unanswered,
    /// The write was refused.
    Refused(Arc<str>),
    /// Every API server knows.
    Settled,
    /// The target's creation goes on.
    LetIn,
    /// The mark ends soon.
    Closing,
    /// The session ends so: nothing more is to be waited for, or the command could not be done.
    Ended(Ending),
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The target was let in.
    Entered,
    /// There is room for the target as things are, or nothing is granted that could help.
    NotNeeded,
    /// The budget does not allow it. Nothing stays raised.
    NotEnough(Vec<Shortage>),
    /// Head-room cannot help: the quota refuses the target for another reason.
    Refused(Vec<Refusal>),
    /// Another session of the namespace took too long.
    Busy,
    /// Raising did not help a moment ago, or the namespace was locked too much.
    Resting,
    /// An API server does not enforce the policies, or cannot be asked.
    Unproven(Arc<str>),
    /// An API server that answers proofs in time did not tell that it knows of the raise: something in this namespace keeps
    /// its quota admission busy, or denies probes.
    Unsettled(Arc<str>),
    /// Another admission step refused the target: KubeVirt's controller has tried again, or it was charged and is no pod.
    Denied,
    /// The target did not come.
    NotSeen,
    /// The raised keys are used up to what is enforced, but not by the target: another pod of the same size took the room.
    Taken,
    /// The quotas changed faster than they could be raised.
    Overtaken,
    /// Writing the status of a quota is refused.
    Forbidden(Arc<str>),
    /// A request failed.
    Failed(Arc<str>),
}

impl Ending {
    /// Whether the target gets no room as things are.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::NotEnough(_) | Self::Refused(_))
    }

    /// One word for metrics and logs.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Entered => "entered",
            Self::NotNeeded => "not_needed",
            Self::NotEnough(_) => "not_enough",
            Self::Refused(_) => "refused",
            Self::Busy => "busy",
            Self::Resting => "resting",
            Self::Unproven(_) => "unproven",
            Self::Unsettled(_) => "unsettled",
            Self::Denied => "denied",
            Self::NotSeen => "not_seen",
            Self::Taken => "taken",
            Self::Overtaken => "overtaken",
            Self::Forbidden(_) => "forbidden",
            Self::Failed(_) => "failed",
        }
    }
}
