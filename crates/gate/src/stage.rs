//! Where a pod is on its way from creation to release.

use std::sync::Arc;

use sluice_engine::{Charge, ClassId, QuotaId, QuotaSet};

use super::cluster::machines::Unknown;

/// The stage of a pod.
#[derive(Clone, Debug, Default)]
pub(super) enum Stage {
    /// Gates of others hold the pod: it takes nothing, and is decided on when they are gone.
    #[default]
    Foreign,
    /// The pod waits for room.
    Waiting(ClassId),
    /// The pod may go without a charge: its namespace is not targeted, or no quota is about the pod.
    Free {
        /// How many lists of quotas have not confirmed that yet. The gate is removed when this is 0.
        awaited: u32,
        /// Tells this stage from an earlier one of the same pod.
        serial: u64,
    },
    /// The pod is to go: its charge is being recorded, or its gate is being removed.
    Assumed {
        /// What it will take.
        charge: Arc<Charge>,
        /// From which quotas.
        quotas: Arc<QuotaSet>,
        /// How many quotas have not recorded the charge yet, together with the lists that have not shown yet that there is
        /// no further quota. The gate is removed when this is 0.
        awaited: u32,
        /// Tells this decision from an earlier one on the same pod that was taken back.
        serial: u64,
    },
    /// The pod has no gates and takes from its quotas.
    Counted {
        charge: Arc<Charge>,
        /// From which quotas.
        quotas: Arc<QuotaSet>,
    },
    /// The pod cannot be decided on now.
    Stuck(Stuck),
}

/// Why a pod cannot be decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// The pod's charge cannot be read; the text names the field.
    Unreadable(Arc<str>),
    /// A quota of its namespace cannot be understood.
    InvalidQuota(QuotaId),
    /// The namespace was not seen yet.
    UnknownNamespace,
    /// The namespace is being deleted.
    Terminating,
    /// The VM of the pod cannot be counted.
    Machine(Unknown),
    /// Evaluators have not said yet what the pod takes.
    Evaluating,
    /// The API server refused the release, which is tried again later.
    BackingOff,
}
