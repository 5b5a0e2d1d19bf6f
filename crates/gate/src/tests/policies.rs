//! Each sidecar is asked by a policy of its own, which changes while everything runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::core::Selector;
use serde_json::json;

use super::evaluations::{failure, outcome, price};
use super::evaluator::{config, config_with_others};
use super::stories::{Story, at};
use crate::{Action, Evaluate, EvaluatorsConfig, Price, Selection};

/// A sidecar that is about pods of this app, before one that is about all other apps.
pub(super) fn two_apps() -> EvaluatorsConfig {
    let of = |app: &'static str| {
        let pods = Selector::from_iter([("app", app)]);
        (app.into(), Selection { pods, ..Selection::default() })
    };
    EvaluatorsConfig { evaluators: vec![of("db"), of("web")], ..(*config()).clone() }
}

impl Story {
    /// Beside a quota of 1000m.
    pub(super) fn asking(config: EvaluatorsConfig) -> Self {
        let mut story = Self::led();
        story.state.follow_evaluators(Some(Arc::new(config)), at(0));
        story.server.set_hard(1000);
        story.run(at(0));
        story
    }

    pub(super) fn create_of(&mut self, app: &str, name: &str, milli_cpu: u64) {
        self.server.create_pod_with(name, milli_cpu, |pod| pod["metadata"]["labels"] = json!({"app": app}));
    }

    /// All pods are listed again, as after a change of the evaluators.
    pub(super) fn list_again(&mut self, now: u64) {
        for (_, pod) in self.server.pods() {
            self.state.apply_pod_of(pod, super::evaluator::content_of(pod), at(now));
        }
    }

    /// Another configuration, by which all pods are read.
    fn reconfigure(&mut self, config: EvaluatorsConfig, now: u64) {
        self.state.follow_evaluators(Some(Arc::new(config)), at(now));
        self.list_again(now);
    }
}

fn names(questions: &[Evaluate]) -> BTreeSet<&str> {
    questions.iter().map(|question| &*question.name).collect()
}

#[test]
fn a_pod_that_no_policy_selects_is_never_asked_about_and_counted_natively() {
    let mut story = Story::asking(two_apps());
    story.create_of("other", "a", 100);
    assert!(story.questions(0).is_empty() && story.questions(10).is_empty());
    assert_eq!((story.gated(), story.server.used()), (vec![], "100m"));
    story.create_of("db", "b", 100);
    let question = story.question(20);
    assert_eq!((&*question.name, question.selected), ("b", 0b01));
    story.say(&question, price(300), 100);
    assert_eq!((story.gated(), story.server.used()), (vec![], "400m"));
    for seconds in [1, 60, 3_600] {
        story.server.touch_pod("a");
        assert!(story.questions(seconds * 1_000).is_empty());
    }
}

/// With its new label no evaluator selects the pod.
#[test]
fn one_that_runs_and_is_selected_no_more_is_counted_natively_at_once() {
    let mut story = Story::asking(two_apps());
    story.create_of("db", "a", 100);
    let question = story.question(0);
    story.say(&question, price(300), 10);
    assert!(story.questions(1_000).is_empty());
    assert_eq!(story.server.used(), "300m");
    let key = super::server::key(super::server::Kind::Pod, super::team::NAMESPACE, "a");
    story.server.edit(&key, |pod| pod["metadata"]["labels"] = json!({"app": "other"}));
    assert!(story.questions(2_000).is_empty() && story.questions(20_000).is_empty());
    assert_eq!(story.server.used(), "100m");
}

#[test]
fn who_is_switched_off_is_asked_about_nothing_and_keeps_its_place() {
    let mut story = Story::asking(two_apps());
    for (app, name) in [("db", "d"), ("web", "w")] {
        story.create_of(app, name, 100);
        let question = story.question(0);
        story.say(&question, price(300), 10);
    }
    assert!(story.questions(1_000).is_empty());
    assert_eq!(story.server.used(), "600m");
    story.reconfigure(EvaluatorsConfig { idle: 0b01, ..two_apps() }, 1_010);
    let question = story.question(1_010);
    assert_eq!((&*question.name, question.selected), ("w", 0b10), "it is at the place where it was");
    story.say(&question, price(300), 1_020);
    story.create_of("db", "d2", 100);
    assert!(story.questions(1_030).is_empty());
    assert!(story.questions(20_000).is_empty());
    assert_eq!((story.gated(), story.server.used()), (vec![], "500m"), "they are counted natively");
    story.reconfigure(two_apps(), 20_010);
    let asked = story.questions(20_010);
    assert_eq!(names(&asked), BTreeSet::from(["d", "d2", "w"]));
    for question in &asked {
        story.state.on_outcome(outcome(question, price(200)), at(20_020));
    }
    assert!(story.questions(40_000).is_empty());
    assert_eq!(story.server.used(), "600m");
}

