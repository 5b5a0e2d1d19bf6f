//! Whether what a quota has recorded is what it should be.

use sluice_engine::{QuotaId, StatusTarget};
use sluice_index::{Printed, QuotaRecord, Told, Version};

use crate::accounts::Accounts;
use crate::action::{Record, RecordedIn, RecordedObject};
use crate::cluster::Cluster;
use crate::explain::HeldTold;

/// Whether the quota's record is what was asked for. What is created records nothing.
pub fn is_as_written(cluster: &Cluster, asked: &Record) -> bool {
    let quota = cluster.quotas.get(asked.quota).filter(|_| !asked.is_new());
    quota.is_none_or(|quota| says(quota, &asked.target, asked.held))
}

/// Whether the status says what it should; that of a quota whose sums are not complete may say anything.
pub fn is_status_right(cluster: &Cluster, accounts: &Accounts, id: QuotaId) -> bool {
    let Some(quota) = cluster.quotas.get(id) else { return true };
    let Some(target) = accounts.record_of(cluster, id) else { return true };
    says(quota, &target, accounts.held_by(id))
}

/// Whether the record holds the numbers and the texts of the target. The charge of a cluster quota has no texts.
pub fn says(quota: &QuotaRecord, target: &StatusTarget, held: i64) -> bool {
    let recorded = &quota.recorded;
    let are_numbers_right = recorded.hard.are(&target.hard) && recorded.used.are(&target.used);
    if quota.cluster().is_some() {
        return are_numbers_right;
    }
    are_numbers_right
        && recorded.held.unwrap_or(0) == held
        && recorded.printed == Printed::of(&target.requests, &target.limits)
        && recorded.uncounted.as_ref().map_or("", |told| &told.message) == target.uncounted
        && recorded.machines.map(|told| told.calculator) == target.machines.map(Some)
        && is_unenforced_said(recorded.unenforced.as_deref(), target)
}

/// Whether the status tells this of the pods that wait, and of those that run without an answer of evaluators. It may be
/// late with that, so that another text is no sign of another client.
pub fn tells_of_pods(quota: &QuotaRecord, held: Option<&HeldTold>, unevaluated: Option<&str>) -> bool {
    let recorded = &quota.recorded;
    quota.cluster().is_some()
        || recorded.held_since == held.map(|told| told.since)
            && recorded.pods_held.as_ref().map(|said| &*said.message) == held.map(|told| &*told.message)
            && recorded.unevaluated.as_ref().map(|said| &*said.message) == unevaluated
}

fn is_unenforced_said(recorded: Option<&Told>, target: &StatusTarget) -> bool {
    let recorded = recorded.map(|told| (&*told.reason, &*told.message));
    recorded == target.unenforced.as_ref().map(|told| (told.reason, &*told.message))
}

/// Whether a write was refused although the object is no newer than what it was based on: as it is after a store was
/// restored from a backup. What is known is not put right by such an answer, and the next write would be refused as well.
pub fn is_no_news(now: &RecordedObject, asked: &Record) -> bool {
    match (now, &asked.object) {
        (RecordedObject::Quota(wire), RecordedIn::Status(based_on)) => {
            Version::parse(wire.metadata.resource_version.as_deref()).is_no_later_than(*based_on)
        }
        (RecordedObject::Charge(wire), RecordedIn::Charge(based_on)) => {
            Version::parse(wire.metadata.resource_version.as_deref()).is_no_later_than(based_on.version)
        }
        _ => false,
    }
}
