//! How many pods each evaluator matches, and how many are held because it has no answer about them.

use std::sync::Arc;

use sluice_engine::PodId;

use super::Evaluations;
use crate::evaluators::MOST_EVALUATORS;
use crate::shadow::RuleFigures;

/// The evaluators that match a pod, and those because of which it is held, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    matched: u16,
    held: u16,
}

/// Invariant: these are the sums of what pods [are counted as](Known::counted).
#[derive(Debug, Default)]
pub struct Counts([Count; MOST_EVALUATORS]);

#[derive(Debug, Default)]
struct Count {
    matched: usize,
    held: usize,
}

impl Counts {
    fn replace(&mut self, before: Bits, after: Bits) {
        for (at, count) in self.0.iter_mut().enumerate() {
            let has = |bits: u16| usize::from(bits >> at & 1 == 1);
            count.matched = (count.matched + has(after.matched)).saturating_sub(has(before.matched));
            count.held = (count.held + has(after.held)).saturating_sub(has(before.held));
        }
    }
}

impl Evaluations {
    /// Counts the pod as what it is now.
    pub(super) fn count(&mut self, id: PodId) {
        let held = self.open.get(&id).filter(|open| open.is_waiting && open.failure.is_some());
        let held = held.map_or(0, |open| open.failed_by);
        let Some(known) = self.known.get_mut(id.0 as usize) else { return };
        let after = Bits { matched: known.matched & known.wanted, held };
        let before = std::mem::replace(&mut known.counted, after);
        if before != after {
            self.counts.replace(before, after);
        }
    }

    /// Of each that is in force.
    pub fn rule_figures(&self) -> Vec<(Arc<str>, RuleFigures)> {
        let Some(config) = self.config() else { return Vec::new() };
        let counts = config.evaluators.iter().zip(&self.counts.0).enumerate();
        let asked = counts.filter(|(at, _)| config.idle >> at & 1 == 0);
        let figures = asked.map(|(_, ((name, _), count))| {
            let Count { matched, held } = *count;
            (Arc::clone(name), RuleFigures { matched, held, shadow: None })
        });
        figures.collect()
    }
}
