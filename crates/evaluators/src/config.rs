//! What is configured of an evaluator.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Limits;

/// An evaluator.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name, for messages and metrics.
    pub name: Arc<str>,
    /// The directory of its socket. Each evaluator has one of its own.
    pub directory: PathBuf,
    /// How it is asked until [others](crate::Evaluators::limit) are set.
    pub limits: Limits,
}

impl Config {
    /// An evaluator with the usual limits.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, directory: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), directory: directory.into(), limits: Limits::default() }
    }
}
