//! Pod UPDATE: only Sluice removes the gate; the texts are upstream's (`docs/predecessors.md`, *Admission of AAQ*).

use crate::pod::PodView;
use crate::review::{Operation, Review};
use crate::settings::Settings;
use crate::verdict::Verdict;

const NOT_REMOVED: &str = "Pod update did not remove AAQGate";

/// Decides on the change of a pod, from the two objects and nothing else.
pub fn pod_guard(review: &Review<'_>, settings: &Settings) -> Verdict {
    match &review.operation {
        Operation::Create | Operation::Update => {}
        // They leave no pod behind that could be without its gate.
        Operation::Delete | Operation::Connect => return Verdict::allow(NOT_REMOVED),
        Operation::Unknown(operation) => {
            return Verdict::malformed(format!("operation \"{operation}\" on a pod is not known"));
        }
    }
    let pods = PodView::decode("oldObject", review.old_object)
        .and_then(|old| Ok((old, PodView::decode("object", review.object)?)));
    let (old, new) = match pods {
        Ok(pods) => pods,
        Err(verdict) => return verdict,
    };
    if !old.is_gated() || new.is_gated() {
        return Verdict::allow(NOT_REMOVED);
    }
    if settings.gate_removers.contains(&review.username) {
        return Verdict::allow("AAQ controller has permission to remove gate from pods");
    }
    Verdict::deny("Only AAQ controller has permission to remove ApplicationAwareQuotaGate gate from pods")
}
