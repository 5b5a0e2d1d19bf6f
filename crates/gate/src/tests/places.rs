//! Each evaluator has places of its own for questions: how fast another one answers is none of its business.

use std::collections::BTreeSet;

use kube::core::Selector;
use serde_json::json;
use sluice_index::NamespaceWire;

use super::evaluations::{failure, outcome, price};
use super::evaluator::config;
use super::policies::two_apps;
use super::server::{Kind, key, wire};
use super::stories::{Story, at};
use super::team::NAMESPACE;
use crate::{Action, Evaluate, Selection};

fn of<'q>(questions: &'q [Evaluate], app: &str) -> Vec<&'q Evaluate> {
    questions.iter().filter(|question| question.name.starts_with(app)).collect()
}

#[test]
fn who_answers_slowly_takes_no_place_of_another() {
    let mut story = Story::asking(two_apps());
    for n in 0..50 {
        story.create_of("db", &format!("db-{n}"), 1);
    }
    let slow = story.questions(0);
    assert_eq!(slow.len(), 16, "no more than it can have");
    story.create_of("web", "web", 1);
    let question = story.question(10);
    assert_eq!(&*question.name, "web");
    story.say(&question, price(1), 20);
    assert!(!story.gated().contains(&"web"));
    // Nothing is forgotten: each that is answered has the next one asked.
    let mut asked: BTreeSet<String> = slow.iter().map(|question| question.name.to_string()).collect();
    let mut flying = slow;
    while let Some(question) = flying.pop() {
        story.state.on_outcome(outcome(&question, price(1)), at(200_000));
        for next in story.questions(200_000) {
            assert!(asked.insert(next.name.to_string()), "once each");
            flying.push(next);
        }
    }
    for now in (200_100..210_000).step_by(100) {
        assert!(story.questions(now).is_empty());
    }
    assert_eq!((asked.len(), story.gated()), (50, vec![]));
}

/// A tenant relabels pods that wait for their turn.
#[test]
fn a_turn_among_those_of_one_set_is_none_among_those_of_another() {
    let mut story = Story::asking(two_apps());
    for n in 0..60 {
        story.create_of("db", &format!("db-{n}"), 1);
    }
    let asked = story.questions(0);
    let is_asked = |name: &str| asked.iter().any(|question| *question.name == *name);
    for name in (0..60).map(|n| format!("db-{n}")).filter(|name| !is_asked(name)) {
        let pod = key(Kind::Pod, NAMESPACE, &name);
        story.server.edit(&pod, |pod| pod["metadata"]["labels"]["app"] = "web".into());
    }
    let moved = story.questions(10);
    assert_eq!(moved.len(), 16, "as many as there are places");
    for question in &asked {
        story.state.on_outcome(outcome(question, price(1)), at(20));
    }
    assert_eq!(story.questions(20).len(), 0, "no place of the others is free");
    story.state.on_outcome(outcome(&moved[0], price(1)), at(30));
    assert_eq!(story.questions(30).len(), 1);
}

#[test]
fn who_takes_many_at_once_has_them_and_who_takes_few_has_some_ready() {
    let mut story = Story::asking(two_apps());
    story.state.limit_evaluators(&[32, 1]);
    for n in 0..100 {
        story.create_of("db", &format!("db-{n}"), 1);
        story.create_of("web", &format!("web-{n}"), 1);
    }
    let asked = story.questions(0);
    assert_eq!((of(&asked, "db").len(), of(&asked, "web").len()), (64, 16));
    story.state.limit_evaluators(&[8, 1]);
    for question in of(&asked, "db").into_iter().take(48) {
        story.state.on_outcome(outcome(question, price(1)), at(10));
    }
    assert!(story.questions(10).is_empty(), "it takes fewer now");
    story.state.on_outcome(outcome(of(&asked, "db")[48], price(1)), at(20));
    assert_eq!(story.questions(20).len(), 1);
}

#[test]
fn who_fails_slowly_takes_no_trial_of_another() {
    let mut story = Story::asking(two_apps());
    story.create_of("db", "db", 1);
    story.create_of("web", "web", 1);
    for question in story.questions(0) {
        story.state.on_outcome(outcome(&question, failure()), at(0));
    }
    let again = story.questions(2_000);
    assert_eq!((of(&again, "db").len(), of(&again, "web").len()), (1, 1), "one of each is tried");
}

impl Story {
    fn tiered(&mut self, tier: &str, now: u64) {
        let namespace: NamespaceWire = wire(json!({
            "metadata": {"name": NAMESPACE, "uid": "n", "resourceVersion": "1", "labels": {"tier": tier}},
        }));
        self.state.apply_namespace(&namespace, at(now));
    }
}

/// Pods find out some at a time that others select their namespace. One that is asked about before, by those of now, may
/// have been asked about in vain when it is its turn.
#[test]
fn what_was_answered_by_others_than_select_the_pod_is_not_kept() {
    let mut config = (*config()).clone();
    let namespaces = Selector::from_iter([("tier", "gold")]);
    config.evaluators.push(("rule".into(), Selection { namespaces, ..Selection::default() }));
    let mut story = Story::asking(config);
    story.state.config_mut().reclassified_pods = 1;
    for n in 0..8 {
        story.server.create_pod(&format!("p{n}"), 1, 0);
    }
    story.see_all(at(0));
    story.tiered("gold", 0);
    let actions = story.state.plan(at(0));
    let asked: Vec<Evaluate> = actions
        .into_iter()
        .filter_map(|action| if let Action::Evaluate(question) = action { Some(*question) } else { None })
        .collect();
    story.tiered("iron", 10);
    for question in asked {
        let milli_cpu = if question.selected == 0b11 { 700 } else { 1 };
        story.state.on_outcome(outcome(&question, price(milli_cpu)), at(20));
    }
    for step in 0..100 {
        for question in story.questions(100 + step) {
            assert_eq!(question.selected, 0b01);
            story.state.on_outcome(outcome(&question, price(1)), at(100 + step));
        }
    }
    assert_eq!((story.gated(), story.server.used()), (vec![], "8m"));
}
