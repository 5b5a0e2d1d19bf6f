//! Why a pod waits, and what a quota has: one explanation, of which event, condition, command and JSON are forms.
//!
//! ```text
//!  State::explain ──▶ Explanation ─┬─▶ short form: events, refusals, conditions
//!                                  ├─▶ at: for people at a terminal
//!                                  └─▶ json: for programs
//! ```
//! The words and the amounts are made here and nowhere else, so the forms cannot differ. The short form has no amounts of
//! time and no places in the queue: an event is told again when its text changes.

mod json;
mod obstacle;
mod pod;
mod quota;
pub(crate) mod words;

pub use obstacle::{Lack, Obstacle, QuotaName, Short};
pub use pod::{Ahead, PodExplanation, Verdict, Wait};
pub use quota::{HeldTold, Line, QuotaExplanation, Taker};
pub use words::{duration, percent, plain, table};

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

/// What an explanation is asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'n> {
    Pod {
        namespace: &'n str,
        name: &'n str,
    },
    /// An `ApplicationAwareResourceQuota`.
    Quota {
        namespace: &'n str,
        name: &'n str,
    },
    /// An `ApplicationAwareClusterResourceQuota`.
    ClusterQuota {
        name: &'n str,
    },
}

/// What an explanation is asked of in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic<'n> {
    /// A pod of this name.
    Pod(&'n str),
    /// An `ApplicationAwareResourceQuota` of this name.
    Quota(&'n str),
    /// An `ApplicationAwareClusterResourceQuota` of this name that selects the namespace.
    ClusterQuota(&'n str),
    /// A VirtualMachineInstance of this name.
    Machine(&'n str),
}

/// What is told in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Explained {
        /// One; of a VM one for each of its pods.
        explanations: Vec<Explanation>,
        /// The namespace has so many pods that places and who takes most are left out.
        is_crowded: bool,
    },
    /// The namespace has too many pods to look at all of them, which the answer needs.
    Crowded,
    /// There is no such object. Some names of the same kind in the namespace.
    Unknown(Vec<Box<str>>),
}

/// Why things are as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    Pod(PodExplanation),
    Quota(QuotaExplanation),
}

impl Explanation {
    /// Whether the answer is that something waits.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match self {
            Self::Pod(pod) => pod.verdict.is_held(),
            Self::Quota(quota) => quota.held > 0,
        }
    }

    /// As it is printed `now`, in seconds since the epoch.
    #[must_use]
    pub fn at(&self, now: i64) -> impl Display {
        struct At<'e>(&'e Explanation, i64);
        impl Display for At<'_> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                match self.0 {
                    Explanation::Pod(pod) => pod.write(f, self.1),
                    Explanation::Quota(quota) => quota.write(f, self.1),
                }
            }
        }
        At(self, now)
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            Self::Pod(pod) => json::pod(pod),
            Self::Quota(quota) => json::quota(quota),
        }
    }
}
