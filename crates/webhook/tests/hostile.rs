//! Bodies that no API server sends (reliability M3, M4).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use axum::http::StatusCode;
use common::{GATE, SERVE, STAMP, TENANT, VM_SIZE, request, review, send, service};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

fn deep(open: &str, close: &str, depth: usize) -> String {
    format!("{}{}", open.repeat(depth), close.repeat(depth))
}

#[rstest]
#[case::empty(String::new(), "admission request body is empty\n")]
#[case::space(" ".into(), "could not parse admission review request: ")]
#[case::no_json("hello".into(), "could not parse admission review request: ")]
#[case::truncated("{\"request\": {\"uid\": \"a".into(), "could not parse admission review request: ")]
#[case::two_documents("{} {}".into(), "could not parse admission review request: ")]
#[case::number("1".into(), "could not parse admission review request: ")]
#[case::null("null".into(), "could not parse admission review request: ")]
#[case::huge_number("1e999999999".into(), "could not parse admission review request: ")]
#[case::deep_arrays(deep("[", "]", 100_000), "could not parse admission review request: ")]
#[case::deep_request(format!("{{\"request\":{}}}", deep("[", "]", 100_000)), "could not parse admission review request: ")]
#[case::deep_unclosed("{\"a\":".repeat(100_000), "could not parse admission review request: ")]
#[case::deep_elsewhere(
    format!("{{\"extra\":{}}}", deep("[", "]", 100_000)),
    "admission review can't be used: request field is nil\n",
)]
#[case::no_request("{}".into(), "admission review can't be used: request field is nil\n")]
#[case::null_request("{\"request\":null}".into(), "admission review can't be used: request field is nil\n")]
#[case::text_request("{\"request\":\"x\"}".into(), "could not parse admission review request: ")]
#[case::no_uid("{\"request\":{}}".into(), "admission review can't be used: request.uid is empty\n")]
#[case::null_uid("{\"request\":{\"uid\":null}}".into(), "admission review can't be used: request.uid is empty\n")]
#[case::number_uid("{\"request\":{\"uid\":1}}".into(), "could not parse admission review request: ")]
#[case::duplicate_request(
    "{\"request\":{\"uid\":\"a\"},\"request\":{\"uid\":\"b\"}}".into(),
    "could not parse admission review request: ",
)]
#[case::duplicate_object(
    "{\"request\":{\"uid\":\"a\",\"object\":{},\"object\":{}}}".into(),
    "could not parse admission review request: ",
)]
#[case::other_kind(
    "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"request\":{\"uid\":\"a\"}}".into(),
    "could not parse admission review request: got kind \"Pod\"",
)]
#[case::other_version(
    "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v2\",\"request\":{\"uid\":\"a\"}}".into(),
    "could not parse admission review request: got kind",
)]
#[case::byte_order_mark("\u{feff}{}".into(), "could not parse admission review request: ")]
#[case::lone_surrogate("{\"request\":{\"uid\":\"\\ud800\"}}".into(), "could not parse admission review request: ")]
#[tokio::test]
async fn bodies_that_are_no_reviews(#[case] body: String, #[case] start: &str) {
    for path in [SERVE, VM_SIZE] {
        let (status, _, text) = send(service(), request(path, body.clone())).await;
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
        assert!(text.starts_with(start) && text.ends_with('\n'), "{text}");
    }
}

#[rstest]
#[case::invalid_utf8_in_uid(b"{\"request\":{\"uid\":\"\xff\"}}".to_vec())]
#[case::invalid_utf8_in_skipped_text(b"{\"x\":\"\xc3\x28\",\"request\":{\"uid\":\"a\"}}".to_vec())]
#[case::utf16(vec![0xff, 0xfe, b'{', 0, b'}', 0])]
#[case::gzip(vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0])]
#[case::zeros(vec![0; 4096])]
#[tokio::test]
async fn bodies_that_are_no_text(#[case] body: Vec<u8>) {
    let (status, _, text) = send(service(), request(SERVE, body)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.starts_with(b"could not parse admission review request: "));
}

/// Well-formed around something that is not: answered by a review that refuses and echoes the uid.
#[rstest]
#[case::object_null("CREATE", "null")]
#[case::object_text("CREATE", "\"x\"")]
#[case::deep_object("CREATE", &deep("[", "]", 100_000))]
#[case::deep_in_pod("CREATE", &format!("{{\"spec\":{{\"nodeName\":{}}}}}", deep("[", "]", 100_000)))]
#[case::duplicate_spec("CREATE", "{\"spec\":{},\"spec\":{\"nodeName\":\"n\"}}")]
#[case::duplicate_gates("UPDATE", "{\"spec\":{\"schedulingGates\":[],\"schedulingGates\":[]}}")]
#[case::unknown_operation("REPLACE", "{\"spec\":{}}")]
#[case::no_operation("", "{\"spec\":{}}")]
#[tokio::test]
async fn reviews_of_nonsense(#[case] operation: &str, #[case] object: &str) {
    let body = format!(
        "{{\"request\":{{\"uid\":\"u-1\",\"kind\":{{\"kind\":\"Pod\"}},\"operation\":\"{operation}\",\
         \"object\":{object},\"oldObject\":{object}}}}}"
    );
    let (status, _, body) = send(service(), request(SERVE, body)).await;
    assert_eq!(status, StatusCode::OK);
    let response = serde_json::from_slice::<Value>(&body).unwrap()["response"].take();
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("u-1"), &json!(false)));
    assert_eq!(response["status"]["code"], 400);
}

#[tokio::test]
async fn depth_in_fields_that_are_skipped_is_harmless() {
    let deep = deep("{\"a\":[", "]}", 50_000).replace("[]", "[1]");
    let body = format!(
        "{{\"request\":{{\"uid\":\"u-1\",\"kind\":{{\"kind\":\"Pod\"}},\"operation\":\"CREATE\",\
         \"options\":{deep},\"object\":{{\"spec\":{{\"containers\":{deep}}}}}}}}}"
    );
    let (_, _, body) = send(service(), request(SERVE, body)).await;
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["response"]["allowed"], true);
}

/// Any bytes: refused with 4xx, or answered by a review that refuses. Never 5xx, never a panic.
fn check_hostile(path: &str, body: Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (status, _, text) = runtime.block_on(send(service(), request(path, body)));
    if status == StatusCode::OK {
        let answer: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert!(answer["response"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
        assert!(answer["response"]["allowed"].is_boolean());
        assert!(answer["response"]["status"]["code"].is_u64());
    } else {
        assert!(status.is_client_error(), "{status}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes(body in proptest::collection::vec(any::<u8>(), 0..512)) {
        check_hostile(SERVE, body);
    }

    /// A real review with a few bytes overwritten or the end cut off reaches much deeper.
    #[test]
    fn damaged_reviews(
        kind in prop_oneof![Just("Pod"), Just("ApplicationAwareResourceQuota"), Just("AAQ"),
            Just("ApplicationAwareClusterResourceQuota")],
        operation in prop_oneof![Just("CREATE"), Just("UPDATE"), Just("DELETE")],
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        of_vms in any::<bool>(),
    ) {
        let object = json!({"metadata": {"annotations": {STAMP: "bob"}},
            "spec": {"schedulingGates": [{"name": GATE}], "hard": {"pods": "1"}, "scopes": ["BestEffort"]}});
        let mut body = serde_json::to_vec(&review(kind, operation, TENANT, &object, &object)).unwrap();
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()));
        }
        check_hostile(if of_vms { VM_SIZE } else { SERVE }, body);
    }
}
