//! All of it goes with the operator's ClusterRole.

use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use sluice_manifests::InstallOptions;

use super::super::observe::{Identity, Kind, World};
use super::super::plan::{Plan, plan};
use super::super::step::Step;
use super::{GATE, LOCK, carry_out, entries, operations, planned, role, seen, world};
use crate::owner::Owner;

/// What the plan knows of every object that exists.
fn identities(world: &mut World) -> Vec<&mut Identity> {
    let fixed = world.fixed.values_mut().flatten().map(|found| &mut found.identity);
    let hooks = [&mut world.mutating, &mut world.validating].into_iter().flatten().flatten();
    fixed.chain(hooks.map(|found| &mut found.identity)).collect()
}

fn identity(world: &mut World, kind: Kind) -> &mut Identity {
    match kind {
        Kind::Mutating => &mut world.mutating.as_mut().expect("seen").as_mut().expect("there").identity,
        Kind::Validating => &mut world.validating.as_mut().expect("seen").as_mut().expect("there").identity,
        kind => &mut world.fixed.get_mut(&kind).expect("looked for").as_mut().expect("there").identity,
    }
}

fn other(name: &str, controller: Option<bool>) -> OwnerReference {
    OwnerReference {
        api_version: "aaq.kubevirt.io/v1alpha1".to_owned(),
        kind: "AAQ".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        controller,
        ..OwnerReference::default()
    }
}

/// As the API server merges the list: by uid.
fn adopt(world: &mut World, steps: &[Step]) {
    for step in steps {
        let Step::Own { kind, body, .. } = step else { panic!("{step:?}") };
        let is = identity(world, *kind);
        assert_eq!(body["metadata"]["uid"], json!(is.uid), "a precondition");
        let writer = body["metadata"]["annotations"]["quota.sluice.dev/writer-version"].as_str();
        is.writer = writer.map(str::to_owned);
        is.is_labelled = body["metadata"]["labels"]["app.kubernetes.io/part-of"] == "sluice";
        for reference in body["metadata"]["ownerReferences"].as_array().expect("a list") {
            is.owners.retain(|owner| json!(owner.uid) != reference["uid"]);
            if reference["$patch"] != "delete" {
                is.owners.push(serde_json::from_value(reference.clone()).expect("an owner"));
            }
        }
    }
}

#[test]
fn what_existed_before_gets_the_owner_once() {
    let mut world = world();
    let all = identities(&mut world);
    let count = all.len();
    all.into_iter().for_each(|is| is.owners.clear());
    let steps = planned(&world);
    assert_eq!((count, steps.len()), (26, 26));
    let Step::Own { owner, body, .. } = &steps[0] else { panic!("{:?}", steps[0]) };
    assert_eq!(owner, &role());
    let reference = &body["metadata"]["ownerReferences"][0];
    assert_eq!((&reference["name"], &reference["uid"]), (&json!("sluice-operator"), &json!("role")));
    // For that an account would need more rights where OwnerReferencesPermissionEnforcement is enabled.
    assert_eq!((reference.get("blockOwnerDeletion"), reference.get("controller")), (None, None));
    adopt(&mut world, &steps);
    assert_eq!(planned(&world), []);
}

/// As application-aware-quota has made it.
#[test]
fn what_is_taken_over_gets_the_label_of_an_installation() {
    let mut world = world();
    identity(&mut world, Kind::Mutating).is_labelled = false;
    let steps = planned(&world);
    let [Step::Own { kind: Kind::Mutating, body, .. }] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(body["metadata"]["labels"], json!({ "app.kubernetes.io/part-of": "sluice" }));
    assert_eq!(body["metadata"]["ownerReferences"], json!([role()]));
    adopt(&mut world, &steps);
    assert_eq!(identity(&mut world, Kind::Mutating).owners, [role()]);
    assert_eq!(planned(&world), []);
}

