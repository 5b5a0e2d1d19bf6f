//! The words of the events.

use std::time::Duration;

use super::*;
use crate::target::Target;
use sluice_engine::headroom::{Need, RaisedKey, Shortage};
use sluice_engine::{Charge, Quantity, ScopeFacts, Uid};

/// One line each: type, reason, what it is about, what else, and the note.
fn lines(reports: &[Report]) -> String {
    let name = |object: &ObjectReference| {
        let kind = object.kind.as_deref().unwrap_or_default();
        format!("{kind} {}", object.name.as_deref().unwrap_or("without a name"))
    };
    let line = |report: &Report| {
        let related = report.related.as_ref().map(|related| format!(" ({})", name(related)));
        let (about, related) = (name(&report.regarding), related.unwrap_or_default());
        format!("{:?} {} {about}{related}: {}\n", report.type_, report.reason, report.note)
    };
    reports.iter().map(line).collect()
}

fn migration() -> MigrationRef {
    MigrationRef {
        namespace: "shop".into(),
        name: "move".into(),
        uid: Uid::parse("m"),
        machine: "web".into(),
        machine_uid: Uid::parse("w"),
    }
}

fn amount(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_default()
}

#[test]
fn of_migrations_that_are_blocked() {
    let (migration, quota) = (migration(), QuotaRef { name: "rq".into(), uid: Uid::parse("q") });
    let told = [
        not_enough(&migration, "it needs 1Gi"),
        refused(&migration, "a LimitRange changes it"),
        forbidden("shop", &quota, std::iter::once(&migration), "status is immutable"),
    ];
    insta::assert_snapshot!(lines(&told.concat()), @"
    Warning NotEnoughHeadroom VirtualMachineInstanceMigration move (VirtualMachineInstance web): it needs 1Gi
    Warning NotEnoughHeadroom VirtualMachineInstance web (VirtualMachineInstanceMigration move): it needs 1Gi
    Warning NotEnoughResourceToRelease Pod without a name: head-room of namespace shop is not enough to release blocked migration move: it needs 1Gi
    Warning NoHeadroom VirtualMachineInstanceMigration move (VirtualMachineInstance web): no head-room for migration move of vm web: a LimitRange changes it
    Warning NoHeadroom VirtualMachineInstance web (VirtualMachineInstanceMigration move): no head-room for migration move of vm web: a LimitRange changes it
    Warning HeadroomForbidden ResourceQuota rq: the status of quota rq cannot be written, so no live migration gets head-room in it: status is immutable
    Warning HeadroomForbidden VirtualMachineInstanceMigration move (VirtualMachineInstance web): no head-room: the status of quota rq cannot be written: status is immutable
    Warning HeadroomForbidden VirtualMachineInstance web (VirtualMachineInstanceMigration move): no head-room: the status of quota rq cannot be written: status is immutable
    ");
}

#[test]
fn of_sessions() {
    let key = |key: &str, from, to| RaisedKey { key: key.into(), from: amount(from), to: amount(to) };
    let raise = |quota: &str, keys| Raise { quota: quota.into(), uid: Uid::parse(quota), keys };
    let shortage = Shortage {
        quota: "rq".into(),
        key: "requests.memory".into(),
        need: amount("2Gi"),
        used: amount("8Gi"),
        hard: amount("9Gi"),
        additional: Some(amount("512Mi")),
        taken: Quantity::ZERO,
        missing: amount("512Mi"),
        source: Some("grant".into()),
    };
    let told = [
        Ending::Entered,
        Ending::NotEnough(vec![shortage]),
        Ending::Forbidden("status is immutable".into()),
        Ending::Unsettled("API server a does not know of the raise: no answer".into()),
        Ending::Unproven("API server b does not answer".into()),
        Ending::Taken,
        Ending::NotNeeded,
    ]
    .map(|ending| {
        let raises = vec![
            raise("rq", vec![key("pods", "4", "5"), key("requests.memory", "9Gi", "9740Mi")]),
            raise("cpus", vec![key("limits.cpu", "2", "2500m")]),
        ];
        let raised_for = Duration::from_micros(17_300);
        let need = Need::new(Charge::default(), ScopeFacts::default());
        let attaches = false;
        let target = Target { pod: Uid::parse("p"), attaches, migration: migration(), need };
        lines(&granted(&Outcome { target, ending, raises, raised_for }))
    });
    insta::assert_snapshot!(told.concat(), @"
    Normal HeadroomGranted VirtualMachineInstanceMigration move (VirtualMachineInstance web): let in beside quota rq: pods +1, requests.memory +524Mi; quota cpus: limits.cpu +500m for 17 ms
    Warning NotEnoughHeadroom VirtualMachineInstanceMigration move (VirtualMachineInstance web): migration move of vm web needs requests.memory=2Gi more in quota rq (used 8Gi, hard 9Gi); head-room grants 512Mi (grant), missing 512Mi
    Warning NotEnoughHeadroom VirtualMachineInstance web (VirtualMachineInstanceMigration move): migration move of vm web needs requests.memory=2Gi more in quota rq (used 8Gi, hard 9Gi); head-room grants 512Mi (grant), missing 512Mi
    Warning NotEnoughResourceToRelease Pod without a name: head-room of namespace shop is not enough to release blocked migration move: migration move of vm web needs requests.memory=2Gi more in quota rq (used 8Gi, hard 9Gi); head-room grants 512Mi (grant), missing 512Mi
    Warning HeadroomForbidden VirtualMachineInstanceMigration move (VirtualMachineInstance web): no head-room: the status of a quota cannot be written: status is immutable
    Warning HeadroomForbidden VirtualMachineInstance web (VirtualMachineInstanceMigration move): no head-room: the status of a quota cannot be written: status is immutable
    Warning HeadroomNotProven VirtualMachineInstanceMigration move (VirtualMachineInstance web): no head-room for migration move of vm web: API server a does not know of the raise: no answer
    Warning HeadroomNotProven VirtualMachineInstance web (VirtualMachineInstanceMigration move): no head-room for migration move of vm web: API server a does not know of the raise: no answer
    Warning HeadroomNotProven VirtualMachineInstanceMigration move (VirtualMachineInstance web): no head-room for migration move of vm web: API server b does not answer
    Warning HeadroomNotProven VirtualMachineInstance web (VirtualMachineInstanceMigration move): no head-room for migration move of vm web: API server b does not answer
    Warning HeadroomTaken VirtualMachineInstanceMigration move (VirtualMachineInstance web): another pod took the room that was made (17 ms): the migration is tried again, and gets no room while that pod is above the quota
    Warning HeadroomTaken VirtualMachineInstance web (VirtualMachineInstanceMigration move): another pod took the room that was made (17 ms): the migration is tried again, and gets no room while that pod is above the quota
    ");
}
