//! What evaluators say of pods, one behaviour each.

use std::sync::Arc;

use serde_json::json;
use sluice_engine::{Amount, Charge, Resource};

use super::evaluator::{config, content_of};
use super::server::CPU;
use super::stories::{Story, at};
use super::team::NAMESPACE;
use crate::{Action, Again, Evaluate, EvaluatorsConfig, Failed, Moment, OnFailure, Outcome, Price, Said};

pub(super) fn price(milli_cpu: i128) -> Result<Price, Failed> {
    let pairs = [(Resource::from_quota_key(CPU), Amount::from_nanos(milli_cpu * 1_000_000))];
    Ok(Price::Charge(Arc::new(Charge::from_pairs(pairs))))
}

pub(super) fn failure() -> Result<Price, Failed> {
    Err(Failed { text: "sizes: did not answer in 1 s".into(), by: 0, again: Again::Later })
}

pub(super) fn outcome(question: &Evaluate, answer: Result<Price, Failed>) -> Outcome {
    let Evaluate { pod, ref uid, hash, serial, .. } = *question;
    Outcome::Evaluated { pod, uid: uid.clone(), hash, serial, answer: answer.map(Said::from) }
}

impl Story {
    /// Led by a process that asks an evaluator, beside a quota of 1000m.
    pub(super) fn evaluated(on_failure: OnFailure) -> Self {
        let mut story = Self::led();
        let may_fail = u16::from(on_failure == OnFailure::CountNatively);
        let config = EvaluatorsConfig { may_fail, ..(*config()).clone() };
        story.state.follow_evaluators(Some(Arc::new(config)), at(0));
        story.server.set_hard(1000);
        story.run(at(0));
        story
    }

    /// What is asked now, if all else is done.
    pub(super) fn questions(&mut self, now: u64) -> Vec<Evaluate> {
        let mut asked = Vec::new();
        loop {
            self.see_all(at(now));
            let actions = self.state.plan(at(now));
            let is_something = !actions.is_empty() || self.state.next_due_ms(at(now)) == Some(0);
            for action in actions {
                match action {
                    Action::Evaluate(question) => asked.push(*question),
                    action => self.act(action, at(now)),
                }
            }
            if !is_something {
                return asked;
            }
        }
    }

    pub(super) fn act(&mut self, action: Action, now: Moment) {
        let outcome = match action {
            Action::CatchUp => Outcome::CaughtUp,
            Action::WriteEvent(tell) => {
                self.told.push(tell.clone());
                Outcome::EventWritten(tell, true)
            }
            Action::Answer(ticket, judgement) => return self.answered.push((ticket, judgement)),
            action => self.server.outcome(&action, super::step::Fault::None),
        };
        self.state.on_outcome(outcome, now);
    }

    /// The one question that there is.
    pub(super) fn question(&mut self, now: u64) -> Evaluate {
        let [question] = self.questions(now).try_into().unwrap();
        question
    }

    pub(super) fn say(&mut self, question: &Evaluate, answer: Result<Price, Failed>, now: u64) {
        self.state.on_outcome(outcome(question, answer), at(now));
        assert_eq!(self.questions(now).len(), 0, "nothing else is asked");
    }

    pub(super) fn relabel(&mut self, pod: &str) {
        self.relabel_as(pod, 0);
    }

    pub(super) fn relabel_as(&mut self, pod: &str, size: u64) {
        let key = super::server::key(super::server::Kind::Pod, NAMESPACE, pod);
        self.server.edit(&key, |pod| pod["metadata"]["labels"]["size"] = json!(format!("large-{size}")));
    }
}

#[test]
fn a_pod_is_held_until_there_is_an_answer_and_charged_that() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    assert!(question.is_waiting && *question.name == *"a", "{question:?}");
    assert_eq!((story.gated(), story.told.len()), (vec!["a"], 0));
    story.say(&question, price(700), 10);
    assert_eq!((story.gated(), story.server.used()), (vec![], "700m"));
    story.server.create_pod("b", 100, 0);
    let question = story.question(100);
    story.say(&question, price(301), 110);
    assert_eq!(story.gated(), ["b"], "{:?}", story.server.status());
    assert!(story.told[0].message.contains("requested: requests.cpu=301m"), "{:?}", story.told);
}

#[test]
fn where_no_evaluator_matches_what_kubernetes_counts_is_charged() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.say(&question, Ok(Price::NoMatch), 10);
    assert_eq!((story.gated(), story.server.used()), (vec![], "100m"));
}