#[test]
fn other_owners_stay_and_a_role_that_was_made_anew_takes_the_place_of_the_former() {
    let mut world = world();
    let (controller, plain) = (other("aaq", Some(true)), other("b", None));
    let former = OwnerReference { uid: "former".to_owned(), ..role() };
    identity(&mut world, GATE).owners = vec![controller.clone()];
    identity(&mut world, Kind::Mutating).owners = vec![former, plain.clone()];
    let steps = planned(&world);
    assert_eq!(steps.iter().map(Step::kind).collect::<Vec<_>>(), [GATE, Kind::Mutating]);
    adopt(&mut world, &steps);
    assert_eq!(identity(&mut world, GATE).owners, [controller, role()]);
    assert_eq!(identity(&mut world, Kind::Mutating).owners, [plain, role()]);
    assert_eq!(planned(&world), []);
}

/// A refusal of the one does not keep the other from being written.
#[test]
fn an_object_is_repaired_before_and_apart_from_that() {
    let mut world = world();
    identity(&mut world, LOCK).owners.clear();
    seen(&mut world, LOCK)["failurePolicy"] = json!("Fail");
    let steps = planned(&world);
    let [repair, own] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((operations(repair).0, own.kind()), (LOCK, LOCK));
    assert!(matches!(own, Step::Own { .. }), "{own:?}");
    // An installation that is being removed takes with it what it had not made.
    world.installed = false;
    assert_eq!(planned(&world).iter().map(Step::kind).collect::<Vec<_>>(), [LOCK]);
}

fn without_owner(owner: Owner) -> World {
    let mut world = world();
    world.owner = owner;
    world.fixed.insert(LOCK, None);
    world.mutating = Some(None);
    entries(&mut world.validating)[0].1["failurePolicy"] = json!("Ignore");
    world
}

#[test]
fn without_an_owner_nothing_is_created_and_what_exists_is_kept_right() {
    for (owner, why) in [
        (Owner::Unreadable("403".to_owned()), Some("the ClusterRole sluice-operator cannot be read (403)")),
        (Owner::Absent, Some("the ClusterRole sluice-operator does not exist")),
        (Owner::Unknown, None),
    ] {
        let mut world = without_owner(owner);
        let Plan { steps, withheld, .. } = plan(&world, &InstallOptions::default());
        assert_eq!(steps.iter().map(|step| operations(step).0).collect::<Vec<_>>(), [Kind::Validating]);
        assert_eq!(withheld.is_some(), why.is_some());
        if let (Some(withheld), Some(why)) = (withheld, why) {
            let names = "not created: sluice-headroom-lock, gating-mutator: ";
            assert!(withheld.starts_with(&format!("{names}{why}")), "{withheld}");
            assert!(withheld.ends_with("apply the manifest or the chart again"), "{withheld}");
        }
        carry_out(&mut world, &steps);
        assert_eq!(planned(&world), []);
        // Once it is there they are created.
        world.owner = Owner::Known(role());
        let Plan { steps, withheld, .. } = plan(&world, &InstallOptions::default());
        assert_eq!((steps.len(), withheld), (2, None));
        assert!(steps.iter().all(|step| matches!(step, Step::Create { .. })), "{steps:?}");
    }
}

#[test]
fn nothing_is_said_while_nothing_is_missing() {
    let mut world = world();
    world.owner = Owner::Absent;
    assert_eq!(plan(&world, &InstallOptions::default()), Plan::default());
    // Nor while the installation is being removed.
    let removed = World { installed: false, ..without_owner(Owner::Absent) };
    assert_eq!(plan(&removed, &InstallOptions::default()), Plan::default());
}

#[test]
fn a_role_that_is_being_deleted_is_no_owner() {
    let read = |metadata: Value| -> Owner {
        let role: ClusterRole =
            serde_json::from_value(json!({ "metadata": metadata, "rules": [] })).expect("a ClusterRole");
        Owner::of(Some(&role))
    };
    assert_eq!(read(json!({ "name": "sluice-operator", "uid": "role" })), Owner::Known(role()));
    let time = "2026-01-01T00:00:00Z";
    let deleted = json!({ "name": "sluice-operator", "uid": "role", "deletionTimestamp": time });
    assert_eq!(read(deleted), Owner::Absent);
    assert_eq!(Owner::of(None), Owner::Absent);
}
