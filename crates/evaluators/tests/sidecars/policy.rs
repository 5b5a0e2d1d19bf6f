//! Policies of sidecars: what they may answer, and how long and often they are asked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use sluice_evaluators::{AskedSidecar, Evaluators, Failure, Limits, OtherPods, Question, Verdict};

use crate::sidecar::{Sidecar, asked_by, charge, config, evaluators, question, until_ready};

/// What is said of a pod of which Kubernetes counts so much CPU, by a policy with these fields.
async fn said(evaluators: &Evaluators, name: &str, cpu: &str, fields: Value) -> Result<Verdict, String> {
    let counted = Arc::new(charge(&[("cpu", cpu)]));
    let asked = Question { sidecars: [asked_by(0, fields)].into(), counted, ..question(name) };
    evaluators.ask(asked).await.map(|said| said.verdict).map_err(|error| error.to_string())
}

#[tokio::test]
async fn what_it_may_answer_is_said_by_its_policy() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &["--swallow-for", "free"]);
    let evaluators = evaluators(directory.path());
    until_ready(&evaluators).await;
    // It charges twice what the pod requests, 250m.
    for (name, cpu, fields, refused) in [
        ("a", "500m", json!({}), None),
        ("a", "500m", json!({"floor": "Native"}), None),
        ("a", "501m", json!({}), None),
        (
            "a",
            "501m",
            json!({"floor": "Native"}),
            Some("less than Kubernetes counts, 501m, and floor is Native"),
        ),
        ("a", "501m", json!({"floor": "Native", "strategy": "Retain"}), None),
        ("free", "1", json!({}), Some("the list charges nothing")),
        ("free", "1", json!({"floor": "None"}), None),
        ("a", "1", json!({"keys": ["cpu", "memory", "limits.memory", "pods", "count/pods"]}), None),
        ("a", "1", json!({"keys": ["cpu"]}), Some("not among the keys that this evaluator may charge")),
        (
            "a",
            "1",
            json!({"keys": ["storage"]}),
            Some("has an Evaluator that cannot be used: spec.keys[0]: "),
        ),
    ] {
        let said = said(&evaluators, name, cpu, fields.clone()).await;
        match refused {
            None => assert!(said.is_ok(), "{fields}: {said:?}"),
            Some(why) => assert!(said.as_ref().is_err_and(|error| error.contains(why)), "{fields}: {said:?}"),
        }
    }
    let free = said(&evaluators, "free", "1", json!({"floor": "None"})).await;
    assert_eq!(free, Ok(Verdict::Charge(Arc::default())));
}

#[tokio::test]
async fn how_long_it_may_take_changes_while_it_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &["--mode", "hang"]);
    let evaluators = evaluators(directory.path());
    until_ready(&evaluators).await;
    for (name, millis) in [("a", 50), ("b", 100)] {
        let limits = Limits { timeout: Duration::from_millis(millis), ..Limits::default() };
        evaluators.limit(0, limits);
        let failed = evaluators.ask(question(name)).await.unwrap_err();
        assert_eq!(failed.failure, Failure::Silent(limits.timeout));
    }
}

#[tokio::test]
async fn how_much_it_is_asked_at_once_changes_while_it_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &["--work", "20ms"]);
    let evaluators = Arc::new(evaluators(directory.path()));
    until_ready(&evaluators).await;
    for (concurrency, most) in [(4, "4"), (9, "9"), (2, "9")] {
        let limits = Limits { concurrency, timeout: config(directory.path()).limits.timeout };
        evaluators.limit(0, limits);
        let asks: Vec<_> =
            (0..60).map(|n| tokio::spawn(evaluators.ask(question(&format!("pod-{n}"))))).collect();
        for ask in asks {
            assert!(ask.await.unwrap().is_ok());
        }
        let said = evaluators.ask(question("calls")).await.map(|said| said.verdict);
        assert_eq!(said, Ok(Verdict::Charge(charge(&[("example.com/calls", most)]).into())));
    }
}

#[tokio::test]
async fn who_looks_at_no_other_pods_is_sent_none() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &[]);
    let evaluators = evaluators(directory.path());
    until_ready(&evaluators).await;
    let other_pods = OtherPods::of(&vec![Bytes::from(vec![b' '; 1 << 20]); 4]);
    for (sees_other_pods, is_answered) in [(true, false), (false, true)] {
        let asked = AskedSidecar { sees_other_pods, ..asked_by(0, json!({})) };
        let asked = Question { sidecars: [asked].into(), other_pods: other_pods.clone(), ..question("a") };
        assert_eq!(evaluators.ask(asked).await.is_ok(), is_answered);
    }
}
