//! Each object names the version of its writer, and an older operator leaves what a newer one has written.

use k8s_openapi::ByteString;
use serde_json::json;
use sluice_manifests::InstallOptions;

use super::super::observe::{Identity, Kind, World};
use super::super::plan::plan;
use super::super::step::Step;
use super::{
    GATE, GATED, GATED_BINDING, LOCK, OWN, carry_out, entries, operations, planned, seen, selector, world,
};

const NEWER: &str = "99.0.0";

fn identity(world: &mut World, kind: Kind) -> &mut Identity {
    match kind {
        Kind::Validating => &mut world.validating.as_mut().expect("seen").as_mut().expect("there").identity,
        kind => &mut world.fixed.get_mut(&kind).expect("looked for").as_mut().expect("there").identity,
    }
}

/// Newer ones have written these objects, and they say something else.
fn newer() -> World {
    let mut world = world();
    for kind in [LOCK, GATED, Kind::Validating] {
        identity(&mut world, kind).writer = Some(NEWER.to_owned());
    }
    for kind in [LOCK, GATED] {
        seen(&mut world, kind)["validations"] = json!([{ "expression": "newer" }]);
    }
    let validating = entries(&mut world.validating);
    validating.pop();
    validating[0].1["timeoutSeconds"] = json!(9);
    world
}

#[test]
fn the_writer_is_named_on_what_is_made_and_on_what_an_older_one_has_made() {
    let mut world = world();
    world.fixed.insert(LOCK, None);
    identity(&mut world, GATED).writer = None;
    identity(&mut world, GATED_BINDING).writer = Some("0.0.1".to_owned());
    let steps = planned(&world);
    let [Step::Create { kind: LOCK, object }, own @ ..] = &steps[..] else { panic!("{steps:?}") };
    let named = json!({ "quota.sluice.dev/writer-version": OWN });
    assert_eq!(object["metadata"]["annotations"], named);
    assert_eq!(own.iter().map(Step::kind).collect::<Vec<_>>(), [GATED, GATED_BINDING]);
    for step in own {
        let Step::Own { body, .. } = step else { panic!("{step:?}") };
        assert_eq!(body["metadata"]["annotations"], named);
    }
}

#[test]
fn what_a_newer_operator_has_written_is_left_and_said() {
    let world = newer();
    let left = plan(&world, &InstallOptions::default());
    assert_eq!(left.steps, []);
    let said = left.left.expect("said");
    for object in
        ["Policy sluice-headroom-lock of 99.0.0", "Policy sluice-gated of 99.0.0", "validator of 99.0.0"]
    {
        assert!(said.contains(object), "{object}: {said}");
    }
    // What another client changes in an object of this version is put back meanwhile.
    let mut world = newer();
    seen(&mut world, GATE)["failurePolicy"] = json!("Ignore");
    assert_eq!(planned(&world).iter().map(Step::kind).collect::<Vec<_>>(), [GATE]);

    let back = plan(&newer(), &InstallOptions { allow_downgrade: true, ..InstallOptions::default() });
    let mut kinds: Vec<_> = back.steps.iter().map(Step::kind).collect();
    kinds.sort();
    assert_eq!(kinds, [Kind::Validating, Kind::Validating, GATED, GATED, LOCK, LOCK], "put back, and signed");
    assert_eq!(back.left, None);
}

/// The certificates and the AAQ are not of one version.
#[test]
fn authorities_and_namespaces_are_kept_in_what_is_left() {
    let mut world = newer();
    world.bundle = Some(b"two".to_vec());
    let steps = planned(&world);
    let (_, of_validating) =
        steps.iter().map(operations).find(|(kind, _)| *kind == Kind::Validating).expect("one");
    let operations = of_validating.as_array().expect("operations");
    assert!(operations[1..].iter().all(|each| each["value"] == json!(ByteString(b"two".to_vec()))));
    carry_out(&mut world, &steps);
    identity(&mut world, Kind::Validating).writer = Some(NEWER.to_owned());

    world.selector = Some(Some(selector(json!({ "matchLabels": { "team": "a" } }))));
    for _ in 0..3 {
        let steps = planned(&world);
        assert!(!steps.is_empty());
        carry_out(&mut world, &steps);
        identity(&mut world, Kind::Validating).writer = Some(NEWER.to_owned());
    }
    assert_eq!(planned(&world), []);
    assert_eq!(seen(&mut world, GATED)["validations"], json!([{ "expression": "newer" }]));
    assert_eq!(seen(&mut world, GATED)["matchConstraints"]["namespaceSelector"]["matchLabels"]["team"], "a");
}
