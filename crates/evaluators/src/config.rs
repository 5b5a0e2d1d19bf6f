//! What is configured of an evaluator.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::Limits;

/// It costs an evaluator next to nothing, and one that never answers twice the same is found in seconds.
const REPEAT_EVERY: Duration = Duration::from_secs(10);

/// An evaluator.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name, for messages and metrics.
    pub name: Arc<str>,
    /// The directory of its socket. Each evaluator has one of its own.
    pub directory: PathBuf,
    /// How it is asked until [others](crate::Evaluators::limit) are set.
    pub limits: Limits,
    /// So often at most a question is asked once more, to see whether the answer is the same.
    pub repeat_every: Duration,
}

impl Config {
    /// An evaluator with the usual limits.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, directory: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            directory: directory.into(),
            limits: Limits::default(),
            repeat_every: REPEAT_EVERY,
        }
    }
}