/// What `spec.revision` is for: the configuration is another one, and nothing in it is other than before.
#[test]
fn another_revision_asks_about_each_pod_once_and_nothing_goes_on_a_mixture() {
    let mut story = Story::asking(two_apps());
    for name in ["a", "b"] {
        story.create_of("db", name, 100);
        let question = story.question(0);
        story.say(&question, price(300), 10);
    }
    assert!(story.questions(1_000).is_empty());
    assert_eq!((story.gated(), story.server.used()), (vec![], "600m"));
    story.reconfigure(two_apps(), 1_010);
    story.create_of("db", "c", 100);
    let asked = story.questions(1_010);
    assert_eq!((names(&asked), asked.len()), (BTreeSet::from(["a", "b", "c"]), 3));
    let by = |name: &str| asked.iter().find(|question| *question.name == *name).unwrap();
    // It would fit beside what was answered before, and does not beside what is answered now.
    for (name, milli_cpu) in [("c", 200), ("a", 450)] {
        story.state.on_outcome(outcome(by(name), price(milli_cpu)), at(1_020));
        assert!(story.questions(1_020).is_empty(), "each is asked about once");
        assert_eq!(story.gated(), ["c"], "one that runs is charged as before");
    }
    story.say(by("b"), price(450), 1_030);
    assert!(story.questions(3_000).is_empty());
    assert_eq!((story.gated(), story.server.used()), (vec!["c"], "900m"));
    story.list_again(3_010);
    assert!(story.questions(60_000).is_empty(), "what is as it was is not asked about again");
    story.server.delete_pod("a");
    assert!(story.questions(60_100).is_empty());
    assert!(story.questions(80_000).is_empty());
    assert_eq!((story.gated(), story.server.used()), (vec![], "650m"));
}

#[test]
fn each_fails_by_its_own_policy() {
    for (may_fail, broken, gated) in [
        (0b01, 0b01, vec!["w"]),
        (0b01, 0b10, vec!["d", "w"]),
        (0b01, 0b11, vec!["w"]),
        (0b11, 0b01, vec!["w"]),
        (0b11, 0b10, vec!["d"]),
        (0b11, 0b11, vec![]),
    ] {
        let mut story = Story::asking(EvaluatorsConfig { may_fail, ..two_apps() });
        story.create_of("db", "d", 100);
        story.create_of("web", "w", 100);
        for question in story.questions(0) {
            story.state.on_outcome(outcome(&question, failure()), at(0));
        }
        story.state.set_evaluators_broken(broken, at(0));
        story.questions(9_999);
        assert_eq!(story.gated(), ["d", "w"]);
        story.questions(10_001);
        assert_eq!(story.gated(), gated, "{may_fail:b} {broken:b}");
    }
}

/// After a change it is known which of them select a pod once the pod is read again. Until then one that does not work fails
/// no pod of another one that does.
#[test]
fn who_does_not_work_fails_no_pod_that_is_not_read_by_a_new_configuration() {
    let counting = || EvaluatorsConfig { may_fail: 0b11, ..two_apps() };
    let mut story = Story::asking(counting());
    story.create_of("db", "d", 100);
    story.create_of("web", "w", 100);
    for question in story.questions(0) {
        story.state.on_outcome(outcome(&question, failure()), at(0));
    }
    story.state.set_evaluators_broken(0b01, at(0));
    story.questions(20_000);
    assert_eq!(story.gated(), ["w"]);
    story.state.follow_evaluators(Some(Arc::new(counting())), at(20_010));
    story.questions(20_020);
    story.questions(60_000);
    assert_eq!(story.gated(), ["w"], "it is not listed again");
    story.list_again(60_010);
    story.questions(60_020);
    assert_eq!(story.gated(), ["w"], "the one that is asked works");
}

#[test]
fn who_is_switched_off_fails_nobody() {
    let all = Selection::default();
    let evaluators = vec![("a".into(), all.clone()), ("b".into(), all)];
    let config = EvaluatorsConfig { evaluators, idle: 0b01, may_fail: 0b11, ..(*config()).clone() };
    let mut story = Story::asking(config);
    story.state.set_evaluators_broken(0b01, at(0));
    story.server.create_pod("p", 100, 0);
    let question = story.question(10);
    assert_eq!(question.selected, 0b10);
    assert!(story.questions(60_000).is_empty());
    assert_eq!(story.gated(), ["p"], "the one that is asked works");
    story.say(&question, price(300), 60_010);
    assert_eq!((story.gated(), story.server.used()), (vec![], "300m"));
}

