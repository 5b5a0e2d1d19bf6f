//! Several evaluators that select pods and namespaces, and what becomes of pods when others do.

use std::sync::Arc;

use kube::core::Selector;
use serde_json::json;
use sluice_index::NamespaceWire;

use super::evaluations::{outcome, price};
use super::evaluator::config;
use super::server::{Kind, key, wire};
use super::stories::{Story, at};
use super::team::NAMESPACE;
use crate::{Again, Evaluate, EvaluatorsConfig, Failed, OnFailure, Outcome, Price, Said, Selection};

/// Beside the one that is about all pods, a rule that is about namespaces with a label.
fn with_rule(on_failure: OnFailure) -> Arc<EvaluatorsConfig> {
    let may_fail = u16::from(on_failure == OnFailure::CountNatively);
    let mut config = EvaluatorsConfig { may_fail, ..(*config()).clone() };
    let namespaces = Selector::from_iter([("tier", "gold")]);
    config.evaluators.push(("rule".into(), Selection { namespaces, ..Selection::default() }));
    Arc::new(config)
}

impl Story {
    fn with_rule(on_failure: OnFailure) -> Self {
        let mut story = Self::evaluated(OnFailure::Hold);
        story.state.follow_evaluators(Some(with_rule(on_failure)), at(0));
        story
    }

    fn tier(&mut self, tier: Option<&str>, now: u64) {
        let labels = tier.map_or_else(|| json!({}), |tier| json!({"tier": tier}));
        let namespace: NamespaceWire = wire(json!({
            "metadata": {"name": NAMESPACE, "uid": "n", "resourceVersion": "1", "labels": labels},
        }));
        self.state.apply_namespace(&namespace, at(now));
    }
}

#[test]
fn who_else_selects_the_namespace_is_asked_before_the_next_release() {
    let mut story = Story::with_rule(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    assert_eq!(question.selected, 0b01);
    story.say(&question, price(100), 10);
    assert_eq!((story.gated(), story.server.used()), (vec![], "100m"));
    story.server.create_pod("b", 100, 20);
    let before = story.question(20);

    story.tier(Some("gold"), 30);
    story.state.on_outcome(outcome(&before, price(100)), at(40));
    let mut asked = story.questions(40);
    asked.sort_by(|one, other| one.name.cmp(&other.name));
    let names: Vec<_> = asked.iter().map(|question| (&*question.name, question.selected)).collect();
    assert_eq!(names, [("a", 0b11), ("b", 0b11)], "the answer of one of them is none of both");
    assert_eq!(story.gated(), ["b"]);
    story.state.on_outcome(outcome(&asked[1], price(300)), at(50));
    assert!(story.questions(50).is_empty());
    assert_eq!(story.gated(), ["b"], "what runs is not charged by them yet");
    story.say(&asked[0], price(300), 60);
    assert_eq!((story.gated(), story.server.used()), (vec![], "600m"));

    story.tier(None, 70);
    let asked = story.questions(70);
    assert_eq!(asked.iter().map(|question| question.selected).collect::<Vec<_>>(), [0b01, 0b01]);
    for question in &asked {
        story.state.on_outcome(outcome(question, price(100)), at(80));
    }
    // What is less is recorded a little later.
    assert!(story.questions(10_000).is_empty());
    assert_eq!(story.server.used(), "200m");
}

#[test]
fn a_pod_about_which_there_is_no_answer_is_asked_about_again_when_it_changes() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.say(&question, Err(Failed { text: "rule: no".into(), by: 0, again: Again::WhenChanged }), 10);
    for seconds in [1, 60, 600, 86_400] {
        assert!(story.questions(seconds * 1_000).is_empty(), "after {seconds} s");
    }
    assert_eq!(story.gated(), ["a"]);
    assert!(story.told.iter().all(|event| event.message.contains("rule: no")), "{:?}", story.told);
    let pod = key(Kind::Pod, NAMESPACE, "a");
    story.server.edit(&pod, |pod| pod["metadata"]["labels"]["size"] = json!("large"));
    let question = story.question(86_400_001);
    story.say(&question, price(100), 86_400_010);
    assert_eq!((story.gated(), story.server.used()), (vec![], "100m"));
}

