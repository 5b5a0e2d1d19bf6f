//! What quotas tell of pods that run without an answer of evaluators.

use std::sync::Arc;

use serde_json::{Value, json};

use super::evaluations::{failure, outcome, price};
use super::evaluator::{config, content_of};
use super::stories::{Story, at};
use crate::OnFailure;

impl Story {
    /// Two pods that run, charged 300m each.
    fn two_that_run() -> Self {
        let mut story = Self::evaluated(OnFailure::Hold);
        for pod in ["a", "b"] {
            story.server.create_pod(pod, 100, 0);
            let question = story.question(0);
            story.say(&question, price(300), 10);
        }
        story.questions(30_000);
        story
    }

    /// All that is asked from the one second to the other fails. Returns how often the status was written.
    fn fail(&mut self, seconds: std::ops::Range<u64>) -> usize {
        let before = self.writes();
        for ms in seconds.flat_map(|second| [second * 1_000, second * 1_000 + 500]) {
            for question in self.questions(ms) {
                self.state.on_outcome(outcome(&question, failure()), at(ms));
            }
        }
        self.writes() - before
    }

    fn writes(&self) -> usize {
        self.server.writes
    }

    fn evaluated_told(&self) -> Option<&Value> {
        let conditions = self.server.quota().unwrap()["status"]["conditions"].as_array()?;
        conditions.iter().find(|condition| condition["type"] == "Evaluated")
    }
}

#[test]
fn a_quota_tells_how_many_pods_run_without_an_answer() {
    let mut story = Story::two_that_run();
    assert_eq!(story.fail(101..160), 0, "all are answered");
    story.relabel("b");
    assert_eq!(story.fail(160..162), 0, "it is not told at once");
    assert_eq!(story.fail(162..170), 1);
    let told = story.evaluated_told().unwrap();
    assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("NotEvaluated")));
    assert_eq!(
        told["message"],
        "1 pod that runs (b) has no answer of evaluators: charged is what was answered last, or else what \
         Kubernetes counts"
    );
    let since = told["lastTransitionTime"].clone();
    story.relabel("a");
    assert_eq!(story.fail(170..172), 0);
    assert_eq!(story.fail(172..300), 1, "nothing is written where nothing has changed");
    let told = story.evaluated_told().unwrap();
    assert!(
        told["message"].as_str().unwrap().starts_with("2 pods that run (a is one) have no answer"),
        "{told}"
    );
    assert_eq!(told["lastTransitionTime"], since);

    // What ends does not count, and needs no answer.
    story.server.finish_pod("a");
    story.fail(300..315);
    assert!(story.evaluated_told().unwrap()["message"].as_str().unwrap().starts_with("1 pod that runs (b)"));
    for second in 315..500 {
        for question in story.questions(second * 1_000) {
            story.state.on_outcome(outcome(&question, price(300)), at(second * 1_000));
        }
    }
    assert_eq!((story.evaluated_told(), story.server.used()), (None, "300m"));
}

#[test]
fn of_other_evaluators_or_none_nothing_old_is_told() {
    let mut story = Story::two_that_run();
    story.relabel("b");
    story.fail(101..115);
    assert!(story.evaluated_told().is_some());
    story.state.follow_evaluators(Some(config()), at(115_000));
    for (_, pod) in story.server.pods() {
        story.state.apply_pod_of(pod, content_of(pod), at(115_000));
    }
    for question in story.questions(115_000) {
        story.state.on_outcome(outcome(&question, price(200)), at(115_000));
    }
    story.questions(126_000);
    assert_eq!((story.evaluated_told(), story.server.used()), (None, "400m"));
    story.relabel("a");
    story.fail(130..145);
    assert!(story.evaluated_told().is_some());
    story.state.follow_evaluators(None, at(145_000));
    story.questions(156_000);
    assert_eq!((story.evaluated_told(), story.server.used()), (None, "200m"));
}

#[test]
fn pods_that_wait_are_told_of_elsewhere() {
    let mut story = Story::two_that_run();
    story.server.create_pod("waits", 100, 0);
    story.fail(101..160);
    assert_eq!((story.gated(), story.evaluated_told()), (vec!["waits"], None));
    let config = crate::EvaluatorsConfig { may_fail: 1, ..(*config()).clone() };
    story.state.follow_evaluators(Some(Arc::new(config)), at(160_000));
    story.state.set_evaluators_broken(1, at(160_000));
    for (_, pod) in story.server.pods() {
        story.state.apply_pod_of(pod, content_of(pod), at(160_000));
    }
    story.fail(160..220);
    let told = story.evaluated_told().map(|told| told["message"].as_str().unwrap().to_owned()).unwrap();
    assert_eq!(story.gated(), Vec::<&str>::new(), "it is counted natively");
    assert!(told.starts_with("3 pods that run (a is one) have no answer"), "{told}");
}

/// No evaluator has failed: other pods may be asked about before this one, as after a start.
#[test]
fn a_pod_in_line_is_told_of_after_thirty_seconds() {
    let mut story = Story::two_that_run();
    let before = story.writes();
    story.relabel("b");
    let wait = |story: &mut Story, seconds: std::ops::Range<u64>| {
        seconds.for_each(|second| drop(story.questions(second * 1_000)));
        (story.writes() - before, story.evaluated_told().is_some())
    };
    assert_eq!(wait(&mut story, 100..130), (0, false));
    assert!(wait(&mut story, 130..145).1);
}
