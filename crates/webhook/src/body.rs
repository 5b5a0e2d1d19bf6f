//! Reading request bodies without letting their senders decide how much memory that takes.

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

/// What each body may take without asking, in bytes: enough for nearly every review, so that a few senders
/// of huge bodies cannot keep ordinary ones from being answered.
const FREE: usize = 64 * 1024;
/// Bytes per permit of the budget.
const UNIT: usize = 1024;

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Above the limit of one body.
    #[error("admission request body is larger than {limit} bytes")]
    TooLarge {
        /// In bytes.
        limit: usize,
    },
    /// All large bodies together are above their budget.
    #[error("too many large admission requests are being read: try again")]
    Busy,
    /// The client went away or broke the protocol.
    #[error("could not read the admission request body: {0}")]
    Broken(#[from] axum::Error),
}

/// The limit of one body and the budget that all bodies being held share.
#[derive(Debug)]
pub struct BodyReader {
    limit: usize,
    budget: Semaphore,
}

/// A body and its share of the budget, given back on drop.
#[derive(Debug)]
pub struct HeldBody<'a> {
    /// The bytes.
    pub bytes: Bytes,
    _share: Option<SemaphorePermit<'a>>,
}

impl BodyReader {
    /// A reader of bodies up to `limit` bytes each; `budget` bytes is what all bodies held at the same time
    /// may take above [`FREE`] bytes each.
    pub fn new(limit: usize, budget: usize) -> Self {
        Self { limit, budget: Semaphore::new((budget / UNIT).min(Semaphore::MAX_PERMITS)) }
    }

    /// Reads a body to its end.
    ///
    /// # Errors
    /// When the body is too large, the budget is spent, or the client fails.
    pub async fn read(&self, mut body: Body) -> Result<HeldBody<'_>, BodyError> {
        let announced = body.size_hint().lower();
        if usize::try_from(announced).unwrap_or(usize::MAX) > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        let mut bytes = BytesMut::new();
        let mut share = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let size = bytes.len().saturating_add(data.len());
            if size > self.limit {
                return Err(BodyError::TooLarge { limit: self.limit });
            }
            self.grow(&mut share, size)?;
            bytes.extend_from_slice(&data);
        }
        Ok(HeldBody { bytes: bytes.freeze(), _share: share })
    }

    fn grow<'a>(&'a self, share: &mut Option<SemaphorePermit<'a>>, size: usize) -> Result<(), BodyError> {
        let want = size.saturating_sub(FREE).div_ceil(UNIT);
        let have = share.as_ref().map_or(0, SemaphorePermit::num_permits);
        let Some(more) = want.checked_sub(have).filter(|more| *more > 0) else {
            return Ok(());
        };
        let more = u32::try_from(more).map_err(|_| BodyError::Busy)?;
        let got = self.budget.try_acquire_many(more).map_err(|_| BodyError::Busy)?;
        match share {
            Some(share) => share.merge(got),
            None => *share = Some(got),
        }
        Ok(())
    }
}
