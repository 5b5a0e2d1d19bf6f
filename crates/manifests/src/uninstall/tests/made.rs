//! The operator removes what it has made, and stays.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_api::names;

use super::{HOME, apply, check_waits, count, full};
use crate::uninstall::{Collection, Right, Seen, Stage, Step, Wish, goes_with_aaq, plan, rights};
use crate::{InstallOptions, Installation, install_objects};

/// As the operator looks at it: only at what it makes.
fn made() -> Seen {
    let mut seen = full();
    // Those with names of others are no part of this installation.
    seen.parts.retain(|(part, _)| goes_with_aaq(part) && !part.object.name.starts_with("aaq-"));
    seen.collections.retain(|each, _| Collection::MADE.contains(each));
    seen.definitions.clear();
    seen
}

#[test]
fn what_the_operator_has_made_goes_in_the_same_order_and_all_else_stays() {
    let wish = Wish { keep_operator: true, ..Wish::default() };
    let carry_out = |seen: &mut Seen, step: &Step| {
        let before = seen.clone();
        apply(seen, step);
        let goes = |stage: Stage| count(seen, stage) < count(&before, stage);
        // What stays refuses no pod for want of a gate, and gates none.
        let left = |stage: Stage| {
            let of_stage = seen.parts.iter().filter(|(part, _)| part.stage == stage);
            of_stage.filter(|(part, _)| goes_with_aaq(part)).count()
        };
        let refuses = left(Stage::Refuses) > 0;
        assert!(!goes(Stage::Gates) || !refuses, "{step:?}");
        if *step == Step::Release || matches!(step, Step::Stop(_)) {
            assert!(!refuses && left(Stage::Gates) == 0, "{step:?}");
        }
        assert!(!goes(Stage::Guards) || seen.raised == 0, "{step:?}");
    };
    for start in [made(), full()] {
        check_waits(&plan(&start, &wish), &start);
        for killed_after in 0..=plan(&start, &wish).len() {
            let mut seen = start.clone();
            plan(&start, &wish).iter().take(killed_after).for_each(|step| carry_out(&mut seen, step));
            plan(&seen.clone(), &wish).iter().for_each(|step| carry_out(&mut seen, step));
            assert_eq!(plan(&seen, &wish), [], "killed after {killed_after}");
            assert_eq!((seen.held, seen.raised, seen.processes), (0, 0, 0));
            // Nothing but the operator takes finalizers off, and it does so after all of this.
            assert_eq!(seen.finalized, 1);
            let kept: Vec<_> = start.parts.iter().filter(|(part, _)| !goes_with_aaq(part)).cloned().collect();
            assert_eq!(seen.parts, kept);
            assert_eq!(seen.definitions, start.definitions);
        }
    }
}

/// A stamp that could be forged while there is no `AAQ` would be believed by the next one.
#[test]
fn what_guards_gates_and_stamps_stays_with_the_operator() {
    let policies = full()
        .parts
        .into_iter()
        .map(|(part, _)| part)
        .filter(|part| part.object.kind.kind.ends_with("AdmissionPolicy") && !goes_with_aaq(part));
    let stays: BTreeSet<_> = policies.map(|part| part.object.name).collect();
    let expected = [
        "sluice-evaluators",
        "sluice-exempt-names",
        "sluice-guard",
        "sluice-pause",
        "sluice-review",
        "sluice-stamp",
        "sluice-vmi-status",
    ];
    assert_eq!(stays, BTreeSet::from(expected.map(str::to_owned)));
    let bindings = full()
        .parts
        .into_iter()
        .map(|(part, _)| part)
        .filter(|part| part.object.kind.kind.ends_with("PolicyBinding") && !goes_with_aaq(part));
    assert_eq!(bindings.map(|part| part.object.name).collect::<BTreeSet<_>>(), stays);
}

#[test]
fn what_the_operator_has_made_is_what_gates_and_the_two_workloads() {
    let made = made();
    let objects = made.parts.iter().filter(|(part, _)| part.stage == Stage::Objects);
    let objects: Vec<_> =
        objects.map(|(part, _)| format!("{} {}", part.object.kind.kind, part.object.name)).collect();
    assert_eq!(
        objects,
        [
            "ResourceQuota sluice-headroom-proof",
            "Service sluice-metrics",
            "Service sluice-webhook",
            "Deployment sluice-controller",
            "Deployment sluice-webhook",
            "NetworkPolicy sluice-controller",
            "NetworkPolicy sluice-webhook",
            "PodDisruptionBudget sluice-controller",
            "PodDisruptionBudget sluice-webhook",
            "FlowSchema sluice",
            "PriorityLevelConfiguration sluice",
        ]
    );
}

/// The rights are in the manifest where the `AAQ` installs, and the more powerful ones of them nowhere else.
#[test]
fn the_operator_is_granted_what_it_needs_to_remove_what_it_has_made() {
    let granted = |installation: Installation| {
        let options = InstallOptions { installation, ..InstallOptions::default() };
        let needed = rights(&plan(&made(), &Wish { keep_operator: true, ..Wish::default() }), HOME);
        let objects = install_objects(&options);
        let is_bound = |name: &Value, kind: &Value| {
            objects.iter().any(|binding| {
                binding["roleRef"]["name"] == *name
                    && binding["roleRef"]["kind"] == *kind
                    && binding["subjects"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .any(|one| one["name"] == names::OPERATOR)
            })
        };
        let is_of_operator = |role: &Value| is_bound(&role["metadata"]["name"], &role["kind"]);
        let rules = |kind: &str| -> Vec<Value> {
            let is_it = |object: &&Value| object["kind"] == kind && is_of_operator(object);
            objects.iter().filter(is_it).flat_map(|role| role["rules"].as_array().unwrap().clone()).collect()
        };
        let (cluster, home) = (rules("ClusterRole"), rules("Role"));
        let has = |list: &Value, wanted: &str| list.as_array().unwrap().iter().any(|each| each == wanted);
        let grants = |rule: &Value, right: &Right| {
            let resource = match right.subresource {
                "" => right.resource.clone(),
                subresource => format!("{}/{subresource}", right.resource),
            };
            let is_named = rule
                .get("resourceNames")
                .is_none_or(|names| right.name.as_ref().is_some_and(|name| has(names, name)));
            has(&rule["apiGroups"], &right.group)
                && has(&rule["resources"], &resource)
                && has(&rule["verbs"], right.verb)
                && is_named
        };
        let is_granted = |right: &&Right| {
            let at_home = home.iter().filter(|_| right.namespace.as_deref() == Some(HOME));
            cluster.iter().chain(at_home).any(|rule| grants(rule, right))
        };
        let missing = needed.iter().filter(|right| !is_granted(right));
        missing.map(|right| format!("{} {}", right.verb, right.qualified())).collect::<BTreeSet<_>>()
    };
    assert_eq!(granted(Installation::Cr), BTreeSet::new());
    let without = granted(Installation::Always);
    for right in ["patch pods", "list pods", "delete resourcequotas", "patch resourcequotas/status"] {
        assert!(without.contains(right), "{right}: {without:?}");
    }
}
