//! Killed before and after each write of a window: whoever comes next puts everything right.

mod controller;
mod webhook;

use sluice_testbed::proxy::Action;

/// When a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// The request never reaches the API server.
    Before,
    /// The API server has done it; the process does not learn of it.
    After,
}

impl When {
    const BOTH: [Self; 2] = [Self::Before, Self::After];

    const fn action(self) -> Action {
        match self {
            Self::Before => Action::DropBefore,
            Self::After => Action::ApplyThenLoseResponse,
        }
    }
}
