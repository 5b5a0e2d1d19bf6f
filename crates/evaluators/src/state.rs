//! What is told of evaluators.

use std::sync::Arc;

use tokio::sync::watch;

use crate::Failure;
use crate::discovery::{Absence, Presence};

/// What is told of an evaluator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluatorState {
    pub name: Arc<str>,
    /// The number of its incarnation, or why there is nobody to ask; `None`: it has not been looked for yet. Another number
    /// is another process, whose answers may differ.
    pub presence: Option<Result<u64, Absence>>,
    /// Why it is left alone: it is there and did not answer.
    pub breaker: Option<Failure>,
    /// What differed of late when it was asked the same twice.
    pub differs: Option<Arc<str>>,
}

impl EvaluatorState {
    /// Whether it is asked.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        matches!(self.presence, Some(Ok(_))) && self.breaker.is_none()
    }

    /// Why it is not asked.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        match &self.presence {
            Some(Err(absence)) => Some(Failure::NotThere(absence.clone())),
            _ => self.breaker.clone(),
        }
    }
}

/// One line about all of them: which answer, and why the others do not.
#[must_use]
pub fn summary(states: &[EvaluatorState]) -> String {
    let one = |state: &EvaluatorState| match state.failure() {
        Some(failure) => format!("{} {failure}", state.name),
        None if state.is_ready() => format!("{} answers", state.name),
        None => format!("{} is looked for", state.name),
    };
    states.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Where one evaluator tells its state.
pub(crate) struct Report {
    states: watch::Sender<Vec<EvaluatorState>>,
    place: usize,
}

impl Report {
    pub(crate) const fn new(states: watch::Sender<Vec<EvaluatorState>>, place: usize) -> Self {
        Self { states, place }
    }

    pub(crate) fn presence(&self, presence: &Presence) {
        let presence = match presence {
            Presence::Unknown => None,
            Presence::Absent(absence) => Some(Err(absence.clone())),
            Presence::Here(incarnation) => Some(Ok(incarnation.number)),
        };
        self.update(|state| state.presence = presence);
    }

    pub(crate) fn breaker(&self, breaker: Option<Failure>) {
        self.update(|state| state.breaker = breaker);
    }

    pub(crate) fn differs(&self, how: Option<Arc<str>>) {
        self.update(|state| state.differs = how);
    }

    fn update(&self, update: impl FnOnce(&mut EvaluatorState)) {
        self.states.send_if_modified(|states| {
            let Some(state) = states.get_mut(self.place) else { return false };
            let before = state.clone();
            update(state);
            *state != before
        });
    }
}
