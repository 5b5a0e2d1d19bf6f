//! What evaluators say of pods of VMs, and of pods that are to be resized.

use sluice_engine::vm::Calculator;

use super::evaluations::{failure, price};
use super::evaluator::config;
use super::machines::sized;
use super::resizes::change;
use super::stories::{Story, at};
use super::team::NAMESPACE;
use crate::{Asked, Judgement, OnFailure};

const SOURCE: &str = "v1-p1";
const TARGET: &str = "v1-p2";

fn counting(hard: u64) -> Story {
    let mut story = Story::counting(Calculator::VirtualResources, hard);
    story.state.follow_evaluators(Some(config()), at(0));
    story.see_machine(&sized(2, 2), 0);
    story
}

#[test]
fn a_new_vm_is_held_until_there_is_an_answer_which_adds_to_it() {
    let mut story = counting(2500);
    story.server.create_pod(SOURCE, 100, 0);
    let question = story.question(0);
    assert!(question.native.is_empty(), "what Kubernetes counts of it is no charge of the VM: {question:?}");
    story.say(&question, failure(), 10);
    assert_eq!(story.held(), [SOURCE]);
    story.questions(2_000);
    assert_eq!(story.told_of(SOURCE)[0].0, "NotEvaluated");
}

/// However full the quota is and whatever has become of the evaluator.
#[test]
fn a_migration_asks_nothing_and_the_answer_goes_with_the_vm() {
    let mut story = counting(2500);
    story.server.create_pod(SOURCE, 100, 0);
    let question = story.question(0);
    story.say(&question, price(500), 10);
    assert_eq!((story.held().len(), story.server.used()), (0, "2500m"));
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.questions(1_000).len(), 0);
    assert_eq!((story.held().len(), story.server.used()), (0, "2500m"));
    story.server.finish_pod(SOURCE);
    let question = story.question(2_000);
    assert_eq!((&*question.name, question.is_waiting), (TARGET, false));
    story.say(&question, failure(), 2_010);
    assert_eq!(story.server.used(), "2500m", "it does not become cheaper");
    story.server.delete_pod(SOURCE);
    let question = story.question(3_100);
    story.say(&question, price(700), 3_200);
    story.questions(3_300);
    assert_eq!(story.server.used(), "2700m");
    story.server.delete_pod(TARGET);
    story.questions(3_400);
    assert_eq!(story.server.used(), "0");
}

/// As where a process starts beside both pods and lists the target first.
#[test]
fn a_target_that_was_asked_about_before_its_source_was_seen_goes() {
    let mut story = counting(2500);
    story.server.create_pod(TARGET, 100, 0);
    story.question(0);
    story.server.create_pod(SOURCE, 100, 0);
    let question = story.question(10);
    assert_eq!(&*question.name, SOURCE);
    story.state.on_outcome(super::evaluations::outcome(&question, price(100)), at(20));
    // The source runs, so nobody has to say anything about the other before it goes.
    story.questions(20);
    assert_eq!((story.held().len(), story.server.used()), (0, "2100m"));
}

/// Both wait, so both were asked about.
#[test]
fn a_vm_takes_the_largest_answer_about_its_launchers() {
    for prices in [[500, 700], [700, 500]] {
        let mut story = counting(3000);
        [SOURCE, TARGET].iter().for_each(|pod| story.server.create_pod(pod, 100, 0));
        let questions = story.questions(0);
        assert_eq!(questions.len(), 2);
        for (question, milli_cpu) in questions.iter().zip(prices) {
            let answer = super::evaluations::outcome(question, price(milli_cpu));
            story.state.on_outcome(answer, at(10));
        }
        for now in [20, 200, 1_000] {
            story.questions(now);
        }
        assert_eq!((story.held().len(), story.server.used()), (0, "2700m"), "{prices:?}");
    }
}

/// The answer about what it has become is outstanding for longer than a request can be under way.
#[test]
fn what_was_admitted_stays_charged_until_there_is_an_answer() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.say(&question, price(400), 10);
    let mut change = change(story.server.pod("a").clone(), 200);
    change.price = story.state.priced_now(NAMESPACE, price(900).unwrap());
    assert!(matches!(story.state.ask(&change, at(20)), Asked::Recording(_)));
    story.questions(30);
    story.server.resize_pod("a", 200);
    let mut silent = story.question(100);
    for second in 1..200 {
        story.state.on_outcome(super::evaluations::outcome(&silent, failure()), at(second * 1_000));
        if let Some(next) = story.questions(second * 1_000 + 500).pop() {
            silent = next;
        }
        assert_eq!(story.server.used(), "900m", "after {second} s");
    }
}

#[test]
fn a_resize_is_judged_by_what_evaluators_say_of_the_new_pod() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.say(&question, price(400), 10);
    let mut change = change(story.server.pod("a").clone(), 200);
    let asked = story.state.ask(&change, at(20));
    assert!(matches!(asked, Asked::Judged(Judgement::Undecided(_))), "nothing is guessed: {asked:?}");
    change.price = story.state.priced_now(NAMESPACE, price(1_001).unwrap());
    let asked = story.state.ask(&change, at(20));
    assert!(matches!(&asked, Asked::Judged(Judgement::Refused(why)) if why.contains("601m")), "{asked:?}");
    change.price = story.state.priced_now(NAMESPACE, price(900).unwrap());
    if let Some(priced) = &mut change.price {
        priced.revision -= 1;
    }
    let asked = story.state.ask(&change, at(20));
    assert!(matches!(asked, Asked::Judged(Judgement::Undecided(_))), "other evaluators said it: {asked:?}");
    change.price = story.state.priced_now(NAMESPACE, price(900).unwrap());
    assert!(matches!(story.state.ask(&change, at(20)), Asked::Recording(_)));
    story.questions(30);
    assert_eq!((story.answered.len(), story.server.used()), (1, "900m"));
    story.server.resize_pod("a", 200);
    let question = story.question(100);
    assert_eq!(story.server.used(), "900m", "until there is an answer about what it is now");
    story.say(&question, price(800), 200);
    story.questions(300);
    assert_eq!(story.server.used(), "800m");
}
