//! What people read when they look at the events of a virtual machine, its migration or a quota.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use sluice_engine::headroom::{Raise, Refusal, lasting, sentence};
use sluice_engine::{Amount, Uid};
use sluice_runtime::events::{EventType, Report};

use crate::protocol::{Ending, QuotaRef};
use crate::target::{MigrationRef, Outcome};

/// The reason that managed-tenant-quota's users look for.
const LEGACY_REASON: &str = "NotEnoughResourceToRelease";
/// A migration lacks head-room.
pub(crate) const NOT_ENOUGH: &str = "NotEnoughHeadroom";
/// Head-room cannot help a migration.
const NO_HEADROOM: &str = "NoHeadroom";
/// Writing the status of a quota is refused.
pub(crate) const FORBIDDEN: &str = "HeadroomForbidden";

/// No raise is safe now.
pub(crate) const NOT_PROVEN: &str = "HeadroomNotProven";

/// A target was let in beside a full quota.
const GRANTED: &str = "HeadroomGranted";
/// Another pod took the room that was made for a target.
const TAKEN: &str = "HeadroomTaken";

/// A target is left.
const LEFT: &str = "MigrationTargetLeft";

const ACTION: &str = "MakeRoom";

/// Nothing is raised, because it is not proven that the admission policies are in force.
pub(crate) fn not_proven(blocked: &MigrationRef, why: &str) -> Vec<Report> {
    about(
        blocked,
        NOT_PROVEN,
        &format!("no head-room for migration {} of vm {}: {why}", blocked.name, blocked.machine),
    )
}

/// What is granted is not enough for a target.
fn not_enough(blocked: &MigrationRef, sentence: &str) -> Vec<Report> {
    let mut reports = about(blocked, NOT_ENOUGH, sentence);
    reports.push(legacy(blocked, sentence));
    reports
}

/// About a pod that was never created: without a name, as managed-tenant-quota reported it.
fn legacy(blocked: &MigrationRef, sentence: &str) -> Report {
    let text = format!(
        "head-room of namespace {} is not enough to release blocked migration {}: {sentence}",
        blocked.namespace, blocked.name
    );
    warning(reference("v1", "Pod", &blocked.namespace, None), LEGACY_REASON, &text)
}

/// Head-room cannot help a blocked migration.
pub(crate) fn refused(blocked: &MigrationRef, sentence: &str) -> Vec<Report> {
    let note = format!("no head-room for migration {} of vm {}: {sentence}", blocked.name, blocked.machine);
    about(blocked, NO_HEADROOM, &note)
}

/// A target is still there although its migration is over.
pub(crate) fn left(namespace: &str, pod: &str, uid: &Uid) -> Report {
    let note = format!(
        "pod {pod} was the target of a migration that is over, and does not run its virtual machine: it takes room in the \
         quotas of the namespace, and nothing is raised there while it is above them; delete it"
    );
    let named = Some((pod.to_owned(), uid.to_string()));
    warning(reference("v1", "Pod", namespace, named), LEFT, &note)
}

/// Writing the status of a quota is refused; `blocked` wait for it.
pub(crate) fn forbidden<'m>(
    namespace: &str,
    quota: &QuotaRef,
    blocked: impl Iterator<Item = &'m MigrationRef>,
    said: &str,
) -> Vec<Report> {
    let named = Some((quota.name.to_string(), quota.uid.to_string()));
    let note = format!(
        "the status of quota {} cannot be written, so no live migration gets head-room in it: {said}",
        quota.name
    );
    let first = warning(reference("v1", "ResourceQuota", namespace, named), FORBIDDEN, &note);
    let note = format!("no head-room: the status of quota {} cannot be written: {said}", quota.name);
    std::iter::once(first).chain(blocked.flat_map(|blocked| about(blocked, FORBIDDEN, &note))).collect()
}

/// The events that tell of a session that raised something, or could not. The same words are one event.
#[must_use]
pub fn granted(outcome: &Outcome) -> Vec<Report> {
    let Outcome { target, ending, raises, raised_for } = outcome;
    let migration = &target.migration;
    let ms = raised_for.as_millis();
    match ending {
        Ending::Entered => {
            let quotas: Vec<String> = raises.iter().map(room).collect();
            let note = format!("let in beside {} for {ms} ms", quotas.join("; "));
            let mut reports = about(migration, GRANTED, &note);
            reports.truncate(1);
            reports.iter_mut().for_each(|report| report.type_ = EventType::Normal);
            reports
        }
        Ending::NotEnough(lacking) => {
            let sentence = sentence(&migration.name, &migration.machine, lacking);
            not_enough(migration, &sentence)
        }
        Ending::Refused(refusals) => {
            let Some(sentence) = lasting(refusals) else { return Vec::new() };
            let mut reports = refused(migration, &sentence);
            if refusals.iter().any(|why| matches!(why, Refusal::Growth { .. } | Refusal::Unexplained { .. }))
            {
                reports.push(legacy(migration, &sentence));
            }
            reports
        }
        Ending::Forbidden(said) => {
            let note = format!("no head-room: the status of a quota cannot be written: {said}");
            about(migration, FORBIDDEN, &note)
        }
        Ending::Unproven(why) | Ending::Unsettled(why) => not_proven(migration, why),
        Ending::Taken => {
            let note = format!(
                "another pod took the room that was made ({ms} ms): the migration is tried again, and gets no room while \
                 that pod is above the quota"
            );
            about(migration, TAKEN, &note)
        }
        _ => Vec::new(),
    }
}

/// What was made room for: `quota rq: requests.memory +524Mi`.
fn room(raise: &Raise) -> String {
    let keys = raise.keys.iter().filter_map(|raised| {
        let more = Amount::from(raised.to).saturating_sub(Amount::from(raised.from));
        (more > Amount::ZERO).then(|| format!("{} +{}", raised.key, more.quantity(raised.from.format())))
    });
    format!("quota {}: {}", raise.quota, keys.collect::<Vec<_>>().join(", "))
}

/// Events on the migration and on its virtual machine.
fn about(blocked: &MigrationRef, reason: &str, note: &str) -> Vec<Report> {
    let of = |kind: &str, name: &Arc<str>, uid: String| {
        reference("kubevirt.io/v1", kind, &blocked.namespace, Some((name.to_string(), uid)))
    };
    let migration = of("VirtualMachineInstanceMigration", &blocked.name, blocked.uid.to_string());
    let machine = of("VirtualMachineInstance", &blocked.machine, blocked.machine_uid.to_string());
    let mut first = warning(migration.clone(), reason, note);
    first.related = Some(machine.clone());
    let mut second = warning(machine, reason, note);
    second.related = Some(migration);
    vec![first, second]
}

fn reference(version: &str, kind: &str, namespace: &str, named: Option<(String, String)>) -> ObjectReference {
    let (name, uid) = named.unzip();
    ObjectReference {
        api_version: Some(version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name,
        uid,
        ..ObjectReference::default()
    }
}

fn warning(regarding: ObjectReference, reason: &str, note: &str) -> Report {
    Report {
        regarding,
        related: None,
        type_: EventType::Warning,
        reason: reason.to_owned(),
        action: ACTION.to_owned(),
        note: note.to_owned(),
    }
}

#[cfg(test)]
mod tests;
