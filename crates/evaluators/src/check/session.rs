//! A connection that is made again when the evaluator has ended it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use sluice_engine::evaluation::Rules;
use sluice_evaluator_sdk::protocol::{POD_USAGE, PodUsageResponse};
use tokio::net::UnixStream;

use super::{CallError, Finding, NotReached, PodRow, Sample};
use crate::judge::judge_call;
use crate::{Failure, Link, OtherPods};

/// Deadline of a call.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// How long a process that has ended is waited for: a supervisor may start it again.
const RESTART: Duration = Duration::from_secs(2);

pub(super) struct Session {
    socket: PathBuf,
    pub(super) link: Link,
    /// It did not come again when it was waited for.
    is_gone: bool,
}

impl Session {
    pub(super) async fn open(socket: &Path) -> Result<Self, NotReached> {
        let connect = |source| NotReached::Connect { path: socket.to_owned(), source };
        let stream = UnixStream::connect(socket).await.map_err(connect)?;
        let link = Link::over(stream).await.map_err(|error| unhealthy(socket, &error.to_string()))?;
        Ok(Self { socket: socket.to_owned(), link, is_gone: false })
    }

    pub(super) async fn health(&self) -> Result<Finding, NotReached> {
        match self.link.is_healthy(TIMEOUT).await {
            None => Err(unhealthy(&self.socket, "no answer within a second")),
            Some(Err(error)) => Err(unhealthy(&self.socket, &error.to_string())),
            Some(Ok(true)) => Ok(Finding::of("health", true, "it is healthy".to_owned())),
            Some(Ok(false)) => Ok(Finding::of(
                "health",
                false,
                "it says that it is not healthy, so nobody asks it".to_owned(),
            )),
        }
    }

    /// Whether it still answers, over this or another connection.
    pub(super) async fn is_alive(&mut self) -> bool {
        if self.link.is_healthy(TIMEOUT).await.is_some_and(|answer| answer.is_ok()) {
            return true;
        }
        // Nothing tells when an evaluator that has crashed listens again, so connections are tried.
        let again = async {
            loop {
                match Self::open(&self.socket).await {
                    Ok(session) => return session,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        // Once is enough: the check is to end.
        let patience = if self.is_gone { Duration::ZERO } else { RESTART };
        match tokio::time::timeout(patience, again).await {
            Ok(session) => (self.link, self.is_gone) = (session.link, false),
            Err(_) => self.is_gone = true,
        }
        false
    }

    pub(super) async fn row(&mut self, sample: &Sample, others: &OtherPods) -> PodRow {
        let row = ask(&self.link, sample, others).await;
        if row.is_no_answer {
            self.is_alive().await;
        }
        row
    }

    /// The same question several times at once.
    pub(super) async fn rows(&mut self, sample: &Sample, times: usize) -> Vec<PodRow> {
        let none = OtherPods::default();
        let rows = join_all((0..times).map(|_| ask(&self.link, sample, &none))).await;
        if rows.iter().any(|row| row.is_no_answer) {
            self.is_alive().await;
        }
        rows
    }

    /// Any bytes as a message; `None`: no answer in time.
    pub(super) async fn raw(&self, body: Bytes) -> Option<Result<PodUsageResponse, CallError>> {
        tokio::time::timeout(TIMEOUT, self.link.raw(POD_USAGE, body)).await.ok()
    }
}

fn unhealthy(socket: &Path, why: &str) -> NotReached {
    NotReached::Health { path: socket.to_owned(), why: why.to_owned() }
}

async fn ask(link: &Link, sample: &Sample, others: &OtherPods) -> PodRow {
    let call = tokio::time::timeout(TIMEOUT, link.usage(&sample.json, others)).await;
    let size = sample.json.len() + others.bytes().len();
    let said = match call {
        Ok(result) => judge_call(result, &Rules::default(), &sample.native, size),
        Err(_) => Err(Failure::Silent(TIMEOUT)),
    };
    PodRow::of(sample, said)
}
