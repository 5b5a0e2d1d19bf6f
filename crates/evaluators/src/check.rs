//! Tries an evaluator without a cluster: `sluice evaluator check`.

mod input;
mod report;
mod samples;
mod session;
mod speed;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sluice_engine::Charge;
use sluice_evaluator_sdk::Pod;
use sluice_index::ViewKey;

use crate::{CallError, OtherPods};

pub use report::{Finding, PodRow, Report, Speed};
pub use samples::generated;

use self::session::Session;

/// Calls after which an answer has to be the same.
const REPEATS: usize = 5;
/// Calls at once after which it has to be.
const AT_ONCE: usize = 8;

/// The evaluator cannot be reached at all.
#[derive(Debug, thiserror::Error)]
pub enum NotReached {
    /// Nobody answers on the socket.
    #[error("could not connect to {path}: {source}")]
    Connect { path: PathBuf, source: std::io::Error },
    /// The connection is of no use.
    #[error("could not ask {path} for its health: {why}")]
    Health { path: PathBuf, why: String },
}

/// A pod to ask about.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What it is called in the report.
    pub name: Arc<str>,
    /// It as it is sent.
    pub json: Bytes,
    /// What Kubernetes counts.
    pub native: Arc<Charge>,
}

impl Sample {
    /// A pod of its JSON, as the API server has it.
    ///
    /// # Errors
    /// With what is wrong with it.
    pub fn new(name: impl Into<Arc<str>>, json: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(json).map_err(|error| error.to_string())?;
        let view = ViewKey::default().view(text);
        let json = Bytes::from(view.map_err(|error| format!("reading the JSON of a pod: {error}"))?.json);
        let native = Pod::new(json.clone()).native().map_err(|error| error.text().to_owned())?;
        Ok(Self { name: name.into(), json, native: Arc::new(native) })
    }
}

/// Tries the evaluator behind `socket` with these pods. `progress` is told what is tried.
///
/// # Errors
/// When it cannot be reached.
pub async fn check(socket: &Path, samples: &[Sample], progress: impl Fn(&str)) -> Result<Report, NotReached> {
    let mut session = Session::open(socket).await?;
    let mut report = Report::default();
    progress("health");
    report.findings.push(session.health().await?);
    progress(&format!("{} pods", samples.len()));
    for sample in samples {
        report.pods.push(session.row(sample, &OtherPods::default()).await);
    }
    let refused = report.pods.iter().filter(|row| row.error.is_some()).count();
    report.findings.push(Finding::of(
        "pods",
        refused == 0,
        format!("{} of {} pods have a valid answer", samples.len() - refused, samples.len()),
    ));
    progress("the same answer again");
    report.findings.push(same_again(&mut session, samples, &report.pods).await);
    progress("whether other pods matter");
    report.findings.push(others_matter(&mut session, samples, &report.pods).await);
    progress("wrong input");
    report.findings.extend(input::check(&mut session).await);
    progress("the largest question");
    report.findings.push(input::largest(&mut session, samples).await);
    for at_once in speed::AT_ONCE {
        progress(&format!("speed, {at_once} at once"));
        report.speeds.extend(speed::measure(&mut session, at_once).await);
    }
    Ok(report)
}

async fn same_again(session: &mut Session, samples: &[Sample], rows: &[PodRow]) -> Finding {
    let mut differing = Vec::new();
    // Without an answer there is nothing to compare, and waiting for each once more takes minutes.
    for (sample, row) in samples.iter().zip(rows).filter(|(_, row)| !row.is_no_answer) {
        let mut is_same = true;
        for _ in 1..REPEATS {
            is_same &= session.row(sample, &OtherPods::default()).await.says_same(row);
        }
        let at_once = session.rows(sample, AT_ONCE).await;
        is_same &= at_once.iter().all(|other| other.says_same(row));
        if !is_same {
            differing.push(&*sample.name);
        }
    }
    let text = match differing.as_slice() {
        [] => format!("each answer is the same {REPEATS} times and {AT_ONCE} at once"),
        differing => format!("other answers to the same question: {}", differing.join(", ")),
    };
    Finding::of("determinism", differing.is_empty(), text)
}

async fn others_matter(session: &mut Session, samples: &[Sample], rows: &[PodRow]) -> Finding {
    let pods: Vec<Bytes> = samples.iter().map(|sample| sample.json.clone()).collect();
    let others = OtherPods::of(&pods);
    let mut differing = Vec::new();
    for (sample, row) in samples.iter().zip(rows).filter(|(_, row)| !row.is_no_answer) {
        if !session.row(sample, &others).await.says_same(row) {
            differing.push(&*sample.name);
        }
    }
    let text = match differing.as_slice() {
        [] => "no: spec.sidecar.otherPods: None in its Evaluator makes questions small and few".to_owned(),
        differing => format!("yes, keep spec.sidecar.otherPods: Namespace: {}", differing.join(", ")),
    };
    Finding::of("other pods matter", true, text)
}
