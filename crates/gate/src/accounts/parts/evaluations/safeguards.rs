//! What is asked before an answer is believed, and before sums are taken for complete. The simulations of evaluators fail
//! without any one of these, which `tests/safeguards.rs` shows.

use sluice_engine::PodId;
use sluice_index::{NamespaceId, Version};

use super::Evaluations;
#[cfg(test)]
use crate::tests::safeguards::Safeguard;

impl Evaluations {
    /// Whether this is the content of the pod: an answer about another one says nothing of what is going to be released.
    pub(super) fn has_content(&self, id: PodId, hash: u64) -> bool {
        #[cfg(test)]
        if Safeguard::Version.is_out() {
            return true;
        }
        self.get(id).is_some_and(|known| known.hash == hash)
    }

    /// Whether the pod is what it was when it was read for evaluators that were not in force yet.
    pub fn is_as_read(read: Version, known: Version) -> bool {
        #[cfg(test)]
        if Safeguard::Next.is_out() {
            return true;
        }
        read == known
    }

    /// Whether pods that run in the namespace have to be answered before its sums are complete.
    pub fn is_pending(&self, namespace: NamespaceId) -> bool {
        #[cfg(test)]
        if Safeguard::Pause.is_out() {
            return false;
        }
        self.unready.has_pending(namespace)
    }

    /// Whether pods that run in the namespace have no answer: what is recorded of them is not known.
    pub fn has_unanswered(&self, namespace: NamespaceId) -> bool {
        #[cfg(test)]
        if Safeguard::InFlight.is_out() {
            return false;
        }
        self.unready.has_unanswered(namespace)
    }
}
