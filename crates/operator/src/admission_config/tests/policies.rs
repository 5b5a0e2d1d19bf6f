//! The order in which policies change, and that they are put back.

use serde_json::json;
use sluice_api::names;
use sluice_manifests::{Gating, InstallOptions, admission_policies};

use super::super::guards_containers;
use super::super::observe::{Fixed, Kind, World};
use super::super::plan::plan;
use super::super::step::Step;
use super::{
    GATE, GATED, GATED_BINDING, LOCK, LOCK_BINDING, carry_out, fixed, operations, planned, policies, seen,
    selector, spec_of, version, world,
};

/// What refuses shrinks first and grows last.
#[test]
fn a_change_of_the_aaq_goes_through_in_stages_and_touches_selectors_alone() {
    for wanted in
        [json!({ "matchLabels": { "team": "a" } }), json!({}), json!({ "matchLabels": { "team": "" } })]
    {
        let mut world = world();
        world.selector = Some(Some(selector(wanted.clone())));
        let stages: [Vec<(Kind, Vec<&str>)>; 3] = [
            vec![(GATED, vec!["/spec/matchConstraints/namespaceSelector"])],
            vec![
                (GATE, vec!["/spec/matchConstraints/namespaceSelector"]),
                (Kind::Mutating, vec!["/webhooks/0/namespaceSelector"]),
                (
                    Kind::Validating,
                    vec![
                        "/webhooks/4/namespaceSelector",
                        "/webhooks/5/namespaceSelector",
                        "/webhooks/6/namespaceSelector",
                        "/webhooks/7/namespaceSelector",
                        "/webhooks/8/namespaceSelector",
                    ],
                ),
            ],
            vec![(GATED_BINDING, vec!["/spec/matchResources/namespaceSelector"])],
        ];
        for expected in stages {
            let steps = planned(&world);
            let found: Vec<(Kind, Vec<&str>)> = steps
                .iter()
                .map(|step| {
                    let (kind, operations) = operations(step);
                    let operations = &operations.as_array().expect("operations")[1..];
                    assert!(operations.iter().all(|each| each["value"] == wanted), "{operations:?}");
                    (kind, operations.iter().map(|each| each["path"].as_str().expect("a path")).collect())
                })
                .collect();
            assert_eq!(found, expected, "{wanted}");
            let gates = expected.iter().any(|(kind, _)| *kind == GATE);
            assert_eq!(steps.iter().any(Step::selects_for_gates), gates);
            carry_out(&mut world, &steps);
        }
        assert_eq!(planned(&world), [], "{wanted}");
    }
}

/// Nothing refuses targets meanwhile, so there are no stages.
#[test]
fn which_targets_need_no_gate_is_said_by_what_gates_when_it_is_known() {
    let kubevirt = || Some(Some("system:serviceaccount:kubevirt:kubevirt-controller".to_owned()));
    let mut world = world();
    let before = seen(&mut world, GATE).clone();
    for lets_in_targets_of in [kubevirt(), Some(None)] {
        world.lets_in_targets_of = lets_in_targets_of;
        let steps = planned(&world);
        let kinds: Vec<Kind> = steps.iter().map(|step| operations(step).0).collect();
        assert_eq!(kinds, [GATE, Kind::Mutating]);
        assert!(!steps.iter().any(Step::selects_for_gates));
        carry_out(&mut world, &steps);
        assert_eq!(planned(&world), []);
        // A process that has just begun to lead takes nothing back.
        world.lets_in_targets_of = None;
        assert_eq!(planned(&world), []);
    }
    assert_eq!(*seen(&mut world, GATE), before);
    // What is missing, or edited elsewhere, does not wait for it.
    world.lets_in_targets_of = None;
    seen(&mut world, GATE)["failurePolicy"] = json!("Ignore");
    let steps = planned(&world);
    assert_eq!(operations(&steps[0]).0, GATE);
    world.fixed.insert(GATE, None);
    assert!(matches!(planned(&world)[0], Step::Create { kind: GATE, .. }));
}

#[test]
fn a_selector_that_the_api_server_refuses_keeps_no_policy_from_being_repaired() {
    let mut world = world();
    world.selector =
        Some(Some(selector(json!({ "matchExpressions": [{ "key": "a", "operator": "Sometimes" }] }))));
    seen(&mut world, GATE)["failurePolicy"] = json!("Ignore");
    let steps = planned(&world);
    let repaired = steps.iter().map(operations).find(|(kind, _)| *kind == GATE).expect("a repair").1;
    assert!(!repaired.to_string().contains("Sometimes"), "{repaired}");
    assert_eq!(repaired[1]["value"]["failurePolicy"], json!("Fail"));
}

