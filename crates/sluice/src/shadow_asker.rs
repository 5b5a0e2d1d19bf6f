//! Asks the evaluators in the shadow.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use sluice_engine::Charge;
use sluice_engine::evaluation::Strategy;
use sluice_evaluators::{Answered, AskedSidecar, EvaluatorState, Evaluators, Failure, RuleEvaluator};
use sluice_gate::{AskShadows, EvaluatorQuestion, Opinion, SaidLater};

use crate::question::question_of;
use crate::sidecars::bit;

pub enum Tried {
    Rule(Arc<RuleEvaluator>),
    Sidecar(AskedSidecar),
}

/// Asks these, by their places in the shadow.
pub struct ShadowAsker {
    pub evaluators: Arc<Evaluators>,
    pub asked: Vec<Tried>,
}

impl AskShadows for ShadowAsker {
    fn ask(&self, places: &[usize], pod_json: &[u8], counted: &Charge) -> Vec<Opinion> {
        let rules = places.iter().filter_map(|place| match self.asked.get(*place)? {
            Tried::Rule(rule) => Some(&**rule),
            Tried::Sidecar(_) => None,
        });
        let rules: Vec<_> = rules.collect();
        let answers = self.evaluators.try_rules(rules.iter().copied(), pod_json, counted);
        answers.into_iter().zip(rules).map(|(answer, rule)| opinion_of(answer, rule.strategy())).collect()
    }

    fn ask_later(&self, question: EvaluatorQuestion) -> BoxFuture<'static, Vec<SaidLater>> {
        let selected = question.selected;
        let question = question_of(question);
        let asks = self.asked.iter().enumerate().filter_map(|(place, tried)| match tried {
            Tried::Sidecar(asked) if selected & bit(place) != 0 => {
                let strategy = asked.policy.rules().strategy;
                let answer = self.evaluators.try_sidecar(asked, &question);
                Some(answer.map(move |answer| {
                    let is_final = is_final(&answer);
                    SaidLater { place, opinion: opinion_of(answer, strategy), is_final }
                }))
            }
            _ => None,
        });
        join_all(asks.collect::<Vec<_>>()).boxed()
    }

    fn unreachable(&self) -> u16 {
        let states = self.evaluators.follow();
        let states = states.borrow();
        let is_one = |tried: &Tried| match tried {
            Tried::Sidecar(asked) => !states.get(asked.place).is_some_and(EvaluatorState::is_ready),
            Tried::Rule(_) => false,
        };
        let unreachable = self.asked.iter().enumerate().filter(|(_, tried)| is_one(tried));
        unreachable.fold(0, |bits, (place, _)| bits | bit(place))
    }
}

fn opinion_of(answer: Result<Answered, Failure>, strategy: Strategy) -> Opinion {
    match answer {
        Ok(Answered::NoMatch) => Opinion::NoMatch,
        Ok(Answered::Charge(charge)) => {
            Opinion::Charge { charge: charge.into(), retains: strategy == Strategy::Retain }
        }
        Err(_) => Opinion::None,
    }
}

/// Whether the same is said until the pod or the policy changes. What the sidecar itself says of a pod is asked for again
/// when it says that it cannot tell.
const fn is_final(answer: &Result<Answered, Failure>) -> bool {
    matches!(answer, Ok(_) | Err(Failure::Refused(_) | Failure::BadPolicy(_) | Failure::TooLarge { .. }))
}
