//! What the gate wants done, and what comes back.

use std::sync::Arc;

use sluice_engine::{PodId, QuotaId, StatusTarget, Uid};
use sluice_index::{ArqWire, ChargeObject, ClusterQuotaChargeWire, NamespaceId, PodWire, Version, VmiWire};
pub use sluice_runtime::request::Answer;

use super::admission::{Judgement, Ticket};
use super::evaluators::{Evaluate, Failed, NotRead, ReadRound, Said};
use super::explain::HeldTold;

/// Something to be done outside.
#[derive(Clone, Debug)]
pub enum Action {
    /// Record what is charged to a quota, provided that the object that says so has not changed.
    Record(Box<Record>),
    /// Remove the gate of a pod, provided that it is the pod that was decided on.
    Release(Release),
    /// Read the quotas of these namespaces as they are now, of several by one request for those of all.
    ListQuotas(Vec<(NamespaceId, Arc<str>)>),
    /// Wait until the watch of cluster quotas has handed on every specification that there is when this is asked for.
    CatchUpClusterQuotas,
    /// Have the watches of namespaces and of configurations list everything anew.
    ListTargets,
    /// Read a VirtualMachineInstance as it is now.
    ReadMachine(MachineRead),
    /// Wait until the watch of pods has handed on everything that there is when this is asked for.
    CatchUp,
    /// Read a pod as it is now.
    Read(Release),
    /// Read the pods of a namespace, to be sent to evaluators.
    ReadRound(ReadRound),
    /// Ask evaluators what a pod takes.
    Evaluate(Box<Evaluate>),
    /// Answer a question ([`State::ask`](super::State::ask)).
    Answer(Ticket, Judgement),
    /// Write an event: on a pod why it is held, on a quota or the configuration what has become of it.
    WriteEvent(GateEvent),
}

/// A quota as people and requests name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaRef {
    Namespaced { namespace: Arc<str>, name: Arc<str> },
    Cluster { name: Arc<str> },
}

impl QuotaRef {
    /// `metadata.namespace`; empty for one of the cluster.
    #[must_use]
    pub fn namespace(&self) -> Arc<str> {
        match self {
            Self::Namespaced { namespace, .. } => Arc::clone(namespace),
            Self::Cluster { .. } => Arc::from(""),
        }
    }

    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Namespaced { name, .. } | Self::Cluster { name } => name,
        }
    }
}

/// Where the charge of a quota is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedIn {
    /// In the status of the quota, if that has this version.
    Status(Version),
    /// In the charge of a cluster quota, if that is this object in this version.
    Charge(ChargeObject),
    /// There is no charge of the cluster quota: it is created, and nothing recorded yet. If the quota is `unshown`, its
    /// status is written before: so a charge that is missing beside a status has been deleted.
    NewCharge {
        /// The version of the quota in which its status shows nothing. It is shown in just this version: then no charge was
        /// recorded before. `None`: it is shown already.
        unshown: Option<Version>,
    },
}

/// See [`Action::Record`].
#[derive(Clone, Debug)]
pub struct Record {
    /// The quota's handle.
    pub quota: QuotaId,
    pub name: QuotaRef,
    pub uid: Uid,
    pub object: RecordedIn,
    pub target: StatusTarget,
    /// How many pods wait for the quota.
    pub held: i64,
    /// What is told of those pods; `None` without any.
    pub held_told: Option<HeldTold>,
    /// Since when pods wait, in seconds since the epoch; of use while some do.
    pub held_told_since: i64,
    /// What is told of pods that run without an answer of evaluators; `None` without any.
    pub unevaluated: Option<String>,
    /// Since when there are some, in seconds since the epoch; of use while there are.
    pub unevaluated_since: i64,
    /// `status.charges` with this charge included.
    pub charges: i64,
    /// Since when there are keys that nothing counts, in seconds since the epoch; of use while there are some.
    pub uncounted_since: i64,
    /// Since when the condition about VMs has its status; of use while there is one.
    pub machines_since: i64,
    /// Since when pods are not limited; of use while there are some that are not.
    pub unenforced_since: i64,
}

impl Record {
    /// Whether the object that records charges is created, and nothing recorded.
    pub(super) const fn is_new(&self) -> bool {
        matches!(self.object, RecordedIn::NewCharge { .. })
    }

    /// Whether no charge was recorded before this one, if it is done.
    pub(super) const fn is_first(&self) -> bool {
        matches!(self.object, RecordedIn::NewCharge { unshown: Some(_) })
    }
}

/// See [`Action::Release`] and [`Action::Read`].
#[derive(Clone, Debug)]
pub struct Release {
    /// The pod's handle.
    pub pod: PodId,
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub uid: Uid,
    /// The version that was decided on.
    pub version: Version,
}

/// See [`Action::ReadMachine`].
#[derive(Clone, Debug)]
pub struct MachineRead {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
}

/// What an event is about, as `regarding` of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regarding {
    /// A pod that is held.
    Pod(PodId),
    Quota(QuotaId),
    /// A VirtualMachineInstance that is not to have more, or whose pod is held.
    Machine,
    /// A VirtualMachine whose pod is held.
    VirtualMachine,
    /// A migration whose target is held.
    Migration,
    Configuration,
    Namespace,
}

/// See [`Action::WriteEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateEvent {
    /// What it is about.
    pub regarding: Regarding,
    /// The namespace of that object; empty if it has none.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
    /// A word for the kind of reason.
    pub reason: &'static str,
    pub message: String,
}

/// The object that records what is charged to a quota.
#[derive(Clone, Debug)]
pub enum RecordedObject {
    /// A quota of a namespace: its status does.
    Quota(ArqWire),
    Charge(ClusterQuotaChargeWire),
}

/// What became of an [`Action`].
#[derive(Debug)]
pub enum Outcome {
    Recorded(QuotaId, Uid, Answer<RecordedObject>),
    Released(PodId, Uid, Answer<PodWire>),
    /// Of [`Action::ListQuotas`]: these namespaces were asked about.
    Listed(Vec<NamespaceId>, Answer<Vec<ArqWire>>),
    /// Of [`Action::CatchUpClusterQuotas`]; it never fails.
    ClusterQuotasCaughtUp,
    /// Of [`Action::ListTargets`]: the watches have handed it on. It never fails.
    TargetsListed,
    Read(PodId, Uid, Answer<PodWire>),
    /// Of [`Action::ReadMachine`]; `None`: there is none of this name.
    MachineRead(MachineRead, Box<Answer<Option<VmiWire>>>),
    /// Of [`Action::WriteEvent`]; true if the event was written.
    EventWritten(GateEvent, bool),
    /// Of [`Action::CatchUp`]; it never fails.
    CaughtUp,
    /// Of a [`ReadRound`]: the namespace, and the number of the round.
    RoundRead(NamespaceId, u64, Result<(), NotRead>),
    Evaluated {
        /// The pod's handle.
        pod: PodId,
        uid: Uid,
        /// What the answer is about.
        hash: u64,
        /// Of the question.
        serial: u64,
        /// What is charged.
        answer: Result<Said, Failed>,
    },
}