/// Its release changes nothing that it is asked about, and no more does an update that changes nothing.
#[test]
fn a_life_is_few_questions() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let mut asked = 1;
    let question = story.question(0);
    story.say(&question, price(100), 10);
    assert_eq!(story.gated(), Vec::<&str>::new());
    for n in 0..100 {
        story.server.touch_pod("a");
        assert_eq!(story.questions(100 + n).len(), 0);
    }
    let key = super::server::key(super::server::Kind::Pod, NAMESPACE, "a");
    for status in ["scheduled", "creating", "running"] {
        story.server.edit(&key, |pod| pod["status"]["conditions"] = json!([{ "type": status }]));
        let question = story.question(1_000);
        assert!(!question.is_waiting);
        story.say(&question, price(100), 1_000);
        asked += 1;
    }
    story.server.finish_pod("a");
    assert_eq!(story.questions(2_000).len(), 0, "what has ended is not asked about");
    assert_eq!((asked, story.server.used()), (4, "0"));
}

#[test]
fn an_answer_about_other_content_another_question_or_another_pod_is_dropped() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let old = story.question(0);
    story.relabel("a");
    assert_eq!(story.questions(10).len(), 0, "one question at a time");
    story.state.on_outcome(outcome(&old, price(1)), at(20));
    let new = story.question(20);
    assert_ne!(old.hash, new.hash);
    assert_eq!(story.gated(), ["a"]);
    story.state.on_outcome(outcome(&old, price(1)), at(30));
    story.state.on_outcome(outcome(&Evaluate { hash: old.hash, ..new }, price(1)), at(30));
    assert_eq!(story.gated(), ["a"]);
    let new = story.question(30);
    story.server.delete_pod("a");
    story.server.create_pod("a", 100, 0);
    let other = story.question(40);
    story.state.on_outcome(outcome(&new, price(1)), at(50));
    assert_eq!(story.questions(50).len(), 0);
    assert_eq!(story.gated(), ["a"]);
    story.say(&other, price(500), 60);
    assert_eq!((story.gated(), story.server.used()), (vec![], "500m"));
}

#[test]
fn what_changed_after_the_answer_is_not_released_on_it() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.state.on_outcome(outcome(&question, price(100)), at(10));
    let Some(Action::Record(record)) = story.state.plan(at(10)).into_iter().next() else { panic!() };
    let answer = story.server.record(&record);
    // The pod changes where the watch does not show it yet.
    let cursor = story.server.log.len();
    story.relabel("a");
    let unseen = story.server.log.split_off(cursor);
    story.see_all(at(10));
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid.clone(), answer), at(10));
    for _ in 0..4 {
        for action in story.state.plan(at(10)) {
            assert!(!matches!(action, Action::Evaluate(_)), "the content is not known");
            story.act(action, at(10));
        }
    }
    assert_eq!(story.gated(), ["a"]);
    story.server.log.extend(unseen);
    let question = story.question(20);
    story.say(&question, price(2_000), 30);
    assert_eq!(story.gated(), ["a"], "it is more than there is");
}

#[test]
fn failures_hold_are_told_and_are_tried_again() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.say(&question, failure(), 10);
    assert_eq!((story.gated(), story.told.len()), (vec!["a"], 0), "not told at once");
    let again = story.question(1_010);
    story.say(&again, failure(), 1_020);
    assert_eq!(story.questions(2_000).len(), 0);
    assert_eq!(story.told.len(), 1);
    let told = story.told[0].clone();
    assert_eq!(told.reason, "NotEvaluated");
    assert!(told.message.starts_with("held: sizes: did not answer in 1 s"), "{}", told.message);
    let third = story.question(3_020);
    story.say(&third, price(100), 3_030);
    assert_eq!(story.gated(), Vec::<&str>::new());
}

#[test]
fn what_runs_keeps_its_last_answer_and_is_charged_anew_above_the_limit() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.say(&question, price(600), 10);
    story.relabel("a");
    let question = story.question(100);
    assert!(!question.is_waiting);
    story.say(&question, failure(), 110);
    assert_eq!(story.server.used(), "600m", "it does not become cheaper");
    let question = story.question(1_110);
    story.say(&question, price(1_400), 1_200);
    assert_eq!((story.gated(), story.server.used()), (vec![], "1400m"));
}

