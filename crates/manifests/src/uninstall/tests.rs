//! A cluster as data: each step changes it, and after each step what has to hold is looked at.

mod made;

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::names;

use super::{
    Collection, Found, ObjectName, Seen, Stage, Step, Wait, Wish, definitions, inventory, plan,
    processes_selector, rights,
};

const HOME: &str = "sluice-system";
/// By both namings.
const OPERATORS: [&str; 2] = ["aaq-operator", names::OPERATOR];

fn wishes() -> [Wish; 3] {
    let by_default = Wish::default();
    [
        by_default,
        Wish { keep_objects: true, ..by_default },
        Wish { quotas: true, definitions: true, ..by_default },
    ]
}

/// A cluster that is full of everything, also of what users have written.
fn full() -> Seen {
    let found =
        |index: usize| Found { uid: index.to_string(), is_ours: true, replicas: 1, ..Found::default() };
    let parts = inventory(HOME).into_iter().enumerate();
    let crd = Found { uid: "crd".to_owned(), ..Found::default() };
    let of_users = Collection::OF_USERS.into_iter().chain(Collection::KEPT).map(|each| (each, 3));
    Seen {
        namespace: HOME.to_owned(),
        parts: parts.map(|(index, part)| (part, found(index))).collect(),
        definitions: definitions().into_iter().map(|object| (object, crd.clone())).collect(),
        collections: Collection::MADE.into_iter().map(|each| (each, 1)).chain(of_users).collect(),
        ending: BTreeMap::new(),
        processes: 4,
        held: 300,
        raised: 1,
        finalized: 1,
    }
}

fn without(kinds: &[&str]) -> Seen {
    let mut seen = full();
    seen.parts.retain(|(part, _)| !kinds.contains(&part.object.kind.kind.as_str()));
    seen
}

fn starts() -> Vec<(&'static str, Seen)> {
    let nothing = Seen { namespace: HOME.to_owned(), ..Seen::default() };
    let dead = Seen { processes: 0, ..full() };
    let no_deployments = Seen { processes: 0, ..without(&["Deployment"]) };
    let only_pods = Seen { held: 7, raised: 2, ..nothing.clone() };
    vec![
        ("everything", full()),
        ("the webhook gates", without(&["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"])),
        ("all pods are gone", dead),
        ("the Deployments were deleted", no_deployments),
        ("the rights were deleted", without(&["ClusterRoleBinding", "RoleBinding"])),
        (
            "the webhook configurations were deleted",
            without(&["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]),
        ),
        ("only waiting pods and raised quotas are left", only_pods),
        ("nothing is there", nothing),
    ]
}

fn has(seen: &Seen, kind: &str, name: &str) -> bool {
    let is_it = |object: &ObjectName| object.kind.kind == kind && object.name == name;
    seen.parts.iter().any(|(part, _)| is_it(&part.object))
}

fn count(seen: &Seen, stage: Stage) -> usize {
    seen.parts.iter().filter(|(part, _)| part.stage == stage).count()
}

fn found<'s>(seen: &'s mut Seen, object: &ObjectName) -> &'s mut Found {
    let (_, found) = seen.parts.iter_mut().find(|(part, _)| part.object == *object).unwrap();
    found
}

/// Of controller or webhook.
fn stops_process(step: &Step) -> bool {
    matches!(step, Step::Stop(object) if !OPERATORS.contains(&object.name.as_str()))
}

/// What the step makes of the cluster.
fn apply(seen: &mut Seen, step: &Step) {
    match step {
        Step::Stop(object) => found(seen, object).replicas = 0,
        Step::Delete(object, uid) => {
            let before = seen.parts.len() + seen.definitions.len();
            seen.parts.retain(|(part, found)| part.object != *object || found.uid != *uid);
            seen.definitions.retain(|(name, found)| name != object || found.uid != *uid);
            assert_eq!(seen.parts.len() + seen.definitions.len(), before - 1, "{object}");
        }
        Step::Wait(Wait::Followed) => {}
        Step::Wait(Wait::Ended) => seen.processes = 0,
        Step::Release => seen.held = 0,
        Step::Restore => seen.raised = 0,
        Step::Clear(collection) => assert!(seen.collections.remove(collection).is_some(), "{collection:?}"),
        Step::Unfinalize => seen.finalized = 0,
    }
}

