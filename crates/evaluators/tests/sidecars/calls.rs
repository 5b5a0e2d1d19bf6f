use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message as _;
use serde_json::json;
use sluice_evaluator_sdk::protocol::{POD_USAGE, PodUsageResponse};
use sluice_evaluators::{Evaluators, Failure, OtherPods, Question, Verdict};

use crate::sidecar::{
    Sidecar, asked_by, charge, config, evaluators, golden, golden_bytes, label_charge, link, pod, programs,
    question, question_of, until_ready,
};

fn frame(message: &Bytes) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put(message.as_ref());
    frame.freeze()
}

#[tokio::test]
async fn golden_requests_have_golden_answers() {
    for program in programs() {
        let directory = tempfile::tempdir().unwrap();
        let _sidecar = Sidecar::of(program, directory.path(), "double");
        let link = link(directory.path()).await;
        let ask = |name: &'static str| link.raw(POD_USAGE, frame(&golden_bytes(name)));
        let expected = PodUsageResponse::decode(golden_bytes("example_double_answer_hex")).unwrap();
        assert_eq!(ask("request_podsState_empty").await.unwrap(), expected, "{program:?}");
        assert_eq!(ask("request_one_pod_two_in_podsState").await.unwrap(), expected, "{program:?}");
        let json = Bytes::from(golden("podJson"));
        let others = OtherPods::of(&[json.clone(), golden("otherPodJson").into()]);
        assert_eq!(link.usage(&json, &others).await.unwrap(), expected, "{program:?}");
        let other = link.usage(&golden("otherPodJson").into(), &OtherPods::default()).await.unwrap();
        assert_eq!(other, PodUsageResponse::decode(golden_bytes("example_no_match_answer_hex")).unwrap());
        assert_eq!(link.is_healthy(Duration::from_secs(5)).await, Some(Ok(true)), "{program:?}");
    }
}

#[tokio::test]
async fn a_pod_is_charged_what_the_evaluator_says() {
    for program in programs() {
        for (factor, is_double) in [("double", true), ("triple", false)] {
            let directory = tempfile::tempdir().unwrap();
            let _sidecar = Sidecar::of(program, directory.path(), factor);
            let evaluators = evaluators(directory.path());
            let charged = Ok(Verdict::Charge(label_charge(is_double).into()));
            assert_eq!(until_ready(&evaluators).await, 1);
            assert_eq!(evaluators.ask(question("a")).await.map(|said| said.verdict), charged, "{program:?}");
            let mut plain = pod("b");
            plain["metadata"]["labels"] = json!({});
            assert_eq!(
                evaluators.ask(question_of(&plain)).await.map(|said| said.verdict),
                Ok(Verdict::NoMatch),
                "{program:?}"
            );
        }
    }
}

#[tokio::test]
async fn ten_thousand_calls_run_over_one_connection() {
    for program in programs() {
        let directory = tempfile::tempdir().unwrap();
        let _sidecar = Sidecar::of(program, directory.path(), "double");
        let evaluators = Arc::new(evaluators(directory.path()));
        until_ready(&evaluators).await;
        let askers = (0..8).map(|asker| {
            let evaluators = evaluators.clone();
            tokio::spawn(async move {
                for n in 0..1_250 {
                    let verdict =
                        evaluators.ask(question(&format!("pod-{asker}-{n}"))).await.map(|said| said.verdict);
                    assert!(matches!(verdict, Ok(Verdict::Charge(_))), "{verdict:?}");
                }
            })
        });
        for asker in askers.collect::<Vec<_>>() {
            asker.await.unwrap();
        }
        assert_eq!(until_ready(&evaluators).await, 1, "the first connection");
    }
}

#[tokio::test]
async fn never_more_calls_than_configured() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &["--work", "2ms"]);
    let evaluators = Arc::new(evaluators(directory.path()));
    until_ready(&evaluators).await;
    let asks: Vec<_> =
        (0..200).map(|n| tokio::spawn(evaluators.ask(question(&format!("pod-{n}"))))).collect();
    for ask in asks {
        assert!(ask.await.unwrap().is_ok());
    }
    let most = evaluators.ask(question("calls")).await.map(|said| said.verdict);
    assert_eq!(most, Ok(Verdict::Charge(charge(&[("example.com/calls", "4")]).into())));
}

#[tokio::test]
async fn answers_of_several_evaluators_are_summed_or_nothing_is_charged() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _one = Sidecar::start(one.path(), &["--config", "double"]);
    let _two = Sidecar::start(two.path(), &["--config", "triple", "--error-for", "bad"]);
    let mut configs = vec![config(one.path()), config(two.path())];
    configs[1].name = "second".into();
    let evaluators = Evaluators::new(configs);
    let both = |name: &str| {
        let retains = asked_by(1, json!({"strategy": "Retain"}));
        Question { sidecars: [asked_by(0, json!({})), retains].into(), ..question(name) }
    };
    let mut states = evaluators.follow();
    states.wait_for(|states| states.iter().all(sluice_evaluators::EvaluatorState::is_ready)).await.unwrap();
    let sum = charge(&[
        ("cpu", "1500m"),
        ("memory", "1280Mi"),
        ("limits.memory", "2560Mi"),
        ("pods", "6"),
        ("count/pods", "5"),
    ]);
    let said = evaluators.ask(both("a")).await.unwrap();
    assert_eq!((said.verdict, said.sidecars, said.retains), (Verdict::Charge(sum.into()), 0b11, true));
    let failed = evaluators.ask(both("bad")).await.unwrap_err();
    assert_eq!(failed.to_string(), "evaluator second says \"no licence server for bad\"");
}

#[tokio::test]
async fn an_error_that_libsidecar_swallows_holds_the_pod() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &["--swallow-for", "bad"]);
    let evaluators = evaluators(directory.path());
    until_ready(&evaluators).await;
    let failed = evaluators.ask(question("bad")).await.unwrap_err();
    assert!(failed.to_string().contains("the list charges nothing"), "{failed}");
    assert!(evaluators.ask(question("good")).await.is_ok());
}

#[tokio::test]
async fn other_pods_that_are_too_many_for_the_evaluator_are_a_failure_of_that_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &[]);
    let evaluators = evaluators(directory.path());
    until_ready(&evaluators).await;
    let pods: Vec<Bytes> = (0..5_000).map(|n| pod(&format!("pod-{n}")).to_string().into()).collect();
    let mut large = question("a");
    large.other_pods = OtherPods::of(&pods);
    assert!(evaluators.ask(large.clone()).await.is_ok(), "what fits is taken");
    large.other_pods = OtherPods::of(&vec![Bytes::from(vec![b' '; 1 << 20]); 4]);
    let failed = evaluators.ask(large).await.unwrap_err();
    assert!(matches!(failed.failure, Failure::TooLarge { bytes } if bytes > 4 << 20), "{failed}");
    assert!(evaluators.ask(question("b")).await.is_ok());
}
