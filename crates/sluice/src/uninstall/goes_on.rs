//! Whether a removal goes on: another `AAQ` may end it.

/// Asked before each write of a step that has many.
pub(crate) type GoesOn<'a> = &'a (dyn Fn() -> bool + Sync);
