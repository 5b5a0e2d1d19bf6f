//! What is configured of an evaluator.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::evaluation::Rules;

/// An evaluator.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name, for messages and metrics.
    pub name: Arc<str>,
    /// The directory of its socket. Each evaluator has one of its own.
    pub directory: PathBuf,
    /// What it may charge.
    pub rules: Rules,
    /// How long an answer may take. 50 ms to 10 s are sensible.
    pub timeout: Duration,
    /// How many questions it has at once, at least 1.
    pub concurrency: usize,
}

impl Config {
    /// An evaluator with a deadline of one second, four questions at once and the usual rules.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, directory: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            directory: directory.into(),
            rules: Rules::default(),
            timeout: Duration::from_secs(1),
            concurrency: 4,
        }
    }
}
