//! Questions about one subject, and their answers. The caller knows how to answer ([`Cluster`]).

use std::sync::Arc;

use futures::future::BoxFuture;
use sluice_engine::Quantity;
use sluice_gate::{Explanation, PodExplanation};
use tokio::sync::watch;

/// Of what it is asked why it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    Pod,
    /// A `VirtualMachine`, or its instance.
    Vm,
    Migration,
}

impl SubjectKind {
    pub const ALL: [Self; 3] = [Self::Pod, Self::Vm, Self::Migration];

    /// As `sluice why` calls it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Vm => "vm",
            Self::Migration => "migration",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Why does it wait?
    Why { kind: SubjectKind, namespace: String, name: String },
    /// What is in an `ApplicationAwareResourceQuota`, and who waits for it?
    Quota { namespace: String, name: String },
}

impl Asked {
    /// The namespace that it is about.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Why { namespace, .. } | Self::Quota { namespace, .. } => namespace,
        }
    }
}

/// An object between a VM and the quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// What it is: `VM`, `pod`, `quota`.
    pub what: &'static str,
    pub name: String,
    pub state: String,
    /// It waits, or is waited for.
    pub is_held: bool,
}

/// Why something waits.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// From the subject to the quotas.
    pub chain: Vec<Link>,
    /// Sentences before the explanations.
    pub lines: Vec<String>,
    /// What `sluice why` explains.
    pub explanations: Vec<Explanation>,
    /// Why there is no answer.
    pub unknown: Option<String>,
    /// What could not be known and was taken to be so.
    pub assumed: Vec<String>,
    /// Rights that were missing.
    pub missing: Vec<String>,
}

/// A pod that waits, of which no more is known than what was said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub namespace: String,
    pub name: String,
    /// When it was created, in seconds since the epoch.
    pub since: Option<i64>,
    /// The last that was said.
    pub said: String,
}

#[derive(Clone, Debug, Default)]
pub struct QuotaTold {
    /// What `sluice why quota` explains; `None`: nothing is known of it.
    pub explanation: Option<Explanation>,
    /// Who takes most of the fullest key: a pod, or `vm` with a name.
    pub takers: Vec<(String, Quantity)>,
    /// What all others take of it together, and how many they are.
    pub others: Option<(usize, Quantity)>,
    /// The pods that wait for it, in the order in which they go, as far as they are shown.
    pub queue: Vec<PodExplanation>,
    /// How many wait.
    pub waiting: usize,
    /// Why takers and queue are not known.
    pub unknown: Option<String>,
    /// Then, the pods that wait in the namespace.
    pub recorded: Vec<Recorded>,
    /// What could not be known and was taken to be so.
    pub assumed: Vec<String>,
    /// Rights that were missing.
    pub missing: Vec<String>,
}

#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Asked::Why`].
    Why(Told),
    /// To [`Asked::Quota`].
    Quota(Box<QuotaTold>),
    /// There is none, and this is why.
    Failed(String),
}

/// The last answer; `None` before the first. Another one comes when something of the namespace has changed. Once all that
/// follow are gone, nothing is watched for them any more.
pub type Followed = watch::Receiver<Option<Arc<Answer>>>;

/// What comes of one VM of a node that is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainRow {
    pub namespace: String,
    pub vm: String,
    /// What ResourceQuotas have for its next pod, Sluice's quotas, and head-room.
    pub room: [String; 3],
    /// In a word.
    pub result: &'static str,
    /// It can leave the node.
    pub is_good: bool,
    pub message: String,
}

/// What comes of the VMs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    /// One for each VM.
    pub rows: Vec<DrainRow>,
    /// Rights that were missing.
    pub missing: Vec<String>,
}

/// Who answers what the model does not know.
pub trait Cluster: Send + Sync + 'static {
    /// Seconds since the epoch by the API server's clock.
    fn now(&self) -> i64;
    /// Answers again and again.
    fn follow(&self, asked: Asked) -> Followed;
    /// Looks once at the VMs of a node.
    fn drain(&self, node: String) -> BoxFuture<'static, Result<Drain, String>>;
}
