//! What is told of a rule in the shadow.

use std::sync::Arc;

use serde_json::json;
use sluice_engine::vm::Calculator;
use sluice_index::NamespaceWire;

use super::evaluations::price;
use super::machines::sized;
use super::server::{CPU, wire};
use super::shadow::{config, cpu, say};
use super::stories::{Story, at};
use super::team::NAMESPACE;
use crate::{
    Evaluate, Moment, OnFailure, Opinion, Outcome, Price, Said, Selection, ShadowConfig, ShadowFigures,
};

/// Told of the rule in the shadow.
fn figures(story: &Story) -> (usize, ShadowFigures) {
    let figures = story.state.rule_figures();
    let found = figures.iter().find(|(name, _)| **name == *"shadow").unwrap();
    (found.1.matched, found.1.shadow.clone().unwrap())
}

/// The changes of CPU that are told, of each quota.
fn changes(story: &Story) -> Vec<String> {
    let of = |amount: &crate::ShadowAmount| {
        format!(
            "{} {} of {}: {} to {}",
            amount.quota.name, amount.key, amount.hard, amount.used, amount.enforced
        )
    };
    figures(story).1.largest.iter().map(of).collect()
}

/// When all that was to be written before is written.
const LATER: Moment = Moment { mono_ms: 30_000, unix_ms: 30_000 };

impl Story {
    fn shadowed(hard: u64) -> Self {
        let mut story = Self::led();
        story.state.follow_shadow(Some(config()));
        story.server.set_hard(hard);
        story.run(at(0));
        story
    }

    /// The rule says this of a pod.
    fn opine(&mut self, pod: &str, hash: u64, opinion: Opinion) {
        let pod = self.server.pod(pod).clone();
        say(&mut self.state, &pod, hash << 32, &opinion);
        self.run(LATER);
    }
}

fn charge(milli: i128, retains: bool) -> Opinion {
    Opinion::Charge { charge: Arc::new(cpu(milli)), retains }
}

#[test]
fn what_enforcing_would_change_is_told_and_holds_nobody() {
    let mut story = Story::shadowed(1000);
    for pod in ["a", "b", "c", "waits"] {
        story.server.create_pod(pod, 300, 0);
    }
    story.run(LATER);
    assert_eq!((story.gated(), story.server.used()), (vec!["waits"], "900m"));
    for pod in ["a", "b", "c", "waits"] {
        story.opine(pod, 1, Opinion::NoMatch);
    }
    assert_eq!(figures(&story), (0, ShadowFigures::default()));
    story.opine("a", 2, charge(700, false));
    story.opine("b", 2, charge(200, true));
    story.opine("c", 2, Opinion::None);
    story.opine("waits", 2, charge(10, false));
    let (matched, told) = figures(&story);
    assert_eq!((matched, told.held, told.differences), (3, 0, 1), "what runs is not held: {told:?}");
    assert_eq!(changes(&story), ["compute requests.cpu of 1: 900m to 1500m"], "400m more of a, 200m of b");
    let total: Vec<_> = told.total.iter().map(|(key, amount)| format!("{key} {amount}")).collect();
    assert_eq!(total, ["pods 1", "count/pods -1", "cpu 600m"], "b takes two");
    story.opine("waits", 3, Opinion::None);
    assert_eq!(figures(&story).1.held, 1);
    assert_eq!((story.gated(), story.server.used()), (vec!["waits"], "900m"), "nothing comes of it");
    story.server.finish_pod("a");
    story.run(at(60_000));
    assert_eq!(story.gated(), Vec::<&str>::new(), "it waits for room alone");
    assert_eq!(changes(&story), ["compute requests.cpu of 1: 900m to 1100m"]);
    story.server.delete_pod("b");
    story.run(at(90_000));
    assert_eq!(figures(&story), (0, ShadowFigures::default()));
}

#[test]
fn a_namespace_that_the_rule_does_not_select_is_left_out() {
    let mut story = Story::led();
    let namespaces = kube::core::Selector::from_iter([("tier", "gold")]);
    let selection = Selection { namespaces, ..Selection::default() };
    let config = ShadowConfig { evaluators: vec![("shadow".into(), selection)], ..(*config()).clone() };
    story.state.follow_shadow(Some(Arc::new(config)));
    story.server.set_hard(1000);
    story.server.create_pod("a", 300, 0);
    story.run(at(0));
    story.opine("a", 1, charge(700, false));
    for (tier, wanted) in [("gold", vec!["compute requests.cpu of 1: 300m to 700m"]), ("none", vec![])] {
        let metadata =
            json!({"name": NAMESPACE, "uid": "n", "resourceVersion": "1", "labels": {"tier": tier}});
        let namespace: NamespaceWire = wire(json!({ "metadata": metadata }));
        story.state.apply_namespace(&namespace, at(0));
        story.run(at(0));
        assert_eq!(changes(&story), wanted, "{tier}");
    }
}