#[test]
fn what_waits_for_one_that_works_again_is_asked_about_at_once() {
    let mut story = Story::asking(two_apps());
    story.create_of("db", "d", 100);
    story.create_of("web", "w", 100);
    story.state.set_evaluators_broken(0b11, at(0));
    for question in story.questions(0) {
        story.state.on_outcome(outcome(&question, failure()), at(0));
    }
    story.state.set_evaluators_broken(0b01, at(10));
    let question = story.question(10);
    assert_eq!(*question.name, *"w", "the other one does not work yet");
}

#[test]
fn another_failure_policy_is_in_force_while_it_does_not_work() {
    let mut story = Story::asking(two_apps());
    story.create_of("db", "d", 100);
    story.state.set_evaluators_broken(0b01, at(0));
    let fail = |story: &mut Story, now| {
        for question in story.questions(now) {
            story.state.on_outcome(outcome(&question, failure()), at(now));
        }
    };
    for now in (0..60_000).step_by(1_000) {
        fail(&mut story, now);
    }
    assert_eq!(story.gated(), ["d"]);
    story.reconfigure(EvaluatorsConfig { may_fail: 0b01, ..two_apps() }, 60_000);
    fail(&mut story, 60_000);
    fail(&mut story, 60_010);
    assert_eq!((story.gated(), story.server.used()), (vec![], "100m"), "it has not worked for long enough");
}

/// Who looks at no other pods is asked at once, beside one who does.
#[test]
fn only_pods_of_who_looks_at_others_are_asked_about_in_rounds() {
    let config =
        EvaluatorsConfig { other_pods: config_with_others().other_pods, in_rounds: 0b01, ..two_apps() };
    let mut story = Story::asking(config);
    story.create_of("web", "w", 100);
    let question = story.question(0);
    assert!(question.round.is_none());
    story.say(&question, price(100), 10);
    assert_eq!(story.gated(), Vec::<&str>::new());

    story.create_of("db", "d", 100);
    story.create_of("web", "w2", 100);
    story.see_all(at(1_000));
    let (mut reads, mut at_once) = (Vec::new(), Vec::new());
    for action in story.state.plan(at(1_000)) {
        match action {
            Action::ReadRound(read) => reads.push(read),
            Action::Evaluate(question) => at_once.push(*question),
            action => story.act(action, at(1_000)),
        }
    }
    assert_eq!((reads.len(), names(&at_once)), (1, BTreeSet::from(["w2"])));
    story.state.on_outcome(outcome(&at_once[0], price(100)), at(1_010));
    let read = reads.remove(0);
    story.state.on_outcome(crate::Outcome::RoundRead(read.namespace, read.round.number, Ok(())), at(1_020));
    let question = story.question(1_020);
    assert_eq!(
        (&*question.name, question.round.as_ref().map(|round| round.number)),
        ("d", Some(read.round.number))
    );
    story.state.on_outcome(outcome(&question, Ok(Price::NoMatch)), at(1_030));
    for step in 0..20 {
        for question in story.questions(1_100 + step * 100) {
            assert_eq!(*question.name, *"d", "those of the other one are not asked about again");
            story.state.on_outcome(outcome(&question, Ok(Price::NoMatch)), at(1_100 + step * 100));
        }
    }
    assert_eq!((story.gated(), story.server.used()), (vec![], "300m"));
}

/// No pod takes a key with a domain by Kubernetes' rules.
#[test]
fn a_key_that_only_evaluators_charge_is_told_of_while_none_is_asked() {
    let told = |story: &Story| {
        let conditions =
            story.server.quota().unwrap()["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let uncounted = conditions.into_iter().find(|known| known["type"] == "UncountedKeys");
        uncounted.is_some_and(|it| it["message"].as_str().unwrap().contains("example.com/license"))
    };
    let mut story = Story::led();
    story.server.set_hard(1000);
    let quota = story.server.quotas().remove(0);
    story.server.edit(&quota, |quota| quota["spec"]["hard"]["example.com/license"] = json!("1"));
    let mut run = |config: Option<EvaluatorsConfig>, now: u64| {
        story.state.follow_evaluators(config.map(Arc::new), at(now));
        (0..20).for_each(|step| story.run(at(now + step * 100)));
        told(&story)
    };
    assert!(run(None, 0));
    assert!(!run(Some(two_apps()), 10_000));
    assert!(run(None, 20_000), "they went");
    assert!(!run(Some(EvaluatorsConfig { idle: 0b01, ..two_apps() }), 30_000), "one is asked");
}
