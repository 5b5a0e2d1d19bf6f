//! How many pods of 7 KB an evaluator answers for in a second, asked as the controller asks:
//! `cargo run --release -p sluice-evaluators --example speed -- <directory of its socket> [concurrency]`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sluice_evaluators::{AskedSidecar, Config, EvaluatorState, Evaluators, OtherPods, Question};
use sluice_index::ViewKey;

const SPAN: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().context("name the directory of the evaluator's socket")?;
    let concurrency = arguments.next().map_or(Ok(4), |number| number.parse())?;
    let mut config = Config::new("speed", directory);
    config.limits.concurrency = concurrency;
    let evaluators = Arc::new(Evaluators::new(vec![config]));
    evaluators.follow().wait_for(|states| states.iter().all(EvaluatorState::is_ready)).await?;

    let env: Vec<String> =
        (0..60).map(|n| format!(r#"{{"name":"VARIABLE_{n}","value":"{}"}}"#, "x".repeat(80))).collect();
    let pod = format!(
        r#"{{"metadata":{{"name":"a","namespace":"t","labels":{{"label-app":""}}}},"spec":{{"containers":[{{
        "name":"c","image":"i","env":[{}],"resources":{{"requests":{{"cpu":"1","memory":"1Gi"}}}}}}]}}}}"#,
        env.join(",")
    );
    let view = ViewKey::default().view(&pod)?;
    let question = Question {
        uid: "u".into(),
        namespace: "t".into(),
        hash: view.hash,
        pod_json: view.json.into(),
        other_pods: OtherPods::default(),
        is_waiting: true,
        native: Arc::default(),
        counted: Arc::default(),
        rules: Arc::default(),
        sidecars: [AskedSidecar { place: 0, policy: Arc::default(), sees_other_pods: true }].into(),
    };
    let started = Instant::now();
    let askers = (0..concurrency * 2).map(|asker| {
        let question = Question { uid: format!("pod-{asker}").into(), ..question.clone() };
        let evaluators = evaluators.clone();
        tokio::spawn(async move {
            let (mut answers, mut failures) = (0_u32, 0_u32);
            while started.elapsed() < SPAN {
                match evaluators.ask(question.clone()).await {
                    Ok(_) => answers += 1,
                    Err(_) => failures += 1,
                }
            }
            (answers, failures)
        })
    });
    let (mut answers, mut failures) = (0, 0);
    for asker in askers.collect::<Vec<_>>() {
        let (good, bad) = asker.await?;
        answers += good;
        failures += bad;
    }
    let rate = f64::from(answers) / started.elapsed().as_secs_f64();
    println!(
        "{} bytes, {concurrency} at once: {rate:.0} answers/s, {failures} failures",
        question.pod_json.len()
    );
    Ok(())
}
