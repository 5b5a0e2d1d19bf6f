//! What a namespace's objects say about it.

use std::sync::Arc;

/// The state of a namespace in words, for the conditions of what grants it head-room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// What the first migration lacks, in one sentence, and how many lack something.
    pub not_enough: Option<(Arc<str>, usize)>,
    /// Somebody forbids to write the status of a quota; what the API server said.
    pub forbidden: Option<Arc<str>>,
    /// It, or a quota that is exceeded, is excluded by an annotation.
    pub opted_out: bool,
}
