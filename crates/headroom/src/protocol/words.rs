//! What an opening asks for and what it can be told.

use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Uid;
use sluice_engine::headroom::{Budget, NativeQuota, Raise, Refusal, Shortage};

/// A quota by its name and identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuotaRef {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity: a quota of the same name that was created later is another one.
    pub uid: Uid,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Create the window of the namespace: mutex, record and admission lock in one.
    Lock,
    /// Wait until the window that somebody else holds is gone.
    WaitForOther,
    /// Clear the window that somebody else left to expire: restore what is raised, then delete it.
    ClearOther,
    /// Have every API server deny a probe because of this window.
    Prove,
    /// Let requests that passed the lock before it was there finish.
    Drain,
    /// Recall the namespace's quotas as they were last seen. A raise is only written if they still are so.
    Recall,
    /// Read the namespace's quotas, not from a cache.
    Read,
    /// Wait until what is known of the cluster has our own window: then it has every window before it, too.
    Catchup,
    /// Read what the namespace may take beyond its quotas, not from a cache: what is known does not allow the target.
    ReadBudget,
    /// Write `status.hard` of one quota, if it is still as it was read.
    Raise(Raise),
    /// Wait until quota admission knows of the raises: of the last one, that of this quota, it can be asked. Without one,
    /// until it can be expected to know.
    Settle(Option<QuotaRef>),
    /// Let the target's creation go on.
    Admit,
    /// Wait until the target exists, or quota admission has charged for it.
    Await,
    /// Put `status.hard` of one quota back to `spec.hard`, whatever they are by now.
    Restore(QuotaRef),
    /// Delete the window.
    Unlock,
    /// It is over.
    Stop(Ending),
}

/// How a command went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The window was created.
    Locked,
    /// There is a window for another migration.
    Held,
    /// There is a window for this very migration, opened to wake it.
    HeldForTarget,
    /// There is a window whose time is over by the API server's clock.
    HeldExpired,
    /// The other window is gone.
    Free,
    /// No more time to wait.
    TimeUp,
    /// Every API server denies. The lock holds for at least this long.
    Proven(Duration),
    /// Requests that were under way are done.
    Drained,
    /// The quotas as they are, what the namespace may take beyond them, and how long the lock still holds.
    Quotas {
        /// All quotas of the namespace.
        quotas: Vec<NativeQuota>,
        /// What it may take.
        budget: Budget,
        /// How long the lock holds for sure.
        left: Duration,
    },
    /// What the namespace may take is known as it is now.
    BudgetRead,
    /// What is known is not older than our window.
    CaughtUp,
    /// The quota is raised.
    Raised,
    /// The quota is not as it was read; nothing was written.
    Conflict,
    /// Nobody knows whether the write went through, or will.
    Unanswered,
    /// The write was refused, and will be again.
    Forbidden(Arc<str>),
    /// Waiting is over; quota admission knows, or can be expected to know.
    Settled,
    /// The target's creation goes on.
    Admitted,
    /// The target exists, or is about to: quota admission has let it in.
    Seen,
    /// The target did not come in time.
    NotSeen,
    /// Somebody put a quota back before the target came.
    Lowered,
    /// The quota is as its spec says, or does not exist any more. What of it was used by then.
    Restored(Option<NativeQuota>),
    /// The window is gone.
    Unlocked,
    /// It could not be done. The text says what was tried.
    Failed(Arc<str>),
}

/// What grew in a raised quota without being the target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Theft {
    /// The quota.
    pub quota: QuotaRef,
    /// The key.
    pub key: Arc<str>,
}

/// How an opening ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The target was let in.
    Entered,
    /// Room was made, or was there; the target did not come.
    NotSeen,
    /// A window that was opened to wake the migration has room for its target.
    Covered,
    /// The budget does not allow it. Nothing was raised.
    NotEnough(Vec<Shortage>),
    /// Head-room cannot help: the target is refused for another reason.
    Refused(Vec<Refusal>),
    /// Another window took too long.
    TimedOut,
    /// The lock could not be taken.
    NotLocked(Arc<str>),
    /// The lock was not proven in time. Nothing was raised.
    NotProven(Arc<str>),
    /// The quotas changed faster than they could be raised, or the lock would have ended too soon.
    Overtaken,
    /// Writing the status of a quota is forbidden.
    Forbidden(Arc<str>),
    /// Reading or waiting failed.
    Failed(Arc<str>),
}

impl Ending {
    /// One word for metrics and logs.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Entered => "entered",
            Self::NotSeen => "not_seen",
            Self::Covered => "covered",
            Self::NotEnough(_) => "not_enough",
            Self::Refused(_) => "refused",
            Self::TimedOut => "timed_out",
            Self::NotLocked(_) => "not_locked",
            Self::NotProven(_) => "not_proven",
            Self::Overtaken => "overtaken",
            Self::Forbidden(_) => "forbidden",
            Self::Failed(_) => "failed",
        }
    }
}
