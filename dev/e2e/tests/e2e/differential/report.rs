//! What was compared, and what did not agree.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// At most so many disagreements are printed; the rest is counted.
const SHOWN: usize = 20;

#[derive(Default)]
struct Tally {
    cases: usize,
    outcomes: BTreeMap<&'static str, usize>,
    disagreements: usize,
}

/// The result of a run.
pub struct Report {
    pub seed: u64,
    tally: Mutex<Tally>,
}

impl Report {
    pub fn new(seed: u64) -> Self {
        Self { seed, tally: Mutex::default() }
    }

    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A comparison that came out the same.
    pub fn agreed(&self, outcome: &'static str) {
        let mut tally = self.tally();
        tally.cases += 1;
        *tally.outcomes.entry(outcome).or_default() += 1;
    }

    /// Something that was sent and is no comparison.
    pub fn passed_over(&self, why: &'static str) {
        *self.tally().outcomes.entry(why).or_default() += 1;
    }

    /// A comparison that did not come out the same; everything is in `what`.
    pub fn disagreed(&self, what: &str) {
        let mut tally = self.tally();
        tally.cases += 1;
        tally.disagreements += 1;
        if tally.disagreements <= SHOWN {
            eprintln!("DISAGREEMENT (SLUICE_SEED={}): {what}\n", self.seed);
        }
    }

    /// Prints the counts; fails on any disagreement, or when too little was compared to mean anything.
    pub fn conclude(&self, cases: usize, at_least: &[(&str, usize)]) {
        let tally = self.tally();
        let seed = self.seed;
        for (outcome, count) in &tally.outcomes {
            println!("  {count:>5} {outcome}");
        }
        println!("differential: {} cases, seed {seed}", tally.cases);
        assert_eq!(tally.disagreements, 0, "engine and API server disagree, repeat with SLUICE_SEED={seed}");
        assert!(tally.cases >= cases, "only {} of {cases} cases were compared, seed {seed}", tally.cases);
        for (outcome, least) in at_least {
            let count = tally.outcomes.get(outcome).copied().unwrap_or(0);
            assert!(count >= *least, "only {count} of at least {least} cases of {outcome:?}, seed {seed}");
        }
    }
}