/// What evaluators in force say is what the rule would be added to.
#[test]
fn beside_evaluators_in_force_the_sum_is_told() {
    for (now, retained, opinion, wanted) in [
        (Ok(Price::NoMatch), false, charge(700, false), Some("compute requests.cpu of 2: 100m to 700m")),
        (Ok(Price::NoMatch), false, charge(700, true), Some("compute requests.cpu of 2: 100m to 800m")),
        (price(400), false, charge(700, false), Some("compute requests.cpu of 2: 400m to 1100m")),
        (price(400), false, charge(700, true), Some("compute requests.cpu of 2: 400m to 1200m")),
        (price(400), true, charge(700, true), Some("compute requests.cpu of 2: 400m to 1100m")),
        (price(400), false, Opinion::None, None),
    ] {
        let mut story = Story::evaluated(OnFailure::Hold);
        story.server.set_hard(2000);
        story.server.create_pod("a", 100, 0);
        let Evaluate { pod, uid, hash, serial, .. } = story.question(10_000);
        let answer = now.clone().map(|price| Said { retains: retained, ..Said::from(price) });
        story.state.on_outcome(Outcome::Evaluated { pod, uid, hash, serial, answer }, at(10_000));
        story.run(LATER);
        story.state.follow_shadow(Some(config()));
        story.opine("a", 1, opinion.clone());
        assert_eq!(changes(&story), wanted.into_iter().collect::<Vec<_>>(), "{now:?} {opinion:?}");
    }
}

/// What it says of a VM's first launcher is charged beside the VM, and once in a migration.
#[test]
fn of_a_vm_what_is_said_of_one_launcher_is_added() {
    let (source, target) = ("v1-p1", "v1-p2");
    let mut story = Story::counting(Calculator::VirtualResources, 2500);
    story.state.follow_shadow(Some(config()));
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(source, 100, 0);
    story.run(LATER);
    for retains in [false, true] {
        story.opine(source, 1 + u64::from(retains), charge(700, retains));
        assert_eq!(changes(&story), ["compute requests.cpu of 2500m: 2 to 2700m"]);
    }
    story.server.create_pod(target, 100, 0);
    story.run(LATER);
    story.opine(target, 1, charge(700, false));
    assert_eq!(
        (story.gated().len(), changes(&story)),
        (0, vec!["compute requests.cpu of 2500m: 2 to 2700m".to_owned()])
    );
    story.server.delete_pod(source);
    story.run(LATER);
    assert_eq!(changes(&story), ["compute requests.cpu of 2500m: 2 to 2700m"]);
}

/// However many quotas a rule is about.
#[test]
fn the_largest_are_told_and_how_many_there_are() {
    let mut story = Story::shadowed(1000);
    for number in 0..20 {
        let name = format!("n{number:02}");
        let metadata = json!({"name": name, "uid": name, "resourceVersion": "1"});
        story.state.apply_namespace(&wire(json!({ "metadata": metadata })), at(0));
        let metadata =
            json!({"name": "q", "namespace": name, "uid": format!("q-{name}"), "resourceVersion": "1"});
        let hard = json!({ CPU: format!("{}", 100 - number) });
        story
            .state
            .apply_watched_quota(&wire(json!({ "metadata": metadata, "spec": { "hard": hard } })), at(0));
        let metadata =
            json!({"name": "p", "namespace": name, "uid": format!("p-{name}"), "resourceVersion": "1"});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n", "containers": []}});
        story.state.apply_pod(&wire(pod.clone()), at(0));
        say(&mut story.state, &pod, 1, &charge(1000, true));
    }
    story.state.plan(at(0));
    let told = figures(&story).1;
    assert_eq!((told.differences, told.largest.len()), (20, 16));
    let namespaces: Vec<_> = told.largest.iter().map(|amount| &*amount.namespace).collect();
    let wanted: Vec<_> = (4..20).rev().map(|number| format!("n{number:02}")).collect();
    assert_eq!(namespaces, wanted, "those of the smallest limits differ most");
}
