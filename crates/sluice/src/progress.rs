//! What is said while something takes long.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

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

    /// Does the work, and says what is done for as long as nothing else was said.
    pub async fn while_doing<T>(&mut self, line: impl Fn() -> String, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            match timeout_at(self.last + QUIET, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.say(&line),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_lasts_is_told_of_every_two_seconds_since_the_last_line() {
        let mut progress = Progress::begin(|line| SAID.with_borrow_mut(|said| said.push(line.to_owned())));
        let begin = Instant::now();
        let line = || format!("{} s", begin.elapsed().as_secs());
        let lasts = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        progress.while_doing(line, lasts(1)).await;
        assert!(SAID.with_borrow(Vec::is_empty), "nothing is said of what is done soon");
        progress.while_doing(line, lasts(4)).await;
        assert_eq!(SAID.take(), ["2 s", "4 s"]);
    }
}