/// What holds whenever the command is killed.
fn check(before: &Seen, step: &Step, after: &Seen) {
    let goes = |stage: Stage| count(after, stage) < count(before, stage);
    let refuses = count(after, Stage::Refuses) > 0;
    if goes(Stage::Refuses) || goes(Stage::Gates) {
        assert!(!has(after, "ClusterRoleBinding", names::OPERATOR), "{step:?}: the operator puts it back");
        // With the role the garbage collector takes what gates, in no order.
        let (was, is) = [before, after].map(|seen| has(seen, "ClusterRole", names::OPERATOR)).into();
        assert_eq!(was, is, "{step:?}");
    }
    assert!(!goes(Stage::Gates) || !refuses, "{step:?}: pods that are not gated are refused");
    if stops_process(step) {
        assert!(
            !refuses && count(after, Stage::Gates) == 0,
            "{step:?}: what asks the process refuses without it"
        );
    }
    if *step == Step::Release {
        assert!(!refuses && count(after, Stage::Gates) == 0, "{step:?}: more may be held");
    }
    let guarded = |seen: &Seen| has(seen, "ValidatingAdmissionPolicyBinding", names::CHARGE_POLICY);
    assert!(
        !guarded(before) || guarded(after) || after.raised == 0,
        "{step:?}: a raised quota is not guarded"
    );
    assert!(
        !goes(Stage::Rights) || after.processes == 0,
        "{step:?}: a process cannot put back what it has raised"
    );
}

/// Before what gates goes, and before processes stop, API servers have had time to follow what went before.
fn check_waits(steps: &[Step], seen: &Seen) {
    let stage = |step: &Step| match step {
        Step::Delete(object, _) => {
            seen.parts.iter().find(|(part, _)| part.object == *object).map(|(part, _)| part.stage)
        }
        _ => None,
    };
    for wanted in [Stage::Refuses, Stage::Gates] {
        if let Some(at) = steps.iter().position(|step| stage(step) == Some(wanted)) {
            assert_eq!(steps[at - 1], Step::Wait(Wait::Followed), "before {wanted:?}: {steps:?}");
        }
    }
    if let Some(at) = steps.iter().position(stops_process) {
        assert_eq!(steps[at - 1], Step::Wait(Wait::Followed));
        assert!(steps.contains(&Step::Wait(Wait::Ended)));
    }
}

/// Carries out what is planned, checking each step, until nothing is planned any more.
fn finish(seen: &mut Seen, wish: &Wish) {
    for _ in 0..3 {
        let steps = plan(seen, wish);
        check_waits(&steps, seen);
        for step in &steps {
            let before = seen.clone();
            apply(seen, step);
            check(&before, step, seen);
        }
        if steps.is_empty() {
            return;
        }
    }
    panic!("more is planned each time: {:?}", plan(seen, wish));
}

#[test]
fn killed_after_each_step_and_run_again_it_ends_in_the_same_state() {
    for (what, start) in starts() {
        for wish in wishes() {
            let mut whole = start.clone();
            finish(&mut whole, &wish);
            for killed_after in 0..=plan(&start, &wish).len() {
                let mut seen = start.clone();
                for step in plan(&start, &wish).iter().take(killed_after) {
                    let before = seen.clone();
                    apply(&mut seen, step);
                    check(&before, step, &seen);
                }
                finish(&mut seen, &wish);
                assert_eq!(seen, whole, "{what}, {wish:?}, killed after step {killed_after}");
            }
        }
    }
}

#[test]
fn killed_after_each_step_of_the_second_run_too() {
    let wish = Wish::default();
    let mut whole = full();
    finish(&mut whole, &wish);
    for first in 0..=plan(&full(), &wish).len() {
        let mut once = full();
        plan(&once, &wish).iter().take(first).for_each(|step| apply(&mut once, step));
        for second in 0..=plan(&once, &wish).len() {
            let mut twice = once.clone();
            plan(&once, &wish).iter().take(second).for_each(|step| apply(&mut twice, step));
            finish(&mut twice, &wish);
            assert_eq!(twice, whole, "killed after {first} and {second} steps");
        }
    }
}

#[test]
fn by_default_quotas_definitions_and_the_namespace_are_what_is_left() {
    let mut seen = full();
    finish(&mut seen, &Wish::default());
    let (home, _) = seen.home().unwrap();
    assert_eq!((home.name.as_str(), seen.parts.len()), (HOME, 1));
    assert_eq!(seen.definitions.len(), definitions().len());
    let kept: Vec<_> = Collection::OF_USERS.into_iter().chain(Collection::KEPT).collect();
    assert_eq!(seen.collections.keys().copied().collect::<Vec<_>>(), kept);
    finish(&mut seen, &Wish { quotas: true, definitions: true, ..Wish::default() });
    assert_eq!((seen.parts.len(), seen.definitions.len()), (1, 0));
    assert_eq!(seen.collections.into_keys().collect::<Vec<_>>(), Collection::KEPT);
}

