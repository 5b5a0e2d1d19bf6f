//! Asks evaluators what a pod takes: sidecars by application-aware-quota's protocol, and rules of `Evaluator`s.
//!
//! ```text
//!  sluice_index::ViewKey: the API server's text ─▶ what is sent, and its hash
//!  discovery: a directory ─▶ one healthy process ─▶ link: one connection
//!                                                    │
//!  Evaluators::ask ─▶ dispatch: turns (whose turn) ──┴─▶ sluice_engine::evaluation ─▶ Verdict
//!                               breaker (whether at all)
//!  Evaluators::ask ─▶ rule: sluice_rules ─▶ Verdict
//! ```
//!
//! What is decided is pure and takes the time as an argument: [`discovery`], `turns`, `breaker`. A question has an answer,
//! or a [`Failure`] after the evaluator's deadline at the latest from its turn on; nothing is guessed and nothing retried:
//! whoever asks holds the pod and asks again, for example when [`Evaluators::follow`] shows a change.

#![warn(clippy::missing_errors_doc)]

mod breaker;
pub mod check;
mod config;
pub mod discovery;
mod dispatch;
mod evaluators;
mod examples;
mod failure;
mod judge;
mod link;
mod metrics;
mod other_pods;
mod policy;
mod question;
mod rule;
mod spec;
mod state;
mod times;
mod turns;

pub use config::Config;
pub use evaluators::Evaluators;
pub use examples::{EvaluatorError, check_evaluator, check_examples, check_rule};
pub use failure::{Failure, NotEvaluated, Who};
pub use judge::{Answered, judge_call};
pub use link::{CallError, Link};
pub use metrics::EvaluatorMetrics;
pub use other_pods::{MAX_REQUEST, OtherPods};
pub use policy::{Limits, SidecarPolicy};
pub use question::{AskedSidecar, Evaluated, Question, Verdict};
pub use rule::RuleEvaluator;
pub use state::{EvaluatorState, summary};
