//! Orderly and disorderly ends: signals, and tasks whose death must end the process.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by the first SIGTERM or SIGINT.
///
/// A second signal is left alone: graceful shutdown is bounded by its own deadlines, and the kubelet follows up with
/// SIGKILL. Must be called inside a tokio runtime.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let cancel = CancellationToken::new();
    let told = cancel.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
        told.cancel();
    });
    Ok(cancel)
}

/// Error type that a supervised task may end with.
pub type TaskError = Box<dyn Error + Send + Sync>;

/// Why the process has to end.
#[derive(Debug, thiserror::Error)]
pub enum TaskEnded {
    /// A task that should run until shutdown came back without an error.
    #[error("task {name} ended without being asked to")]
    Early {
        /// Name given to [`Tasks::spawn`].
        name: &'static str,
    },
    #[error("task {name} failed: {source}")]
    Failed {
        /// Name given to [`Tasks::spawn`].
        name: &'static str,
        /// What it failed with.
        #[source]
        source: TaskError,
    },
    #[error("task {name} panicked")]
    Panicked {
        /// Name given to [`Tasks::spawn`].
        name: &'static str,
    },
    /// Tasks were still running when the grace period was over.
    #[error("tasks did not stop within {grace:?}: {names}")]
    Stuck {
        /// The grace period.
        grace: Duration,
        /// Their names, separated by commas.
        names: String,
    },
}

/// Named tasks that live as long as the process: the end of any one of them ends all.
#[derive(Debug, Default)]
pub struct Tasks {
    running: JoinSet<Result<(), TaskError>>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task. It is expected to end only after the token given to [`Tasks::supervise`] is cancelled.
    pub fn spawn<E>(&mut self, name: &'static str, task: impl Future<Output = Result<(), E>> + Send + 'static)
    where
        E: Into<TaskError>,
    {
        let handle = self.running.spawn(async move { task.await.map_err(Into::into) });
        self.names.insert(handle.id(), name);
    }

    /// Waits for `cancel` or for the first task that ends. Then cancels the rest and gives them `grace`; what is still
    /// running after that is aborted.
    ///
    /// # Errors
    /// The first reason to end other than `cancel`: a task that ended, failed, panicked, or did not end in time.
    pub async fn supervise(mut self, cancel: CancellationToken, grace: Duration) -> Result<(), TaskEnded> {
        let mut reason = None;
        let mut nothing_runs = false;
        tokio::select! {
            () = cancel.cancelled() => {}
            ended = self.running.join_next_with_id() => match ended {
                Some(ended) => reason = Some(self.explain(ended, cancel.is_cancelled())),
                None => nothing_runs = true,
            },
        }
        if nothing_runs {
            cancel.cancelled().await;
        }
        cancel.cancel();
        let mut reason = reason.flatten();
        if let Some(reason) = &reason {
            tracing::error!(error = %reason, "stopping because of a task");
        }
        let drained = tokio::time::timeout(grace, async {
            while let Some(ended) = self.running.join_next_with_id().await {
                let late = self.explain(ended, true);
                if reason.is_none() {
                    reason = late;
                }
            }
        })
        .await;
        if drained.is_err() {
            let mut names: Vec<_> = self.names.values().copied().collect();
            names.sort_unstable();
            self.running.abort_all();
            reason.get_or_insert(TaskEnded::Stuck { grace, names: names.join(", ") });
        }
        reason.map_or(Ok(()), Err)
    }

    fn explain(
        &mut self,
        ended: Result<(Id, Result<(), TaskError>), JoinError>,
        asked: bool,
    ) -> Option<TaskEnded> {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let name = self.names.remove(&id).unwrap_or("unnamed");
        match ended {
            Ok((_, Ok(()))) if asked => None,
            Ok((_, Ok(()))) => Some(TaskEnded::Early { name }),
            Ok((_, Err(source))) => Some(TaskEnded::Failed { name, source }),
            Err(_) => Some(TaskEnded::Panicked { name }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);

    fn until(cancel: &CancellationToken) -> impl Future<Output = Result<(), TaskError>> + Send + 'static {
        let cancel = cancel.clone();
        async move {
            cancel.cancelled().await;
            Ok(())
        }
    }

    #[tokio::test]
    async fn all_stop_when_asked() {
        let cancel = CancellationToken::new();
        let mut tasks = Tasks::new();
        tasks.spawn("one", until(&cancel));
        tasks.spawn("two", until(&cancel));
        cancel.cancel();
        tasks.supervise(cancel, GRACE).await.unwrap();
    }

    #[tokio::test]
    async fn one_end_ends_all() {
        let cancel = CancellationToken::new();
        let mut tasks = Tasks::new();
        tasks.spawn("steady", until(&cancel));
        tasks.spawn("watch", async { Err::<(), TaskError>("lost".into()) });
        let error = tasks.supervise(cancel.clone(), GRACE).await.unwrap_err();
        assert_eq!(error.to_string(), "task watch failed: lost");
        assert!(cancel.is_cancelled());
    }

    #[tokio::test]
    async fn a_silent_end_and_a_panic_are_named() {
        for (panics, want) in
            [(false, "task gate ended without being asked to"), (true, "task gate panicked")]
        {
            let mut tasks = Tasks::new();
            tasks.spawn("gate", async move {
                assert!(!panics);
                Ok::<(), TaskError>(())
            });
            let error = tasks.supervise(CancellationToken::new(), GRACE).await.unwrap_err();
            assert_eq!(error.to_string(), want);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_task_does_not_hold_the_process() {
        let cancel = CancellationToken::new();
        let mut tasks = Tasks::new();
        tasks.spawn("deaf", std::future::pending::<Result<(), TaskError>>());
        cancel.cancel();
        let error = tasks.supervise(cancel, GRACE).await.unwrap_err();
        assert_eq!(error.to_string(), "tasks did not stop within 5s: deaf");
    }

    #[tokio::test]
    async fn an_error_during_shutdown_is_reported() {
        let cancel = CancellationToken::new();
        let mut tasks = Tasks::new();
        let told = cancel.clone();
        tasks.spawn("flush", async move {
            told.cancelled().await;
            Err::<(), TaskError>("disk full".into())
        });
        cancel.cancel();
        let error = tasks.supervise(cancel, GRACE).await.unwrap_err();
        assert_eq!(error.to_string(), "task flush failed: disk full");
    }
}