#[test]
fn what_was_applied_stays_with_those_who_applied_it() {
    let mut seen = full();
    finish(&mut seen, &Wish { keep_objects: true, ..Wish::default() });
    let kept: BTreeSet<_> = seen.parts.iter().map(|(part, _)| part.object.kind.kind.as_str()).collect();
    for gone in ["Lease", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "FlowSchema", "Service"] {
        assert!(!kept.contains(gone), "{gone}");
    }
    let secrets = seen.parts.iter().filter(|(part, _)| part.object.kind.kind == "Secret");
    let secrets: Vec<_> = secrets.map(|(part, _)| part.object.name.as_str()).collect();
    assert_eq!(secrets, [names::SCRAPER], "the manifest has it, and Helm deletes it");
    for stays in ["Deployment", "ClusterRole", "ServiceAccount", "NetworkPolicy", "Namespace"] {
        assert!(kept.contains(stays), "{stays}");
    }
    // The token of the account for Prometheus is applied.
    let secrets = seen.parts.iter().filter(|(part, _)| part.object.kind.kind == "Secret");
    assert_eq!(secrets.map(|(part, _)| part.object.name.as_str()).collect::<Vec<_>>(), ["sluice-scraper"]);
    let deployments = seen.parts.iter().filter(|(part, _)| part.object.kind.kind == "Deployment");
    let deployments: Vec<_> =
        deployments.map(|(part, found)| (part.object.name.as_str(), found.replicas)).collect();
    assert_eq!(deployments, OPERATORS.map(|name| (name, 0)));
}

/// For the test suite of application-aware-quota: whoever removes an installation need not say which names it has.
#[test]
fn what_has_names_of_others_goes_too() {
    let seen = full();
    for (kind, name) in [
        ("Deployment", "aaq-controller"),
        ("Deployment", "aaq-server"),
        ("Service", "aaq-server"),
        ("Secret", "aaq-server"),
        ("Secret", "aaq-server-cert"),
        ("ConfigMap", "aaq-server-signer-bundle"),
        ("ServiceAccount", "aaq-controller"),
    ] {
        assert!(has(&seen, kind, name), "{kind} {name}");
    }
    let steps = plan(&seen, &Wish::default());
    let stopped: Vec<_> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Stop(object) => Some(object.name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        stopped,
        ["aaq-operator", names::OPERATOR, "aaq-controller", "aaq-server", names::CONTROLLER, names::WEBHOOK]
    );
    assert!(processes_selector().ends_with(",multi-tenant)"), "{}", processes_selector());
}

#[test]
fn what_gates_without_our_label_stops_everything_and_what_else_has_none_is_left() {
    let named = |seen: &Seen, kind: &str, name: &str| {
        let mut all = seen.parts.iter().map(|(part, _)| &part.object);
        all.find(|object| object.kind.kind == kind && object.name == name).unwrap().clone()
    };
    let mut seen = full();
    let gated = named(&seen, "ValidatingAdmissionPolicy", names::GATED_POLICY);
    found(&mut seen, &gated).is_ours = false;
    assert!(plan(&seen, &Wish::default()).is_empty());
    assert_eq!(seen.blocking().collect::<Vec<_>>(), [&gated]);

    let mut seen = full();
    let service = named(&seen, "Service", names::WEBHOOK);
    found(&mut seen, &service).is_ours = false;
    finish(&mut seen, &Wish::default());
    assert!(has(&seen, "Service", names::WEBHOOK));
    assert_eq!(seen.foreign().collect::<Vec<_>>(), [&service]);
}

#[test]
fn an_object_that_waits_for_finalizers_is_not_deleted_again() {
    let mut seen = full();
    for (_, found) in &mut seen.parts {
        found.is_ending = true;
    }
    assert!(!plan(&seen, &Wish::default()).iter().any(|step| matches!(step, Step::Delete(..))));
    seen.ending = std::mem::take(&mut seen.collections);
    let all = Wish { quotas: true, ..Wish::default() };
    assert!(!plan(&seen, &all).iter().any(|step| matches!(step, Step::Clear(_))));
}

#[test]
fn a_definition_of_another_program_is_left() {
    let mut seen = full();
    seen.definitions[0].1.is_of_others = true;
    let left = seen.definitions[0].0.clone();
    finish(&mut seen, &Wish { quotas: true, definitions: true, ..Wish::default() });
    assert_eq!(seen.definitions.iter().map(|(object, _)| object).collect::<Vec<_>>(), [&left]);
}

#[test]
fn rights_are_those_of_the_steps() {
    let all = rights(&plan(&full(), &Wish::default()), HOME);
    assert!(!all.is_empty());
    for right in &all {
        assert!(["delete", "patch", "list"].contains(&right.verb), "{right:?}");
        let resource = right.qualified();
        assert!(!resource.starts_with("applicationawareresourcequotas"), "quotas stay: {right:?}");
        let is_any = right.name.is_none() && right.verb != "list";
        let some = [
            "pods",
            "resourcequotas/status",
            "resourcequotas",
            "clusterresourcequotas",
            "clusterquotacharges",
            names::AACRQS,
            names::AAQS,
            names::MTQS,
        ];
        assert!(!is_any || some.iter().any(|each| resource.starts_with(each)), "{right:?}");
    }
}
