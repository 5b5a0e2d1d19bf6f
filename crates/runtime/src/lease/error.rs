//! Why an election ends.

use std::time::Duration;

use super::Timings;

/// Why an election ended. All but the first mean that the process must exit.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The times do not fit together.
    #[error(
        "lease times {0:?} are unsound; need retry < renew deadline < duration and a duration of at least 1s"
    )]
    Timings(Timings),
    /// The lease could not be renewed in time.
    #[error("lost lease {name}: could not renew it for {after:?}; last error: {last}")]
    NotRenewed {
        /// Namespace and name.
        name: String,
        /// The renew deadline.
        after: Duration,
        /// Last failure in words.
        last: String,
    },
    /// Another candidate holds the lease that this one held.
    #[error("lost lease {name}: it is now held by {holder}")]
    Taken {
        /// Namespace and name.
        name: String,
        /// The new holder, empty if the holder was erased.
        holder: String,
    },
}
