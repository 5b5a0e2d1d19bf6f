//! How often a namespace is read for rounds while its evaluator does not work.

use std::collections::BTreeSet;

use super::evaluations::{failure, outcome, price};
use super::stories::{Story, at};
use crate::{Action, Failed, Price};

impl Story {
    /// All that is asked now is answered so. Returns how often the namespace is read, and notes whom is asked about.
    fn reads_with(
        &mut self,
        answer: fn() -> Result<Price, Failed>,
        asked: &mut Vec<String>,
        now: u64,
    ) -> usize {
        let mut reads = 0;
        loop {
            self.see_all(at(now));
            let actions = self.state.plan(at(now));
            if actions.is_empty() && self.state.next_due_ms(at(now)) != Some(0) {
                return reads;
            }
            for action in actions {
                reads += usize::from(matches!(action, Action::ReadRound(_)));
                match action {
                    Action::Evaluate(question) => {
                        asked.push(question.name.to_string());
                        self.state.on_outcome(outcome(&question, answer()), at(now));
                    }
                    action => self.act(action, at(now)),
                }
            }
        }
    }
}

/// Each round reads all pods of its namespace.
#[test]
fn a_namespace_is_read_ever_more_rarely_while_its_evaluator_does_not_work() {
    let mut story = Story::in_rounds();
    story.server.create_pod("runs", 100, 0);
    story.answer_all(100, 0);
    story.state.set_evaluators_broken(1, at(5_000));
    (0..30).for_each(|number| story.server.create_pod(&format!("waits-{number}"), 10, 0));
    let (mut reads, mut asked) = (0, Vec::new());
    for ms in (5_000..65_000).step_by(100) {
        // A pod changes all the time.
        story.relabel_as("runs", ms);
        reads += story.reads_with(failure, &mut asked, ms);
        if ms == 6_000 {
            asked.clear();
        }
    }
    assert!((5..15).contains(&reads), "{reads} times in a minute");
    // The one that is tried may be the one that the evaluator cannot stand.
    let tried: BTreeSet<_> = asked.iter().filter(|name| *name != "runs").collect();
    assert!(tried.len() >= 4, "{asked:?}");
    story.state.set_evaluators_broken(0, at(65_000));
    let after: usize =
        (65_000..68_000).step_by(100).map(|ms| story.reads_with(|| price(10), &mut asked, ms)).sum();
    assert_eq!((story.gated(), after > 0), (vec![], true));
}
