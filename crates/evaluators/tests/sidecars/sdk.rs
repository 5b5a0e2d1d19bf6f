//! Evaluators by the SDK.

use std::path::Path;

use sluice_evaluator_sdk::{Amount, Answer, Charge, Error, Evaluator, OtherPods, Pod, serve};
use sluice_evaluators::{Failure, Verdict};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::sidecar::{charge, evaluators, label_charge, pod, question, until, until_ready};

/// Twice what Kubernetes counts; errors, panics and other pods by the pod's name.
struct Double;

impl Evaluator for Double {
    fn evaluate(&self, pod: &Pod, others: &OtherPods) -> Result<Answer, Error> {
        let name = pod.object()?.metadata.name.as_deref().unwrap_or_default();
        match name {
            "unmatched" => return Ok(Answer::NoMatch),
            "error" => return Err(Error::new("no licence left, ask for one")),
            "panic" => panic!("a bug of the evaluator"),
            "others" => return Ok(Answer::charge([("example.com/others", others.len().to_string())])),
            _ => {}
        }
        let twice = |amount: &Amount| Amount::from_nanos(amount.nanos() * 2);
        let native = pod.native()?;
        Ok(Answer::from(&Charge::from_pairs(native.iter().map(|(key, it)| (key.clone(), twice(it))))))
    }
}

fn start(directory: &Path) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel();
    let directory = directory.to_owned();
    let server = tokio::spawn(async move {
        serve(Double, &directory, async { drop(stopped.await) }).await.unwrap();
    });
    (stop, server)
}

#[tokio::test]
async fn an_evaluator_of_the_sdk_answers() {
    let directory = tempfile::tempdir().unwrap();
    let (stop, server) = start(directory.path());
    let evaluators = evaluators(directory.path());
    until_ready(&evaluators).await;
    let charged = Ok(Verdict::Charge(label_charge(true).into()));
    assert_eq!(evaluators.ask(question("a")).await.map(|said| said.verdict), charged);
    assert_eq!(evaluators.ask(question("unmatched")).await.map(|said| said.verdict), Ok(Verdict::NoMatch));
    let failed = evaluators.ask(question("error")).await.unwrap_err();
    assert_eq!(failed.to_string(), "evaluator label says \"no licence left, ask for one\"");
    let failed = evaluators.ask(question("panic")).await.unwrap_err().failure;
    assert_eq!(failed, Failure::Error("the evaluator panicked, see its log".into()));
    assert_eq!(
        evaluators.ask(question("a")).await.map(|said| said.verdict),
        charged,
        "a panic ends one call"
    );

    let mut with_others = question("others");
    let json = pod("b").to_string().into();
    with_others.other_pods = sluice_evaluators::OtherPods::of(&[with_others.pod_json.clone(), json]);
    let verdict = evaluators.ask(with_others).await.map(|said| said.verdict);
    assert_eq!(verdict, Ok(Verdict::Charge(charge(&[("example.com/others", "2")]).into())));

    stop.send(()).unwrap();
    server.await.unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the socket is removed");
    until(&evaluators, |state| !state.is_ready()).await;
}

#[tokio::test]
async fn a_pod_that_is_no_pod_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (_stop, _server) = start(directory.path());
    let evaluators = evaluators(directory.path());
    until_ready(&evaluators).await;
    let mut wrong = question("a");
    for json in ["[]", "{", "{\"spec\":7}", ""] {
        wrong.pod_json = json.into();
        let failed = evaluators.ask(wrong.clone()).await.unwrap_err().to_string();
        assert!(failed.starts_with("evaluator label says \"reading the pod: "), "{json}: {failed}");
    }
}
