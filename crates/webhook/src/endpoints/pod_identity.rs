//! Pod CREATE and UPDATE, after all mutation: the identity stamp says the truth and stays (`ARCHITECTURE.md`,
//! *Admission*).

use sluice_api::names;

use crate::review::pod::PodView;
use crate::review::{Operation, Review, Verdict};
use crate::settings::Settings;

const CONSISTENT: &str = "Pod creator is recorded correctly";

/// Decides whether the stamp of a pod may be what it is.
pub fn pod_identity(review: &Review<'_>, _settings: &Settings) -> Verdict {
    let verdict = match &review.operation {
        Operation::Create => created(review),
        Operation::Update => updated(review),
        Operation::Delete | Operation::Connect => Ok(()),
        Operation::Unknown(operation) => {
            Err(Verdict::malformed(format!("operation \"{operation}\" on a pod is not known")))
        }
    };
    verdict.map_or_else(|refused| refused, |()| Verdict::allow(CONSISTENT))
}

fn created(review: &Review<'_>) -> Result<(), Verdict> {
    let pod: PodView<'_> = review.read_object("a pod")?;
    match pod.created_by() {
        Some(stamp) if stamp != review.user_info.username => Err(Verdict::deny(format!(
            "metadata.annotations[{}] is \"{stamp}\" but the pod is created by \"{}\": leave the annotation out, \
             it is set at admission",
            names::CREATED_BY_ANNOTATION,
            review.user_info.username
        ))),
        _ => Ok(()),
    }
}

fn updated(review: &Review<'_>) -> Result<(), Verdict> {
    let old: PodView<'_> = review.read_old_object("a pod")?;
    let new: PodView<'_> = review.read_object("a pod")?;
    if old.created_by() == new.created_by() {
        return Ok(());
    }
    Err(Verdict::deny(format!(
        "metadata.annotations[{}] records who created the pod: it cannot be added, changed or removed later",
        names::CREATED_BY_ANNOTATION
    )))
}
