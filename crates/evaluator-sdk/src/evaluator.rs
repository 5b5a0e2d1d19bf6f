//! What an evaluator is.

use crate::{Answer, Error, OtherPods, Pod};

/// Says what a pod takes from quotas.
pub trait Evaluator: Send + Sync + 'static {
    /// What `pod` takes. It may block: each call has a thread of its own.
    ///
    /// # Errors
    /// When it cannot be told now. The pod is then held and asked about again; the text is shown to its owner.
    fn evaluate(&self, pod: &Pod, others: &OtherPods) -> Result<Answer, Error>;

    /// Whether it can be asked at all, for example because what it needs is reachable.
    fn is_healthy(&self) -> bool {
        true
    }
}
