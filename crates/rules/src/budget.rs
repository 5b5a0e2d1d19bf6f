//! What one evaluation may take. The lengths of lists and texts in a pod are its owner's choice, so they are paid for.

use crate::bounds::{MAX_MADE_BYTES, MAX_STEPS};
use crate::fault::Fault;

/// Bytes of text that are compared in one step.
const BYTES_A_STEP: usize = 64;

/// What is spent so far.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    steps: u32,
    bytes: u32,
}

impl Budget {
    pub(crate) fn step(&mut self) -> Result<(), Fault> {
        self.steps(1)
    }

    pub(crate) fn steps(&mut self, steps: usize) -> Result<(), Fault> {
        self.steps = self.steps.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
        if self.steps > MAX_STEPS { Err(Fault::Steps) } else { Ok(()) }
    }

    /// Pays for looking at so many bytes of text.
    pub(crate) fn look_at(&mut self, bytes: usize) -> Result<(), Fault> {
        self.steps(bytes / BYTES_A_STEP)
    }

    /// Pays for text before it is made.
    pub(crate) fn make(&mut self, bytes: usize) -> Result<(), Fault> {
        self.look_at(bytes)?;
        self.bytes = self.bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.bytes > MAX_MADE_BYTES { Err(Fault::MadeBytes) } else { Ok(()) }
    }

    pub(crate) const fn spent(&self) -> (u32, u32) {
        (self.steps, self.bytes)
    }
}
