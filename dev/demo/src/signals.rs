//! Ctrl-C and its kin, counted: the first ends the story, the second ends the cleaning up.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The story was ended by a signal.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// How often the user asked the command to end.
#[derive(Clone, Debug)]
pub struct Signals(watch::Receiver<u32>);

impl Signals {
    /// Listens for SIGINT, SIGTERM and SIGHUP from now on; they no longer end the process by themselves.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn listen() -> anyhow::Result<Self> {
        let (count, counted) = watch::channel(0);
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut signals = signal(kind).context("listening for signals")?;
            let count = count.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    count.send_modify(|count| *count += 1);
                }
            });
        }
        Ok(Self(counted))
    }

    /// Returns when `times` signals came in all.
    pub async fn came(&self, times: u32) {
        let mut count = self.0.clone();
        if count.wait_for(|count| *count >= times).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
