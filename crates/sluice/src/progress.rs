//! What is said while something takes long.

use std::time::{Duration, Instant};

/// So long nothing is said, and so long between two lines.
pub const QUIET: Duration = Duration::from_secs(2);

/// Where lines go.
pub type Say = fn(&str);

/// To standard error, for people.
pub fn to_stderr(line: &str) {
    eprintln!("{line}");
}

/// To the log of a process that has one.
pub fn to_log(line: &str) {
    tracing::info!(progress = line, "removing");
}

/// Lines, not too many of them.
#[derive(Debug)]
pub struct Progress {
    say: Say,
    last: Instant,
}

impl Progress {
    pub fn begin(say: Say) -> Self {
        Self { say, last: Instant::now() }
    }

    /// Says it unless something was said just now.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if self.last.elapsed() >= QUIET {
            self.last = Instant::now();
            (self.say)(&line());
        }
    }
}
