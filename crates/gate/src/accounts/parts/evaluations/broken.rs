//! Which evaluators do not work, and since when.

use super::Evaluations;
use crate::evaluators::{EvaluatorsConfig, MOST_EVALUATORS};

/// So long an evaluator must not have worked before pods are counted natively (milliseconds).
const NATIVE_MS: u64 = 10_000;

/// By the places of evaluators, which sidecars keep in all configurations.
#[derive(Debug, Default)]
pub struct Broken([Option<u64>; MOST_EVALUATORS]);

impl Broken {
    /// These do not work, a bit for each. Returns those that work again.
    pub fn set(&mut self, broken: u16, now_ms: u64) -> u16 {
        let mut repaired = 0;
        for (place, since) in self.0.iter_mut().enumerate() {
            match (broken >> place & 1 == 1, &since) {
                (true, None) => *since = Some(now_ms),
                (false, Some(_)) => {
                    *since = None;
                    repaired |= 1 << place;
                }
                _ => {}
            }
        }
        repaired
    }

    /// Whether one of these does not work: then a question to all of them has no answer, unless it is the one by which it
    /// is tried.
    pub fn is_any_of(&self, selected: u16) -> bool {
        self.0.iter().enumerate().any(|(place, since)| since.is_some() && selected >> place & 1 == 1)
    }

    /// Those whose pods are counted natively.
    pub fn native(&self, config: &EvaluatorsConfig, now_ms: u64) -> u16 {
        self.due(config).filter(|(_, due)| *due <= now_ms).fold(0, |bits, (place, _)| bits | 1 << place)
    }

    /// When the first that is not among these is (milliseconds).
    pub fn next_due_ms(&self, config: &EvaluatorsConfig, native: u16) -> Option<u64> {
        self.due(config).filter(|(place, _)| native >> place & 1 == 0).map(|(_, due)| due).min()
    }

    fn due(&self, config: &EvaluatorsConfig) -> impl Iterator<Item = (usize, u64)> {
        let may_be = config.may_fail & !config.idle;
        let since = self.0.iter().enumerate().filter(move |(place, _)| may_be >> place & 1 == 1);
        since.filter_map(|(place, since)| Some((place, (*since)? + NATIVE_MS)))
    }
}

impl Evaluations {
    /// Whether a pod without an answer of these evaluators is charged what Kubernetes counts.
    pub fn counts_natively(&self, selected: u16) -> bool {
        selected & self.native != 0 && self.config().is_some_and(|config| selected & !config.may_fail == 0)
    }
}
