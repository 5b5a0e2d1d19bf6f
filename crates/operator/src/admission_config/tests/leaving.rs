//! Where the `AAQ` installs: what is kept while it goes, and without one; and what former versions have left.

use serde_json::json;
use sluice_api::{FORMER_ENTRIES, names};

use super::*;

/// All of it is missing.
fn bare(upkeep: Upkeep) -> World {
    let gone = policies(&InstallOptions::default()).into_keys().map(|kind| (kind, None)).collect();
    World { mutating: Some(None), validating: Some(None), fixed: gone, upkeep, ..world() }
}

#[test]
fn without_an_aaq_what_guards_gates_and_stamps_is_made_and_nothing_else() {
    for upkeep in [Upkeep::Nothing, Upkeep::Existing] {
        let mut made: Vec<_> = planned(&bare(upkeep)).iter().map(|step| step.kind().name()).collect();
        made.dedup();
        let expected = [
            "sluice-vmi-status",
            "sluice-exempt-names",
            "sluice-pause",
            "sluice-review",
            "sluice-evaluators",
            "sluice-guard",
            "sluice-stamp",
        ];
        assert_eq!(made, expected, "{upkeep:?}");
    }
}

#[test]
fn what_guards_is_put_back_while_all_else_is_removed() {
    let mut world = World { upkeep: Upkeep::Nothing, ..world() };
    let guard = Kind::Policy { name: names::GUARD_POLICY, mutates: false };
    for kind in [guard, LOCK] {
        seen(&mut world, kind)["failurePolicy"] = json!("Other");
    }
    assert_eq!(planned(&world).iter().map(Step::kind).collect::<Vec<_>>(), [guard]);
}

/// A removal may not be able to begin for long.
#[test]
fn what_is_there_stays_reachable_until_its_removal_begins() {
    let mut world = World { upkeep: Upkeep::Existing, path: Some("other".to_owned()), ..world() };
    seen(&mut world, LOCK)["failurePolicy"] = json!("Fail");
    entries(&mut world.validating).truncate(3);
    let steps = planned(&world);
    assert_eq!(steps.iter().map(Step::kind).collect::<Vec<_>>(), [LOCK, Kind::Mutating, Kind::Validating]);
    carry_out(&mut world, &steps);
    assert_eq!(entries(&mut world.validating).len(), 3, "nothing is made");
    assert_eq!(planned(&world), []);
    let path = entries(&mut world.mutating)[0].1.pointer("/clientConfig/service/path").cloned();
    assert!(path.is_some_and(|path| path.as_str().is_some_and(|path| path.starts_with("/other/"))));
}

/// As a former version has left it: API servers would go on to call a path that nothing serves.
#[test]
fn entries_of_former_versions_are_taken_out() {
    let [former] = FORMER_ENTRIES else { panic!("one so far: {FORMER_ENTRIES:?}") };
    let mut world = world();
    let right = entries(&mut world.validating).clone();
    let old = json!({ "name": former, "clientConfig": { "service": { "path": "/secret/pod-guard" } } });
    entries(&mut world.validating).insert(1, ((*former).to_owned(), old));
    let steps = planned(&world);
    let taken = json!([
        version("9"),
        { "op": "test", "path": "/webhooks/1/name", "value": former },
        { "op": "remove", "path": "/webhooks/1" },
    ]);
    assert_eq!(steps.iter().map(operations).collect::<Vec<_>>(), [(Kind::Validating, &taken)]);
    carry_out(&mut world, &steps);
    assert_eq!(entries(&mut world.validating), &right);
    // With the last of the others missing, it is appended at its place.
    let old = json!({ "name": former });
    entries(&mut world.validating).insert(0, ((*former).to_owned(), old));
    let (last, _) = entries(&mut world.validating).pop().expect("an entry");
    let steps = planned(&world);
    carry_out(&mut world, &steps);
    let names: Vec<_> = entries(&mut world.validating).iter().map(|(name, _)| name.clone()).collect();
    assert_eq!((names.len(), names.last()), (right.len(), Some(&last)));
}
