//! Rules in CEL that say what a pod is charged (`docs/evaluators.md`, *Rules*).
//!
//! ```text
//!  text ─▶ guard (size, levels) ─▶ cel's parser ─▶ compile (what is not accepted is refused) ─▶ Rule
//!  Rule + pod + native charge ─▶ evaluate, within a budget of steps and made text ─▶ Outcome
//! ```
//!
//! The crate `cel` parses and nothing else: its interpreter has no budget, and it counts by floating point numbers where
//! amounts have to be exact. Its interpreter is the oracle of the differential test.

mod arithmetic;
mod bounds;
mod budget;
mod calls;
mod compile;
mod evaluate;
mod fault;
mod guard;
mod literals;
mod looks;
mod names;
mod node;
mod pattern;
mod place;
mod refusal;
mod rule;
mod value;

pub use bounds::{MAX_CHAIN, MAX_KEYS, MAX_LEN, MAX_LEVELS, MAX_MADE_BYTES, MAX_STEPS};
pub use fault::{EvaluationError, Fault};
pub use looks::Looks;
pub use place::{Field, Position};
pub use refusal::{CompileError, Refusal};
pub use rule::{Outcome, Rule, Spent};
