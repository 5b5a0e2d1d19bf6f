//! What is said while something takes long.

use std::time::{Duration, Instant};

/// So long nothing is said, and so long between two lines.
const QUIET: Duration = Duration::from_secs(2);

/// Lines on standard error.
#[derive(Debug)]
pub struct Progress {
    last: Instant,
}

impl Progress {
    pub fn begin() -> Self {
        Self { last: Instant::now() }
    }

    /// Says it unless something was said just now.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if self.last.elapsed() >= QUIET {
            self.last = Instant::now();
            eprintln!("{}", line());
        }
    }
}
