//! Where a pod is on its way from creation to release.

use std::sync::Arc;

use sluice_engine::{Charge, ClassId, QuotaId, QuotaSet};

use super::cluster::machines::Unknown;

/// The stage of a pod.
#[derive(Clone, Debug, Default)]
pub(super) enum Stage {
    /// Gates of others hold it; it takes nothing and it is not our turn.
    #[default]
    Foreign,
    /// It waits for room.
    Waiting(ClassId),
    /// It may go without a charge: its namespace is not targeted, or no quota is about it.
    Free {
        /// How many lists of quotas have not confirmed that yet. The gate is removed when it is 0.
        awaited: u32,
        /// Tells this stage from an earlier one of the same pod.
        serial: u64,
    },
    /// It was decided to be released.
    Assumed {
        /// What it will take.
        charge: Arc<Charge>,
        /// From which quotas.
        quotas: Arc<QuotaSet>,
        /// How many of the quotas have not recorded the charge yet, and of the lists of quotas not confirmed that there are
        /// no others. The gate is removed when it is 0.
        awaited: u32,
        /// Tells this decision from an earlier one on the same pod that was taken back.
        serial: u64,
    },
    /// It has no gates and takes from its quotas.
    Counted {
        /// What it takes.
        charge: Arc<Charge>,
        /// From which quotas.
        quotas: Arc<QuotaSet>,
    },
    /// It cannot be decided on now.
    Stuck(Stuck),
}

/// Why a pod cannot be decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// Its charge cannot be read; the text names the field.
    Unreadable(Arc<str>),
    /// A quota of its namespace cannot be understood.
    InvalidQuota(QuotaId),
    /// Its namespace was not seen yet.
    UnknownNamespace,
    /// Its namespace is being deleted.
    Terminating,
    /// Its VM cannot be counted.
    Machine(Unknown),
    /// Evaluators have not said yet what it takes.
    Evaluating,
    /// The API server refused its release; it is tried again later.
    BackingOff,
}
