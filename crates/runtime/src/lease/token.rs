//! The permission to write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Permission to write, asked before each write. Clones share the state.
///
/// The token looks at the clock too: a process that was stopped for longer than the renew deadline refuses by itself when it
/// goes on. The answer can be outdated by the time a request arrives, so writes must also carry a precondition.
#[derive(Debug, Clone)]
pub struct WriteToken {
    epoch: Instant,
    /// Nanoseconds after `epoch`; 0 is never.
    held_until: Arc<AtomicU64>,
}

impl WriteToken {
    pub(crate) fn new() -> Self {
        Self { epoch: Instant::now(), held_until: Arc::new(AtomicU64::new(0)) }
    }

    /// Time on the clock of the election.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The lease is held at this moment.
    pub fn is_held(&self) -> bool {
        nanos(self.epoch.elapsed()) < self.held_until.load(Ordering::Acquire)
    }

    pub(crate) fn hold_until(&self, until: Duration) {
        self.held_until.store(nanos(until), Ordering::Release);
    }

    pub(super) fn revoke(&self) {
        self.held_until.store(0, Ordering::Release);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
