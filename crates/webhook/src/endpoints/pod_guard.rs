//! Pod CREATE and UPDATE, after all mutation: only Sluice removes the gate, in upstream's words (`docs/predecessors.md`,
//! *Admission of AAQ*), and the creator's stamp says the truth and stays (`docs/admission.md`, *Policies that
//! gate and guard*).

use sluice_api::names;

use crate::review::pod::PodView;
use crate::review::{Operation, Review, Verdict};
use crate::settings::Settings;

const CONSISTENT: &str = "Pod creator is recorded correctly";
const NOT_REMOVED: &str = "Pod update did not remove AAQGate";

/// Decides whether a pod may be, or become, what it is, from the two objects and nothing else.
pub fn pod_guard(review: &Review<'_>, settings: &Settings) -> Verdict {
    let verdict = match &review.operation {
        Operation::Create => created(review),
        Operation::Update => updated(review, settings),
        // They leave no pod behind that could be without its gate.
        Operation::Delete | Operation::Connect => Ok(NOT_REMOVED),
        Operation::Unknown(operation) => {
            Err(Verdict::malformed(format!("operation \"{operation}\" on a pod is not known")))
        }
    };
    verdict.map_or_else(|refused| refused, Verdict::allow)
}

fn created(review: &Review<'_>) -> Result<&'static str, Verdict> {
    let pod: PodView<'_> = review.read_object("a pod")?;
    match pod.created_by() {
        Some(stamp) if stamp != review.user_info.username => Err(Verdict::deny(format!(
            "metadata.annotations[{}] is \"{stamp}\" but the pod is created by \"{}\": leave the annotation out, \
             it is set at admission",
            names::CREATED_BY_ANNOTATION,
            review.user_info.username
        ))),
        _ => Ok(CONSISTENT),
    }
}

fn updated(review: &Review<'_>, settings: &Settings) -> Result<&'static str, Verdict> {
    let old: PodView<'_> = review.read_old_object("a pod")?;
    let new: PodView<'_> = review.read_object("a pod")?;
    let is_removed = old.is_gated() && !new.is_gated();
    if is_removed && !settings.gate_removers.contains(&review.user_info.username) {
        return Err(Verdict::deny(
            "Only AAQ controller has permission to remove ApplicationAwareQuotaGate gate from pods",
        ));
    }
    if old.created_by() != new.created_by() {
        return Err(Verdict::deny(format!(
            "metadata.annotations[{}] records who created the pod: it cannot be added, changed or removed later",
            names::CREATED_BY_ANNOTATION
        )));
    }
    Ok(if is_removed { "AAQ controller has permission to remove gate from pods" } else { NOT_REMOVED })
}
