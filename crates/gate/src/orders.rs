//! What the accounts want others to do, and what they want to be told: as data, in the order in which it was found.

use sluice_engine::{PodId, QuotaId};
use sluice_index::NamespaceId;

use super::accounts::parts::pauses::{Paused, Scope};
use super::config::Moment;

/// A decision by pod and serial. Growth of a VM is charged on account of one of its pods.
pub type Decision = (PodId, u64);

/// See [`Decision`].
pub type Decisions = Vec<Decision>;

/// What is read before a pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Listed {
    /// The quotas of one namespace.
    Namespace(NamespaceId),
    /// Those of the cluster, by their watch.
    Cluster,
    /// All namespaces, and the configurations.
    Targets,
}

/// Something that others have to do.
#[derive(Debug)]
pub enum Order {
    /// The status of the quota may have to be written.
    Restate(QuotaId),
    /// The status of each quota about the namespace may have to be written.
    RestateAbout(NamespaceId),
    /// The next write of the quota has to record the charge of this decision.
    Record(QuotaId, Decision),
    /// The decision waits for a list that is requested from now on.
    Await(Listed, Decision),
    /// What waits for a list of the quotas of the namespace may be listed now.
    List(NamespaceId),
    /// Nothing is to be written of the quota any more.
    Close(QuotaId),
    /// The sums of the quota are complete: room is kept for what its record holds above them.
    KeepRecorded(QuotaId, Moment),
    /// The gate of the pod of the namespace is to be removed.
    Go(NamespaceId, PodId),
    /// The pod counts, or is gone: earlier failures to remove its gate do not matter any more.
    EndRetries(PodId),
    /// Others may want to hear of it.
    Tell(News),
}

/// Something that happened.
#[derive(Debug)]
pub enum News {
    /// There may be something new about a pod that is held.
    Held(PodId, Moment),
    /// There is nothing to be told of the pod any more.
    Nothing(PodId),
    /// A pod was seen released that was held for so many milliseconds; `None`: that is not known.
    Released(Option<u64>),
    /// So many decisions were taken back.
    Reverted(u64),
    /// A pod is counted natively because evaluators do not work.
    CountedNatively,
    /// Another client has removed the gate of a pod, by its name, that waited for the quota.
    GateRemoved(QuotaId, Box<str>, Moment),
    /// This is what the object says of a pause.
    Paused(Scope, Paused),
    /// A pause of the object has ended, or is not ordered any more.
    PauseEnded(Scope, Paused),
}

/// Orders that are not carried out yet, the oldest first.
#[derive(Debug, Default)]
pub struct Orders(Vec<Order>);

impl Orders {
    pub fn give(&mut self, order: Order) {
        self.0.push(order);
    }

    pub fn restate_all(&mut self, quotas: &[QuotaId]) {
        self.0.extend(quotas.iter().copied().map(Order::Restate));
    }

    pub fn tell(&mut self, news: News) {
        self.0.push(Order::Tell(news));
    }

    /// All of them, and none are left.
    pub fn take(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.0)
    }
}
