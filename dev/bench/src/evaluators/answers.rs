//! How many answers a second the controller's client has from a sidecar, about pods of 7 KB.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sluice_evaluators::{AskedSidecar, Config, EvaluatorState, Evaluators, OtherPods, Question};
use sluice_index::ViewKey;

use super::sidecar::{Sidecar, in_go};
use crate::pod_json::{Facts, Stage, Template};
use crate::report::{Run, say};

/// How long a sidecar may take to come.
const COMES: Duration = Duration::from_secs(20);
/// Questions that wait for each that is asked.
const ASKERS: usize = 2;

/// Of the SDK without work and with 1 ms of it, and of the stand-in in Go.
pub(super) async fn measure(run: &Run) -> anyhow::Result<Value> {
    let span = run.either(Duration::from_millis(300), Duration::from_secs(5));
    say("evaluators: answers per second");
    let (idle, works) = (Sidecar::start(Duration::ZERO)?, Sidecar::start(Duration::from_millis(1))?);
    let sdk = ask(idle.directory(), span).await.context("asking the evaluator of the SDK")?;
    let worked = ask(works.directory(), span).await.context("asking one that works for 1 ms")?;
    let directory = tempfile::tempdir().context("making a directory for an evaluator")?;
    let program = in_go(directory.path())?;
    let go = ask(directory.path(), span).await.context("asking the evaluator in Go")?;
    drop(program);
    Ok(json!({
        "sdk_per_s": sdk, "go_per_s": go, "worked_1_ms_per_s": worked,
        "concurrency": concurrency(), "pod_json_bytes": question()?.pod_json.len(), "seconds": span.as_secs_f64(),
    }))
}

fn concurrency() -> usize {
    Config::new("bench", "/").limits.concurrency
}

/// Asks the one with a socket in this directory for so long: answers per second.
async fn ask(directory: &Path, span: Duration) -> anyhow::Result<f64> {
    let evaluators = Arc::new(Evaluators::new(vec![Config::new("bench", directory)]));
    let mut states = evaluators.follow();
    let ready = states.wait_for(|states| states.iter().all(EvaluatorState::is_ready));
    drop(tokio::time::timeout(COMES, ready).await.context("it is not there")??);
    let question = question()?;
    let started = Instant::now();
    let askers = (0..concurrency() * ASKERS).map(|asker| {
        let question = Question { uid: format!("pod-{asker}").into(), ..question.clone() };
        let evaluators = Arc::clone(&evaluators);
        tokio::spawn(async move {
            let mut answers = 0_u32;
            while started.elapsed() < span {
                evaluators.ask(question.clone()).await.map_err(|failed| failed.failure.to_string())?;
                answers += 1;
            }
            Ok::<_, String>(answers)
        })
    });
    let mut answers = 0;
    for asker in askers.collect::<Vec<_>>() {
        answers += asker.await?.map_err(anyhow::Error::msg)?;
    }
    ensure!(answers > 0, "no answer in {span:?}");
    Ok(f64::from(answers) / started.elapsed().as_secs_f64())
}

fn question() -> anyhow::Result<Question> {
    let mut text = String::new();
    let facts = Facts { number: 7, namespace: 3, version: 99, shape: 30, stage: Stage::Running };
    Template::new().write(facts, &mut text);
    // The stand-in is about pods with this label.
    let text = text.replacen(r#""labels":{"#, r#""labels":{"label-app":"","#, 1);
    let view = ViewKey::default().view(&text)?;
    Ok(Question {
        uid: "u".into(),
        namespace: "t".into(),
        hash: view.hash,
        pod_json: view.json.into(),
        other_pods: OtherPods::default(),
        is_waiting: true,
        native: Arc::default(),
        counted: Arc::default(),
        rules: Arc::default(),
        sidecars: [AskedSidecar { place: 0, policy: Arc::default(), sees_other_pods: false }].into(),
    })
}
