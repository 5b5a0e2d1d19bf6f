//! What is known of a connection.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

/// What a connection is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// For its handshake, or for a request.
    Waiting,
    /// The header of a request is there, its body is not.
    Reading,
    /// A request is there as a whole.
    Answering,
}

/// What is known of a connection. The service above the stream alone changes it ([`Self::begin`], [`Self::complete`],
/// [`Self::prove`]); the stream and the table of all connections read it.
#[derive(Debug, Clone)]
pub(super) struct ConnectionState(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    phase: AtomicU8,
    proven: AtomicBool,
    /// Milliseconds since the first connection of the process.
    since: AtomicU64,
}

/// Milliseconds that all connections are compared by.
fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl ConnectionState {
    pub(super) fn new() -> Self {
        let since = AtomicU64::new(now_ms());
        Self(Arc::new(Shared { phase: AtomicU8::new(0), proven: AtomicBool::new(false), since }))
    }

    /// A request's header is complete; its work lasts until the guard is dropped.
    pub(super) fn begin(&self) -> Working {
        self.0.phase.store(1, Relaxed);
        Working(self.clone())
    }

    /// The request's body is complete.
    pub(super) fn complete(&self) {
        self.0.phase.store(2, Relaxed);
    }

    /// The client had a successful answer, which apps give only to clients that they know.
    pub(super) fn prove(&self) {
        self.0.proven.store(true, Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        match self.0.phase.load(Relaxed) {
            0 => Phase::Waiting,
            1 => Phase::Reading,
            _ => Phase::Answering,
        }
    }

    /// A request has begun and has no answer yet.
    pub(super) fn is_working(&self) -> bool {
        self.phase() != Phase::Waiting
    }

    /// The connection has had a successful answer.
    pub(super) fn is_proven(&self) -> bool {
        self.0.proven.load(Relaxed)
    }

    /// The phase, whether it is proven, and since when it waits.
    pub(super) fn seen(&self) -> (Phase, bool, u64) {
        (self.phase(), self.is_proven(), self.0.since.load(Relaxed))
    }
}

/// See [`ConnectionState::begin`].
pub(super) struct Working(ConnectionState);

impl Drop for Working {
    fn drop(&mut self) {
        let Self(ConnectionState(shared)) = self;
        shared.since.store(now_ms(), Relaxed);
        shared.phase.store(0, Relaxed);
    }
}