/// Old answers and new ones are not summed.
#[test]
fn another_configuration_pauses_until_all_that_run_are_answered() {
    let mut story = Story::evaluated(OnFailure::Hold);
    for pod in ["a", "b"] {
        story.server.create_pod(pod, 100, 0);
        let question = story.question(0);
        story.say(&question, price(300), 10);
    }
    story.server.create_pod("waits", 100, 0);
    let question = story.question(100);
    story.say(&question, price(500), 110);
    assert_eq!(story.gated(), ["waits"]);
    story.state.follow_evaluators(Some(config()), at(200));
    assert_eq!(story.questions(200).len(), 0, "contents have to be read anew");
    for (_, pod) in story.server.pods() {
        let pod = pod.clone();
        story.state.apply_pod_of(&pod, content_of(&pod), at(200));
    }
    let questions = story.questions(210);
    assert_eq!(questions.len(), 3);
    let of = |name: &str| questions.iter().find(|question| *question.name == *name).unwrap().clone();
    story.say(&of("waits"), price(500), 220);
    story.say(&of("a"), price(100), 220);
    assert_eq!(story.gated(), ["waits"], "300m of the old answers, 100m of the new");
    story.say(&of("b"), price(400), 230);
    assert_eq!((story.gated(), story.server.used()), (vec![], "1"));
}

#[test]
fn a_pause_for_answers_ends_after_half_a_minute() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 100, 0);
    story.run(at(0));
    assert_eq!(story.gated(), Vec::<&str>::new());
    story.state.follow_evaluators(Some(config()), at(0));
    let a = story.server.pod("a").clone();
    story.state.apply_pod_of(&a, content_of(&a), at(0));
    let silent = story.question(0);
    story.server.create_pod("b", 100, 0);
    let question = story.question(10);
    story.say(&question, price(900), 20);
    story.questions(29_000);
    assert_eq!(story.gated(), ["b"]);
    story.questions(30_001);
    assert_eq!((story.gated(), story.server.used()), (vec![], "1"), "the silent one as Kubernetes counts it");
    story.say(&silent, price(300), 40_000);
    assert_eq!(story.server.used(), "1200m", "a late answer counts");
}

/// A controller mostly starts before its sidecar: all questions fail at first.
#[test]
fn once_evaluators_work_what_runs_is_answered_before_anything_goes() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("runs", 100, 0);
    story.run(at(0));
    story.state.follow_evaluators(Some(config()), at(0));
    story.state.set_evaluators_broken(1, at(0));
    let runs = story.server.pod("runs").clone();
    story.state.apply_pod_of(&runs, content_of(&runs), at(0));
    let question = story.question(0);
    story.say(&question, failure(), 10);
    story.server.create_pod("waits", 100, 0);
    let question = story.question(20);
    story.say(&question, failure(), 30);
    story.state.set_evaluators_broken(0, at(40));
    let questions = story.questions(40);
    let of = |name: &str| questions.iter().find(|question| *question.name == *name).unwrap().clone();
    story.say(&of("waits"), price(300), 50);
    assert_eq!(story.gated(), ["waits"], "nobody knows yet what the other one takes");
    story.say(&of("runs"), price(800), 60);
    assert_eq!((story.gated(), story.server.used()), (vec!["waits"], "800m"));
}

#[test]
fn pods_are_counted_natively_after_ten_seconds_and_repaired() {
    let mut story = Story::evaluated(OnFailure::CountNatively);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.say(&question, failure(), 10);
    story.state.set_evaluators_broken(1, at(20));
    for second in 1..10 {
        for question in story.questions(second * 1_000) {
            story.state.on_outcome(outcome(&question, failure()), at(second * 1_000));
        }
    }
    assert_eq!(story.gated(), ["a"]);
    story.questions(10_021);
    assert_eq!((story.gated(), story.server.used()), (vec![], "100m"));
    assert_eq!(story.state.take_stats().counted_natively, 1);
    story.state.set_evaluators_broken(0, at(20_000));
    let asked = story.questions(20_000);
    let [question] = &asked[..] else { panic!("{asked:?}") };
    story.say(question, price(800), 20_010);
    assert_eq!(story.server.used(), "800m");
    story.server.create_pod("b", 100, 0);
    let question = story.question(20_100);
    story.say(&question, failure(), 20_110);
    assert_eq!(story.gated(), ["b"], "it works, and fails for one pod");
}

#[test]
fn who_does_not_lead_asks_too() {
    let mut story = Story::begin();
    story.state.follow_evaluators(Some(config()), at(0));
    story.server.set_hard(1000);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.say(&question, price(100), 10);
    story.state.lead(at(20));
    assert_eq!(story.questions(20).len(), 0, "it is known");
    story.questions(100);
    assert_eq!(story.gated(), Vec::<&str>::new());
}

#[test]
fn without_evaluators_nothing_is_asked_and_of_none_any_more_nothing_is_left() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.state.follow_evaluators(None, at(10));
    story.state.on_outcome(outcome(&question, price(900)), at(10));
    assert_eq!(story.questions(10).len(), 0);
    assert_eq!((story.gated(), story.server.used()), (vec![], "100m"));
}
