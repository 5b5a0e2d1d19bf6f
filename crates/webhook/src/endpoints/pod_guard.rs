//! Pod UPDATE: only Sluice removes the gate; the texts are upstream's (`docs/predecessors.md`, *Admission of AAQ*).

use crate::review::pod::PodView;
use crate::review::{Operation, Review, Verdict};
use crate::settings::Settings;

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
    let pods = review
        .read_old_object("a pod")
        .and_then(|old: PodView<'_>| Ok((old, review.read_object::<PodView<'_>>("a pod")?)));
    match pods {
        Ok((old, new)) if !old.is_gated() || new.is_gated() => return Verdict::allow(NOT_REMOVED),
        Ok(_) => {}
        Err(verdict) => return verdict,
    }
    if settings.gate_removers.contains(&review.user_info.username) {
        return Verdict::allow("AAQ controller has permission to remove gate from pods");
    }
    Verdict::deny("Only AAQ controller has permission to remove ApplicationAwareQuotaGate gate from pods")
}