/// What Kubernetes counts stands in for processes that have failed, and never for a rule.
#[test]
fn only_who_waits_for_processes_alone_is_counted_natively() {
    for (tier, gated) in [(None, vec![]), (Some("gold"), vec!["a"])] {
        let mut story = Story::with_rule(OnFailure::CountNatively);
        story.tier(tier, 0);
        story.server.create_pod("a", 100, 0);
        let question = story.question(0);
        story.state.set_evaluators_broken(1, at(10));
        let failed = Err(Failed { text: "sizes: did not answer in 1 s".into(), by: 0, again: Again::Later });
        story.state.on_outcome(outcome(&question, failed), at(10));
        story.questions(11_000);
        assert_eq!(story.gated(), gated, "{tier:?}");
    }
}

#[test]
fn what_no_evaluator_selects_any_more_is_charged_what_kubernetes_counts() {
    let mut story = Story::evaluated(OnFailure::Hold);
    let mut config = (*with_rule(OnFailure::Hold)).clone();
    config.evaluators.remove(0);
    story.tier(Some("gold"), 0);
    story.state.follow_evaluators(Some(Arc::new(config)), at(0));
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.say(&question, price(700), 10);
    assert_eq!(story.server.used(), "700m");
    story.tier(None, 20);
    assert!(story.questions(20).is_empty());
    assert!(story.questions(10_000).is_empty());
    assert_eq!(story.server.used(), "100m");
}

impl Story {
    /// As [`Story::say`], where the rule matches, or has no answer.
    fn say_of_rule(&mut self, question: &Evaluate, answer: Result<Price, Failed>, now: u64) {
        let Outcome::Evaluated { pod, uid, hash, serial, answer } = outcome(question, answer) else {
            panic!()
        };
        let answer = match answer {
            Ok(said) => Ok(Said { matched: 0b10, ..said }),
            Err(failed) => Err(Failed { by: 0b10, ..failed }),
        };
        self.state.on_outcome(Outcome::Evaluated { pod, uid, hash, serial, answer }, at(now));
        assert!(self.questions(now).is_empty());
    }

    /// How many pods the rule matches, and how many it holds.
    fn of_rule(&self) -> (usize, usize) {
        let figures = self.state.rule_figures();
        let [_, (name, figures)] = &figures[..] else { panic!("{figures:?}") };
        assert_eq!(**name, *"rule");
        (figures.matched, figures.held)
    }
}

#[test]
fn what_a_rule_matches_and_holds_is_counted() {
    let mut story = Story::with_rule(OnFailure::Hold);
    story.tier(Some("gold"), 0);
    for pod in ["a", "b"] {
        story.server.create_pod(pod, 100, 0);
        let question = story.question(0);
        assert_eq!(question.selected, 0b11);
        story.say_of_rule(&question, price(100), 10);
    }
    story.server.create_pod("c", 100, 0);
    let question = story.question(20);
    assert_eq!(story.of_rule(), (2, 0), "nothing is said yet");
    let failed = || Err(Failed { text: "rule: no".into(), by: 0, again: Again::WhenChanged });
    story.say_of_rule(&question, failed(), 30);
    assert_eq!(story.of_rule(), (2, 1));
    // What runs is not held.
    story.relabel("b");
    let question = story.question(40);
    story.say_of_rule(&question, failed(), 50);
    assert_eq!(story.of_rule(), (2, 1), "by the last answer");
    story.relabel("c");
    story
        .server
        .edit(&key(Kind::Pod, NAMESPACE, "c"), |pod| pod["metadata"]["labels"]["size"] = json!("small"));
    let question = story.question(60);
    assert_eq!(story.of_rule(), (2, 0), "of what it is now nothing is said yet");
    story.say_of_rule(&question, failed(), 70);
    story.server.finish_pod("a");
    story.server.delete_pod("c");
    assert!(story.questions(80).is_empty());
    assert_eq!(story.of_rule(), (1, 0));
    story.tier(None, 90);
    story.questions(90);
    assert_eq!(story.of_rule(), (0, 0), "it is not about the namespace any more");
    story.state.follow_evaluators(Some(with_rule(OnFailure::Hold)), at(100));
    assert_eq!(story.of_rule(), (0, 0));
    story.state.follow_evaluators(None, at(110));
    assert!(story.state.rule_figures().is_empty());
}
