//! Why a pod could not be evaluated: one sentence each, the same in events, conditions and logs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::evaluation::{Refusal, one_line};

use crate::discovery::Absence;

/// Most bytes of a text of an evaluator that are repeated.
const SHOWN: usize = 200;
/// Most bytes of what is wrong with a rule.
const SAID: usize = 400;

/// Why an evaluator did not say what a pod takes. Each text says what to do. It is the same at each attempt, so that an
/// event with it is one event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no process to ask.
    #[error("is not there: {0}")]
    NotThere(Absence),
    /// No answer within the deadline.
    #[error("did not answer in {}, see its log, or make it faster", Seconds(*.0))]
    Silent(Duration),
    /// The answer cannot be charged.
    #[error("answered what cannot be charged: {0}")]
    Refused(Refusal),
    /// It says that it cannot tell. The text is the evaluator's, and may hold what another tenant wrote.
    #[error("says {0:?}")]
    Error(Shown),
    /// The question is larger than what it takes, or than what is ever sent.
    #[error(
        "cannot be asked: pod and namespace are {bytes} bytes, more than it takes, have fewer pods in it, or, if it does \
         not look at them, set spec.sidecar.otherPods: None in the Evaluator of its name"
    )]
    TooLarge {
        /// The size of the question.
        bytes: usize,
    },
    /// The answer is no answer of the protocol.
    #[error(
        "gave an answer that cannot be read: {0}, see whether it speaks application-aware-quota's protocol"
    )]
    Unreadable(Shown),
    /// The connection ended before the answer.
    #[error("ended the connection without an answer, see its log and whether its container restarts")]
    Lost,
    /// A rule has no answer about the pod.
    #[error("has no answer about this pod: {0}")]
    NoAnswer(Said),
    /// A rule cannot be used.
    #[error("has a rule that cannot be used: {0}")]
    Unusable(Said),
    /// The policy of a sidecar cannot be used.
    #[error("has an Evaluator that cannot be used: {0}")]
    BadPolicy(Said),
    /// More questions wait than are kept.
    #[error("has more questions than it answers, make it faster")]
    Busy,
}

/// A text of an evaluator: one line of at most 200 bytes, control characters escaped.
#[derive(Clone, PartialEq, Eq)]
pub struct Shown(Arc<str>);

impl From<&str> for Shown {
    fn from(text: &str) -> Self {
        Self(one_line(text, SHOWN).into())
    }
}

/// A text about a rule, which names field, place and remedy: one line of at most 400 bytes, control characters escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said(Arc<str>);

impl From<&str> for Said {
    fn from(text: &str) -> Self {
        Self(one_line(text, SAID).into())
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Quoted; what it holds is escaped already.
impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `1 s`, `50 ms`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(1000) { write!(f, "{} s", millis / 1000) } else { write!(f, "{millis} ms") }
    }
}

impl Failure {
    /// The value of the label `result` of `sluice_evaluator_requests_total`.
    #[must_use]
    pub const fn result(&self) -> &'static str {
        match self {
            Self::NotThere(_) => "not_there",
            Self::Silent(_) => "timeout",
            Self::Refused(_) => "refused",
            Self::Error(_) => "error",
            Self::TooLarge { .. } => "too_large",
            Self::Unreadable(_) => "unreadable",
            Self::Lost => "lost",
            Self::NoAnswer(_) => "no_answer",
            Self::Unusable(_) | Self::BadPolicy(_) => "unusable",
            Self::Busy => "busy",
        }
    }

    /// Whether the evaluator itself is in question, and not what it was asked: it answered nothing.
    pub(crate) const fn is_no_answer(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::Lost)
    }
}

/// A pod that has no valid answer of one of its evaluators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("evaluator {evaluator} {failure}")]
pub struct NotEvaluated {
    /// The evaluator's name.
    pub evaluator: Arc<str>,
    pub who: Who,
    pub failure: Failure,
    /// It is the same until the pod or the evaluator changes.
    pub is_final: bool,
}

/// Which of those that a question is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The rule at this place of [`Question::rules`](crate::Question::rules).
    Rule(u8),
    /// The sidecar at this place of [`Question::sidecars`](crate::Question::sidecars).
    Sidecar(u8),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_engine::evaluation::Refusal;

    use super::{Failure, NotEvaluated, Who};
    use crate::discovery::Absence;

    #[test]
    fn one_sentence_with_the_remedy() {
        let say = |failure| {
            NotEvaluated { evaluator: "label".into(), who: Who::Sidecar(0), failure, is_final: false }
                .to_string()
        };
        let negative = Refusal::Negative { name: "requests.memory".into(), value: "-1".into() };
        for (failure, said) in [
            (
                Failure::NotThere(Absence::NoSocket),
                "evaluator label is not there: its directory holds no socket, see whether its container runs",
            ),
            (
                Failure::Silent(Duration::from_secs(1)),
                "evaluator label did not answer in 1 s, see its log, or make it faster",
            ),
            (
                Failure::Refused(negative),
                "evaluator label answered what cannot be charged: requests.memory: -1: an amount must be 0 or more",
            ),
            (
                Failure::Refused(Refusal::Nothing),
                "evaluator label answered what cannot be charged: the list charges nothing, let the evaluator charge \
                 something or not match (its Evaluator may set floor: None)",
            ),
            (Failure::Error("no\nlicence".into()), "evaluator label says \"no\\u000alicence\""),
            (
                Failure::TooLarge { bytes: 5_000_000 },
                "evaluator label cannot be asked: pod and namespace are 5000000 bytes, more than it takes, \
                 have fewer pods in it, or, if it does not look at them, set spec.sidecar.otherPods: None in the \
                 Evaluator of its name",
            ),
        ] {
            assert_eq!(say(failure), said);
        }
        let long = say(Failure::Error("\u{1b}".repeat(10_000).as_str().into()));
        assert!(long.len() < 230 && !long.contains('\u{1b}'), "{long}");
    }
}
