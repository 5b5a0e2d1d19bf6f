//! The bytes of the protocol are those of application-aware-quota: `HEX` holds what its generated code writes, and what its
//! example answered over a socket.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::fmt::Write as _;

use prost::Message;
use sluice_evaluator_sdk::protocol::{
    Error, HealthCheckRequest, HealthCheckResponse, Pod, PodUsageRequest, PodUsageResponse, ResourceList,
};

fn golden(name: &str) -> String {
    let all: serde_json::Value = serde_json::from_str(include_str!("golden.json")).unwrap();
    all[name].as_str().unwrap().to_owned()
}

fn hex(message: &impl Message) -> String {
    message.encode_to_vec().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn bytes(name: &str) -> Vec<u8> {
    let text = golden(name);
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn pod(name: &str) -> Pod {
    Pod { pod_json: golden(name).into() }
}

fn response(list: &str, matched: bool) -> PodUsageResponse {
    PodUsageResponse {
        resource_list: Some(ResourceList { resource_list_json: list.to_owned().into() }),
        r#match: matched,
        error: Some(Error::default()),
    }
}

#[test]
fn requests() {
    let mut request = PodUsageRequest { pod: Some(pod("podJson")), pods_state: vec![] };
    assert_eq!(hex(&request), golden("request_podsState_empty"));
    request.pods_state = vec![pod("podJson"), pod("otherPodJson")];
    assert_eq!(hex(&request), golden("request_one_pod_two_in_podsState"));
    assert_eq!(hex(&HealthCheckRequest {}), golden("health_request"));
}

#[test]
fn answers() {
    let list = golden("example_double_answer_list");
    for (name, answer) in [
        ("example_double_answer_hex", response(&list, true)),
        ("example_no_match_answer_hex", response("{}", false)),
        ("response_match", response(r#"{"requests.cpu":"500m","pods":"1"}"#, true)),
        ("response_match_null_list", response("null", true)),
        ("response_no_match", response("{}", false)),
    ] {
        assert_eq!(hex(&answer), golden(name), "{name}");
        assert_eq!(PodUsageResponse::decode(bytes(name).as_slice()).unwrap(), answer, "{name}");
    }
    let error = Error { error: true, error_message: "no licence server".into() };
    let answer = PodUsageResponse { resource_list: None, r#match: false, error: Some(error) };
    assert_eq!(hex(&answer), golden("response_error"));
    assert_eq!(hex(&HealthCheckResponse { healthy: true }), golden("health_response_true"));
    assert_eq!(hex(&HealthCheckResponse { healthy: false }), golden("health_response_false"));
}
