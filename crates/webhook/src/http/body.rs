//! Reading request bodies without letting their senders decide how much memory that takes. Nothing else reads them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

/// What each body may take without asking, in bytes: enough for nearly every review, so that a few senders
/// of huge bodies cannot keep ordinary ones from being answered.
const FREE: usize = 64 * 1024;
/// A body that holds a share of the budget brings [`FREE`] bytes more in this time, or loses it.
const STALLED: Duration = Duration::from_secs(2);

/// Limits of bodies.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Size of one body, in bytes. A review carries two objects of up to 1.5 MiB each and their escapes.
    pub body: usize,
    /// What all bodies being held may take together, in bytes, beyond 64 KiB that each has.
    pub bodies: usize,
    /// Time in which a body must have arrived.
    pub time: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { body: 8 << 20, bodies: 24 << 20, time: Duration::from_secs(5) }
    }
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("admission request body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("too many large admission requests are being read: try again")]
    Busy,
    #[error("admission request body did not arrive in time")]
    Late,
    #[error("could not read the admission request body: {0}")]
    Broken(#[from] axum::Error),
}

/// The limit of one body and the budget that all bodies being held share.
///
/// One peer takes at most as much as it leaves: alone half of the budget, two peers a third each. However many bodies few
/// peers send, there is room for those of another.
#[derive(Debug)]
pub(crate) struct BodyReader {
    limits: BodyLimits,
    budget: Arc<Mutex<Budget>>,
}

/// In bytes. `free` and what is held make the whole budget; a peer that holds nothing is not in the map.
#[derive(Debug)]
struct Budget {
    free: usize,
    held: HashMap<IpAddr, usize>,
}

/// A body and its share of the budget, given back when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct HeldBody {
    /// As received.
    pub bytes: Bytes,
    _share: Arc<Share>,
}

/// What one body holds of the budget.
#[derive(Debug)]
struct Share {
    budget: Arc<Mutex<Budget>>,
    peer: IpAddr,
    bytes: usize,
}

impl Share {
    /// Holds what a buffer of `capacity` bytes takes.
    fn cover(&mut self, capacity: usize) -> Result<(), BodyError> {
        let more = capacity.saturating_sub(FREE).saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let mut budget = self.budget.lock();
        let held = budget.held.get(&self.peer).copied().unwrap_or(0).saturating_add(more);
        let left = budget.free.checked_sub(more).filter(|left| held <= *left).ok_or(BodyError::Busy)?;
        budget.free = left;
        budget.held.insert(self.peer, held);
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut budget = self.budget.lock();
        budget.free += self.bytes;
        let rest = budget.held.get(&self.peer).copied().unwrap_or(0).saturating_sub(self.bytes);
        if rest == 0 {
            budget.held.remove(&self.peer);
        } else {
            budget.held.insert(self.peer, rest);
        }
    }
}

impl BodyReader {
    /// A reader with these limits.
    pub(crate) fn new(limits: BodyLimits) -> Self {
        let budget = Budget { free: limits.bodies, held: HashMap::new() };
        Self { limits, budget: Arc::new(Mutex::new(budget)) }
    }

    /// Reads a body that `peer` sends to its end.
    ///
    /// # Errors
    /// When the body is too large or stalls, the budget is spent, or the client fails.
    pub(crate) async fn read(&self, peer: IpAddr, mut body: Body) -> Result<HeldBody, BodyError> {
        let limit = self.limits.body;
        let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if declared > limit {
            return Err(BodyError::TooLarge { limit });
        }
        let most = body.size_hint().upper().and_then(|upper| usize::try_from(upper).ok());
        let most = most.unwrap_or(limit).min(limit);
        let mut share = Share { budget: Arc::clone(&self.budget), peer, bytes: 0 };
        let mut bytes = Vec::new();
        let end = Instant::now() + self.limits.time;
        // Where it has to be later than `due`.
        let (mut due, mut next) = (end, FREE);
        loop {
            let frame = timeout_at(due.min(end), body.frame()).await.map_err(|_| BodyError::Late)?;
            let Some(frame) = frame else { break };
            let Ok(data) = frame?.into_data() else { continue };
            let size = bytes.len().saturating_add(data.len());
            if size > limit {
                return Err(BodyError::TooLarge { limit });
            }
            if size > bytes.capacity() {
                // What is declared is believed only as it arrives: a promise must not reserve anything.
                let doubled = bytes.capacity().saturating_mul(2).min(most);
                let capacity = size.max(doubled);
                share.cover(capacity)?;
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&data);
            if size >= next {
                due = Instant::now() + STALLED;
                next = size.saturating_add(FREE);
            }
        }
        Ok(HeldBody { bytes: bytes.into(), _share: Arc::new(share) })
    }
}
