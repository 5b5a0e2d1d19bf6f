//! Processes that outlive the one that started them, named so that a recycled pid is never hit.

use std::fs;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

/// A process for ever: pid, its start time and the boot in which that time counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid; the process leads a group of the same number.
    pub pid: i32,
    /// Start time in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub started: u64,
    /// The kernel's boot id.
    pub boot: String,
}

impl ProcessId {
    /// The process that has this pid now.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let pid = i32::try_from(pid).context("pid out of range")?;
        let (_, started) = stat(pid).with_context(|| format!("no process {pid}"))?;
        Ok(Self { pid, started, boot: boot_id() })
    }

    /// A process that had this pid and has ended.
    pub(crate) fn ended(pid: u32) -> Self {
        Self { pid: i32::try_from(pid).unwrap_or_default(), started: 0, boot: boot_id() }
    }

    /// True while this very process runs (a zombie does not).
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.boot == boot_id()
            && stat(self.pid).is_some_and(|(state, started)| state != 'Z' && started == self.started)
    }

    /// Sends a signal to the process group, if this very process still runs.
    pub(crate) fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        if self.is_alive() && kill_process_group(pid, signal).is_err() {
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills the process and waits until it is gone.
    ///
    /// # Errors
    /// When it still runs after ten seconds.
    pub async fn kill(&self) -> anyhow::Result<()> {
        self.signal(Signal::KILL);
        self.until_gone("a killed process to disappear").await
    }

    /// Asks the process to end, and kills it if it does not.
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub async fn end(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM);
        if self.until_gone("a process to end").await.is_ok() { Ok(()) } else { self.kill().await }
    }

    async fn until_gone(&self, what: &str) -> anyhow::Result<()> {
        let gone = || async { (!self.is_alive()).then_some(()) };
        crate::wait::eventually(std::time::Duration::from_secs(10), gone, what).await
    }
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// State letter and start time; the program's name in between may contain anything.
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_alive_and_another_start_time_is_not() {
        let own = ProcessId::of(std::process::id()).unwrap();
        assert!(own.is_alive());
        assert!(!ProcessId { started: own.started + 1, ..own.clone() }.is_alive());
        assert!(!ProcessId { boot: "another".into(), ..own }.is_alive());
    }
}
