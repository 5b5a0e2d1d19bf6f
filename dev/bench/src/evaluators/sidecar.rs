//! Sidecars that the benches start: one of the SDK, in this process on a runtime of its own, and the stand-in in Go.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use sluice_evaluator_sdk::{Answer, Error, Evaluator, OtherPods, Pod, serve};
use sluice_testbed::{Program, artifacts};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// One of the SDK that charges every pod the same. It ends when this is dropped.
pub(super) struct Sidecar {
    directory: TempDir,
    answers: Arc<AtomicU64>,
    /// Ended in the background: a runtime cannot be dropped inside of another one.
    runtime: Option<Runtime>,
}

/// Takes so long for each answer.
struct Works {
    time: Duration,
    answers: Arc<AtomicU64>,
}

impl Evaluator for Works {
    fn evaluate(&self, _pod: &Pod, _others: &OtherPods) -> Result<Answer, Error> {
        if !self.time.is_zero() {
            std::thread::sleep(self.time);
        }
        self.answers.fetch_add(1, Ordering::Relaxed);
        Ok(Answer::charge([("pods", "1"), ("requests.cpu", "100m"), ("requests.memory", "64Mi")]))
    }
}

impl Sidecar {
    /// Listens when this returns, or very soon.
    pub(super) fn start(time: Duration) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("making a directory for an evaluator")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let answers = Arc::<AtomicU64>::default();
        let (works, path) = (Works { time, answers: Arc::clone(&answers) }, directory.path().to_owned());
        runtime.spawn(async move { serve(works, &path, std::future::pending()).await });
        Ok(Self { directory, answers, runtime: Some(runtime) })
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The argument of a controller that asks it.
    pub(super) fn argument(&self) -> String {
        argument(self.directory())
    }

    /// How many answers it has given.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The argument of a controller that asks an evaluator whose socket is to be there.
pub(super) fn argument(directory: &Path) -> String {
    format!("--evaluator=bench={}", directory.display())
}

/// The stand-in in Go for a sidecar of application-aware-quota: reads the pod and counts it as Kubernetes does, twice.
pub(super) fn in_go(directory: &Path) -> anyhow::Result<Program> {
    let program = tokio::task::block_in_place(artifacts::evaluator)?;
    let args = ["--dir".into(), directory.as_os_str().to_owned()];
    let env: [(&str, &str); 0] = [];
    Program::start("evaluator in Go", program, args, env, directory.join("log"))
}
