use std::sync::Arc;
use std::time::Duration;

use sluice_evaluators::discovery::Absence;
use sluice_evaluators::{EvaluatorState, Evaluators, Failure, Verdict};

use crate::sidecar::{Sidecar, config, evaluators, question, question_in, until, until_ready};

const TIMEOUT: Duration = Duration::from_millis(500);

/// With a short deadline, so that tests of many deadlines are short.
fn impatient(directory: &std::path::Path) -> Arc<Evaluators> {
    let mut config = config(directory);
    config.limits.timeout = TIMEOUT;
    Arc::new(Evaluators::new(vec![config]))
}

async fn failure(evaluators: &Evaluators, name: &str) -> Failure {
    evaluators.ask(question(name)).await.unwrap_err().failure
}

#[tokio::test]
async fn an_evaluator_that_hangs_is_left_alone_and_another_process_is_tried_at_once() {
    for mode in ["hang", "slow"] {
        let directory = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::start(directory.path(), &["--mode", mode]);
        let evaluators = impatient(directory.path());
        until_ready(&evaluators).await;
        for n in 0..5 {
            assert_eq!(failure(&evaluators, &format!("pod-{n}")).await, Failure::Silent(TIMEOUT), "{mode}");
        }
        let state = until(&evaluators, |state| state.breaker.is_some()).await;
        assert_eq!(state.breaker, Some(Failure::Silent(TIMEOUT)));
        // Asked by nobody, and told at once: a thousand of them would take minutes.
        for n in 0..1_000 {
            assert_eq!(failure(&evaluators, &format!("more-{n}")).await, Failure::Silent(TIMEOUT));
        }
        sidecar.kill().await;
        let _sidecar = Sidecar::start(directory.path(), &[]);
        until_ready(&evaluators).await;
        assert!(evaluators.ask(question("pod-1")).await.is_ok(), "{mode}");
    }
}

#[tokio::test]
async fn an_evaluator_that_ends_at_each_call() {
    let directory = tempfile::tempdir().unwrap();
    let evaluators = impatient(directory.path());
    let mut sidecars = Vec::new();
    for n in 0..5 {
        sidecars.push(Sidecar::start(directory.path(), &["--mode", "crash"]));
        until(&evaluators, |state| matches!(state.presence, Some(Ok(_)))).await;
        assert_eq!(failure(&evaluators, &format!("pod-{n}")).await, Failure::Lost);
        // While it ends, its socket may still be connected to.
        until(&evaluators, |state| state.presence == Some(Err(Absence::NobodyListens))).await;
        let absent = Failure::NotThere(Absence::NobodyListens);
        assert_eq!(failure(&evaluators, "pod-0").await, absent, "told at once");
    }
    let _sidecar = Sidecar::start(directory.path(), &[]);
    until_ready(&evaluators).await;
    assert!(evaluators.ask(question("pod-1")).await.is_ok());
}

#[tokio::test]
async fn one_pod_that_is_never_answered_harms_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &["--hang-for", "poison"]);
    let evaluators = impatient(directory.path());
    until_ready(&evaluators).await;
    for n in 0..20 {
        assert_eq!(failure(&evaluators, "poison").await, Failure::Silent(TIMEOUT));
        for m in 0..10 {
            assert!(evaluators.ask(question(&format!("pod-{n}-{m}"))).await.is_ok());
        }
    }
    assert!(evaluators.follow().borrow()[0].is_ready());
    assert_eq!(
        until_ready(&evaluators).await,
        1,
        "the call keeps one slot of four, and the connection stays"
    );
}

#[tokio::test]
async fn errors_about_one_pod_are_answers() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &["--error-for", "bad"]);
    let evaluators = impatient(directory.path());
    until_ready(&evaluators).await;
    for n in 0..20 {
        let bad = question_in("t", "bad");
        let bad = sluice_evaluators::Question { uid: format!("bad-{n}").into(), ..bad };
        let failed = evaluators.ask(bad).await.unwrap_err().to_string();
        assert_eq!(failed, "evaluator label says \"no licence server for bad\"");
    }
    assert!(evaluators.follow().borrow()[0].is_ready(), "twenty pods with an error open nothing");
    assert!(evaluators.ask(question("good")).await.is_ok());
}

#[tokio::test]
async fn a_tenant_whose_pods_are_never_answered_does_not_hold_another() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &["--hang-for", "hangs"]);
    let evaluators = impatient(directory.path());
    until_ready(&evaluators).await;
    let flood: Vec<_> = (0..200)
        .map(|n| {
            let mut hangs = question_in("bad", "hangs");
            hangs.uid = format!("hangs-{n}").into();
            tokio::spawn(evaluators.ask(hangs))
        })
        .collect();
    for n in 0..50 {
        let verdict = evaluators.ask(question_in("good", &format!("pod-{n}"))).await.map(|said| said.verdict);
        assert!(matches!(verdict, Ok(Verdict::Charge(_))), "{n}: {verdict:?}");
    }
    for ask in flood {
        assert!(ask.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn after_a_restart_there_are_answers_again() {
    let directory = tempfile::tempdir().unwrap();
    let evaluators = Arc::new(evaluators(directory.path()));
    for _ in 0..3 {
        let sidecar = Sidecar::start(directory.path(), &[]);
        until_ready(&evaluators).await;
        let asks: Vec<_> =
            (0..50).map(|n| tokio::spawn(evaluators.ask(question(&format!("pod-{n}"))))).collect();
        for ask in asks {
            assert!(ask.await.unwrap().is_ok());
        }
        sidecar.kill().await;
        until(&evaluators, |state: &EvaluatorState| !state.is_ready()).await;
    }
}
