//! A cluster that stays up when the command has ended.
//!
//! Everything that the demo starts ends with the process that started it. So with `--keep` the story is played by
//! a child in a process group of its own (Ctrl-C does not reach it), which goes on when the command ends. Its
//! output comes through pipes: a reader of the command's output sees an end when the command ends.

use std::io::Write as _;
use std::process::Stdio;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use crate::screen::Size;
use crate::signals::{Interrupted, Signals};

/// The child's last byte (EOT): all is said, the command may end.
const END: u8 = 4;

/// How the command ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The child goes on without us.
    Detached,
    /// The child has ended with this code.
    Ended(u8),
}

/// Plays the story in a child.
///
/// # Errors
/// When the child cannot be started, and [`Interrupted`] when the user interrupts: then it has been stopped.
pub async fn run(arguments: &[String], size: Option<Size>, signals: &Signals) -> anyhow::Result<Outcome> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(arguments).arg("--in-background").process_group(0).stdin(Stdio::null());
    if let Some(size) = size {
        command.arg(format!("--terminal={size}"));
    }
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("starting the story")?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let stdout = child.stdout.take().context("the child has no output")?;
    let stderr = child.stderr.take().context("the child has no error output")?;
    let errors = tokio::spawn(relay(stderr, std::io::stderr()));
    let mut output = tokio::spawn(relay(stdout, std::io::stdout()));
    let interrupted = tokio::select! {
        ended = &mut output => return finish(ended.context("reading the story")??, child, errors).await,
        () = signals.came(1) => Err(Interrupted.into()),
    };
    if let Some(pid) = pid {
        // It may have ended just now.
        let _ = kill_process(pid, Signal::TERM);
    }
    child.wait().await.context("waiting for the story to end")?;
    interrupted
}

async fn finish(
    detached: bool,
    mut child: tokio::process::Child,
    errors: tokio::task::JoinHandle<std::io::Result<bool>>,
) -> anyhow::Result<Outcome> {
    if detached {
        return Ok(Outcome::Detached);
    }
    let status = child.wait().await.context("waiting for the story to end")?;
    // Processes that are just ending may hold its error output open for a moment; what it said is relayed.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(1), errors).await;
    Ok(Outcome::Ended(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Copies until the end of input or [`END`]; true for the latter.
async fn relay(mut from: impl AsyncRead + Unpin, mut to: impl std::io::Write) -> std::io::Result<bool> {
    let mut buffer = vec![0; 8192];
    loop {
        let count = from.read(&mut buffer).await?;
        let chunk = buffer.get(..count).unwrap_or_default();
        let text = chunk.strip_suffix(&[END]).unwrap_or(chunk);
        to.write_all(text)?;
        to.flush()?;
        if count == 0 || text.len() < count {
            return Ok(count != 0);
        }
    }
}

/// Tells the command that it may end. Nothing may be written afterwards: it would not be read.
///
/// # Errors
/// When the command is gone already.
pub fn detach() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(&[END]).and_then(|()| out.flush()).context("writing to standard output")
}

#[cfg(test)]
mod tests {
    use super::relay;

    #[tokio::test]
    async fn output_is_relayed_until_the_end() {
        let mut text = Vec::new();
        assert!(relay(&b"all is said\n\x04"[..], &mut text).await.unwrap());
        assert_eq!(text, b"all is said\n");
        assert!(!relay(&b"it failed"[..], &mut text).await.unwrap());
        assert_eq!(text, b"all is said\nit failed");
    }
}
