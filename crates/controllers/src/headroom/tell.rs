//! What people read when they look at the events of a virtual machine, its migration or a quota.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use sluice_kube_ext::events::{Report, Severity};

use super::action::{Blocked, Tell};

/// The reason that managed-tenant-quota's users look for.
pub const LEGACY_REASON: &str = "NotEnoughResourceToRelease";
/// A migration lacks head-room.
pub const NOT_ENOUGH: &str = "NotEnoughHeadroom";
/// Head-room cannot help a migration.
pub const NO_HEADROOM: &str = "NoHeadroom";
/// Somebody forbids to write the status of a quota.
pub const FORBIDDEN: &str = "HeadroomForbidden";

const ACTION: &str = "MakeRoom";

/// The events that tell of it.
#[must_use]
pub fn reports(tell: &Tell) -> Vec<Report> {
    match tell {
        Tell::NotEnough { blocked, sentence } => {
            let legacy = format!(
                "head-room of namespace {} is not enough to release blocked migration {}: {sentence}",
                blocked.namespace, blocked.name
            );
            let mut reports = about(blocked, NOT_ENOUGH, sentence);
            // About a pod that was never created: without a name, as managed-tenant-quota reported it.
            reports.push(warning(reference("v1", "Pod", &blocked.namespace, None), LEGACY_REASON, &legacy));
            reports
        }
        Tell::Refused { blocked, sentence } => {
            let note =
                format!("no head-room for migration {} of vm {}: {sentence}", blocked.name, blocked.machine);
            about(blocked, NO_HEADROOM, &note)
        }
        Tell::Forbidden { namespace, quota, uid, said } => {
            let uid = uid.to_string();
            let quota_reference = reference("v1", "ResourceQuota", namespace, Some((quota.to_string(), uid)));
            let note = format!(
                "the status of quota {quota} cannot be written, so no live migration gets head-room in it: {said}"
            );
            vec![warning(quota_reference, FORBIDDEN, &note)]
        }
    }
}

/// Events on the migration and on its virtual machine.
fn about(blocked: &Blocked, reason: &str, note: &str) -> Vec<Report> {
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
        severity: Severity::Warning,
        reason: reason.to_owned(),
        action: ACTION.to_owned(),
        note: note.to_owned(),
    }
}
