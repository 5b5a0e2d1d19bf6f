//! What an evaluator does with input that is not as usual.

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message as _;
use sluice_evaluator_sdk::protocol::{Pod, PodUsageRequest, frame};

use super::session::Session;
use super::{Finding, Sample};
use crate::{CallError, MAX_REQUEST, OtherPods};

/// It may refuse each of these, and must answer and stay.
pub(super) async fn check(session: &mut Session) -> Vec<Finding> {
    let of = |json: &'static [u8]| {
        frame(&PodUsageRequest {
            pod: Some(Pod { pod_json: Bytes::from_static(json) }),
            pods_state: Vec::new(),
        })
    };
    let no_pod = PodUsageRequest { pod: None, pods_state: Vec::new() };
    let null_neighbour = PodUsageRequest {
        pod: Some(Pod { pod_json: Bytes::from_static(b"{}") }),
        pods_state: vec![Pod { pod_json: Bytes::from_static(b"null") }, Pod::default()],
    };
    let mut garbage = BytesMut::new();
    garbage.put_u8(0);
    garbage.put_u32(4);
    garbage.put_slice(b"\xff\xff\xff\xff");
    let cases = [
        ("a question without a pod", frame(&no_pod)),
        ("a pod that is no JSON", of(b"{")),
        ("an empty pod", of(b"")),
        ("a pod that is null", of(b"null")),
        ("a pod without fields", of(b"{}")),
        ("a pod with another type", of(br#"{"metadata": 7, "spec": []}"#)),
        ("other pods that are null", frame(&null_neighbour)),
        ("bytes that are no message", garbage.freeze()),
    ];
    let mut findings = Vec::new();
    for (tried, body) in cases {
        let answer = session.raw(body).await;
        let is_alive = session.is_alive().await;
        let seen = match (&answer, is_alive) {
            (_, false) => "it does not answer any more".to_owned(),
            (None, true) => "no answer within a second".to_owned(),
            (Some(Err(error)), true) => format!("refused: {error}"),
            (Some(Ok(said)), true) => match said.error.as_ref().filter(|error| error.error) {
                Some(error) => {
                    format!("error: {}", sluice_engine::evaluation::one_line(&error.error_message, 100))
                }
                None if said.r#match => "taken for a pod that it charges".to_owned(),
                None => "no match".to_owned(),
            },
        };
        findings.push(Finding::of(tried, is_alive && answer.is_some(), seen));
    }
    findings
}

/// The largest question that is ever sent has to be taken.
pub(super) async fn largest(session: &mut Session, samples: &[Sample]) -> Finding {
    let of = |sample: Option<&Sample>| sample.map(|sample| sample.json.clone()).unwrap_or_default();
    let pod = of(samples.first());
    let room = MAX_REQUEST - pod.len().min(MAX_REQUEST);
    let mut pods = Vec::new();
    let mut bytes = 0;
    for sample in samples.iter().cycle() {
        let size = PodUsageRequest { pod: None, pods_state: vec![Pod { pod_json: sample.json.clone() }] }
            .encoded_len();
        bytes += size;
        if bytes + 64 > room {
            break;
        }
        pods.push(sample.json.clone());
    }
    let usage = session.link.usage(&pod, &OtherPods::of(&pods));
    let answer = tokio::time::timeout(std::time::Duration::from_secs(10), usage).await;
    let (good, seen) = match answer {
        Ok(Ok(_)) => (true, format!("{} pods in {MAX_REQUEST} bytes are taken", pods.len())),
        Ok(Err(CallError::QuestionTooLarge(why))) => {
            (false, format!("refused, raise the limit of received messages to 4 MiB at least: {why}"))
        }
        Ok(Err(error)) => (false, error.to_string()),
        Err(_) => (false, "no answer within ten seconds".to_owned()),
    };
    if !good {
        session.is_alive().await;
    }
    Finding::of("the largest question", good, seen)
}
