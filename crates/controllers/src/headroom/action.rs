//! What the plan asks for and what it is told.

use std::sync::Arc;

use sluice_engine::Uid;
use sluice_engine::headroom::Need;

/// Something to do. At most one of those that ask the API server is under way in a namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// End what is raised without a window, and windows whose time is over.
    Sweep(Arc<str>, Cause),
    /// Find out what the source of this migration takes.
    Look(Blocked),
    /// Make room for the target of this migration, whose source is expected to take so much.
    Open {
        /// For whom.
        blocked: Blocked,
        /// What the source took when it was decided.
        source: Need,
        /// What the target is expected to take.
        need: Need,
    },
    /// Have KubeVirt's controller try again: write this quota without changing what it says.
    Nudge(Nudge),
    /// Tell people. Not answered.
    Tell(Tell),
}

impl Action {
    /// The namespace that is busy until the answer; `None` if there is no answer.
    #[must_use]
    pub const fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Self::Sweep(namespace, _) => Some(namespace),
            Self::Look(blocked) | Self::Open { blocked, .. } => Some(&blocked.namespace),
            Self::Nudge(nudge) => Some(&nudge.namespace),
            Self::Tell(_) => None,
        }
    }
}

/// Why a namespace is swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A quota is raised and there is no window.
    Raised,
    /// There is a window whose time is over.
    Expired,
}

/// A migration to be helped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The virtual machine's name.
    pub machine: Arc<str>,
    /// The virtual machine's identity, as text.
    pub machine_uid: Arc<str>,
    /// Username of KubeVirt's controller.
    pub creator: Arc<str>,
}

/// A write that wakes KubeVirt's controller and changes nothing that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nudge {
    /// Namespace of the quota.
    pub namespace: Arc<str>,
    /// Name of the quota.
    pub quota: Arc<str>,
    /// Identity of the quota.
    pub uid: Uid,
    /// The mark is there and is taken away; otherwise it is put there.
    pub marked: bool,
}

/// What people are told. Each is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tell {
    /// The budget is not enough for a migration.
    NotEnough {
        /// For whom.
        blocked: Blocked,
        /// What is missing, in one sentence.
        sentence: Arc<str>,
    },
    /// Head-room cannot help a migration.
    Refused {
        /// For whom.
        blocked: Blocked,
        /// Why.
        sentence: Arc<str>,
    },
    /// Somebody forbids to write the status of a quota.
    Forbidden {
        /// Namespace of the quota.
        namespace: Arc<str>,
        /// Name of the quota; `None`: whichever of the namespace.
        quota: Arc<str>,
        /// Identity of the quota.
        uid: Uid,
        /// What the API server said.
        said: Arc<str>,
    },
}

/// The answer to an [`Action`].
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The namespace that the action was about.
    pub namespace: Arc<str>,
    /// How it went.
    pub result: Done,
}

/// How an action went.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// The namespace was swept; what is left is a window that is still live.
    Swept {
        /// Quotas that were restored.
        restored: usize,
        /// A window is still live by the API server's clock.
        live: bool,
    },
    /// This is what the source takes; `None` if there is none.
    Looked(Uid, Option<Need>),
    /// A window was tried.
    Opened(Uid, Opened),
    /// The quota was written.
    Nudged,
    /// The action failed.
    Failed(Failed),
}

/// How a window ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// How.
    pub ending: Ending,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// How a window ended, as far as it matters for what is done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// The target is there.
    Entered,
    /// Writing the quota is forbidden.
    Forbidden(Arc<str>),
    /// Anything else: to be tried again later.
    InVain,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Somebody forbids it, and will again.
    Forbidden(Arc<str>),
    /// To be tried again later.
    Other(Arc<str>),
}