#[test]
fn where_the_webhook_alone_gates_the_selector_gets_through_all_the_same() {
    let options = InstallOptions { gating: Gating::Webhook, ..InstallOptions::default() };
    let mut world = world();
    world.fixed = policies(&options);
    world.selector = Some(Some(selector(json!({ "matchLabels": { "team": "a" } }))));
    for _ in 0..3 {
        let steps = plan(&world, &options).steps;
        assert!(steps.iter().all(|step| operations(step).0 != GATE));
        carry_out(&mut world, &steps);
    }
    assert_eq!(plan(&world, &options).steps, []);
    assert_eq!(
        seen(&mut world, GATED_BINDING)["matchResources"]["namespaceSelector"]["matchLabels"]["team"],
        "a"
    );
}

#[test]
fn what_refuses_is_created_when_all_that_gates_is_there() {
    let mut world = world();
    world.fixed.insert(GATED, None);
    world.fixed.insert(GATE, None);
    let kinds = |world: &World| -> Vec<Kind> { planned(world).iter().map(Step::kind).collect() };
    assert_eq!(kinds(&world), [GATE]);
    world.fixed.insert(GATE, policies(&InstallOptions::default())[&GATE].clone());
    assert_eq!(kinds(&world), [GATED]);
    world.mutating = Some(None);
    assert_eq!(kinds(&world), [Kind::Mutating]);
}

#[test]
fn an_edited_policy_or_binding_is_put_back() {
    for (path, value) in [
        ("/failurePolicy", json!("Fail")),
        ("/validations/0/expression", json!("true")),
        ("/matchConstraints/resourceRules/0/operations", json!(["UPDATE"])),
        ("/matchConstraints/namespaceSelector", json!({ "matchLabels": { "only": "here" } })),
        ("/paramKind/kind", json!("ConfigMap")),
    ] {
        let mut world = world();
        *seen(&mut world, LOCK).pointer_mut(path).expect("a field") = value;
        let replace = json!({
            "op": "replace", "path": "/spec", "value": admission_policies(&InstallOptions::default())[1].policy["spec"],
        });
        assert_eq!(operations(&planned(&world)[0]), (LOCK, &json!([version("3"), replace])), "{path}");
    }
    for (kind, path, value) in [
        (LOCK_BINDING, "/validationActions", json!(["Warn"])),
        (GATE, "/mutations/0/applyConfiguration/expression", json!("Object{}")),
        (GATE, "/reinvocationPolicy", json!("Never")),
        (GATED, "/matchConditions/0/expression", json!("false")),
        (GATED_BINDING, "/validationActions", json!(["Audit"])),
    ] {
        let mut world = world();
        *seen(&mut world, kind).pointer_mut(path).expect("a field") = value;
        let steps = planned(&world);
        carry_out(&mut world, &steps);
        let (live, shipped) = (seen(&mut world, kind).pointer(path).cloned(), spec_of(kind));
        assert_eq!(live.as_ref(), shipped.pointer(path), "{path}");
    }
}

/// Containers of `Evaluator`s are taken only then.
#[test]
fn containers_are_guarded_while_the_policy_and_its_binding_are_as_they_are_shipped() {
    let guards = |world: &World| guards_containers(world, &plan(world, &InstallOptions::default()));
    assert!(guards(&world()));
    let (name, mutates) = (names::EVALUATOR_POLICY, false);
    for kind in [Kind::Policy { name, mutates }, Kind::Binding { name, mutates }] {
        let changed = |found: Option<Option<Fixed>>| {
            let mut world = world();
            match found {
                Some(found) => drop(world.fixed.insert(kind, found)),
                None => drop(world.fixed.remove(&kind)),
            }
            guards(&world)
        };
        let lenient = json!({ "spec": { "validationActions": ["Audit"], "validations": [] } });
        assert!(!changed(None), "it was not looked for");
        assert!(!changed(Some(None)), "there is none");
        assert!(!changed(Some(fixed(&lenient))), "it is another");
    }
    let gone = World { installed: false, ..world() };
    assert!(!guards(&gone), "nothing is kept any more");
}
