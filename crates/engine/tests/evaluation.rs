//! What answers of evaluators charge, and which are refused.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use sluice_engine::evaluation::{Floor, MAX_ANSWER, Refusal, Rules, Strategy as Kind, charge_of, combine};
use sluice_engine::{Amount, Charge, Quantity, Resource};

fn charge(pairs: &[(&str, &str)]) -> Charge {
    let pair = |(key, amount): &(&str, &str)| {
        (Resource::from_quota_key(key), Amount::from(Quantity::parse(amount).unwrap()))
    };
    Charge::from_pairs(pairs.iter().map(pair))
}

fn read(json: &str) -> Result<Charge, Refusal> {
    charge_of(json.as_bytes(), &Rules { floor: Floor::None, ..Rules::default() }, &Charge::default())
}

fn refused(json: &str) -> String {
    read(json).unwrap_err().to_string()
}

#[test]
fn amounts_are_strings_or_numbers() {
    let expected = charge(&[("cpu", "1500m"), ("example.com/license", "2"), ("limits.memory", "1Gi")]);
    let json = r#"{"requests.cpu": "1.5", "example.com/license": 2, "limits.memory": "1Gi"}"#;
    assert_eq!(read(json).unwrap(), expected);
    assert_eq!(read(r#"{"cpu": 1500e-3, "pods": 1E0}"#).unwrap(), charge(&[("cpu", "1500m"), ("pods", "1")]));
}

#[test]
fn names_of_one_number_take_the_larger_amount() {
    for json in [r#"{"cpu":"1","requests.cpu":"2"}"#, r#"{"requests.cpu":"2","cpu":"1"}"#, r#"{"cpu":"2"}"#] {
        assert_eq!(read(json).unwrap(), charge(&[("requests.cpu", "2")]), "{json}");
    }
    let pages = r#"{"hugepages-2Mi":"2Mi","requests.hugepages-2Mi":"4Mi"}"#;
    assert_eq!(read(pages).unwrap(), charge(&[("hugepages-2Mi", "4Mi")]));
}

#[test]
fn what_the_example_of_upstream_answers() {
    let json = r#"{"count/pods":"2","cpu":"500m","limits.memory":"1Gi","memory":"512Mi","pods":"2",
                   "requests.cpu":"500m","requests.memory":"512Mi"}"#;
    let expected = charge(&[
        ("count/pods", "2"),
        ("pods", "2"),
        ("cpu", "500m"),
        ("memory", "512Mi"),
        ("limits.memory", "1Gi"),
    ]);
    assert_eq!(read(json).unwrap(), expected);
}

#[test]
fn refusals_name_the_key_and_the_value() {
    for (json, said) in [
        (r#"{"requests.memory":"-1"}"#, "requests.memory: \"-1\": an amount must be 0 or more"),
        (r#"{"requests.memory":-1}"#, "requests.memory: -1: an amount must be 0 or more"),
        (
            r#"{"cpu":"1e30"}"#,
            "cpu: \"1e30\": parsing quantity: the value is too large, the limit is about 1.7e29",
        ),
        (r#"{"cpu":1e30}"#, "cpu: 1e30: parsing quantity: the value is too large, the limit is about 1.7e29"),
        (r#"{"cpu":"1e24"}"#, "cpu: \"1e24\": an amount must be at most about 2e22"),
        (r#"{"cpu":1e999999}"#, "cpu: 1e999999: parsing quantity: the exponent must be between -40 and 40"),
        (r#"{"cpu":null}"#, "cpu: null: expected a string or a number"),
        (r#"{"cpu":{"a":1}}"#, "cpu: {\"a\":1}: expected a string or a number"),
        (
            r#"{"cpu":""}"#,
            "cpu: \"\": parsing quantity: expected a number with an optional suffix, like 500m, 1.5 or 2Gi",
        ),
        (r#"{"cpu":"1","cpu":"1"}"#, "cpu: named twice"),
        (
            r#"{"a b":1}"#,
            "a b: not a name of a quota key, write one like requests.cpu or example.com/license",
        ),
        (r#"{"":1}"#, ": not a name of a quota key, write one like requests.cpu or example.com/license"),
        (
            r#"{"services":1}"#,
            "services: no quota limits pods by this key, write one like requests.cpu or example.com/license",
        ),
        ("7", "the list is not JSON of names and quantities: invalid type: integer `7`, expected an objec…"),
        ("{", "the list is not JSON of names and quantities: EOF while parsing an object at line 1 column 1"),
        ("{} {}", "the list is not JSON of names and quantities: trailing characters at line 1 column 4"),
        (r#"{"cpu":NaN}"#, "the list is not JSON of names and quantities: expected value at line 1 column 8"),
        ("", "the list is not JSON of names and quantities: EOF while parsing a value at line 1 column 0"),
    ] {
        let shown = refused(json);
        assert!(shown.starts_with(said.trim_end_matches('…')), "{json}: {shown}");
        assert!(shown.len() <= 250, "{json}: {shown}");
    }
    assert!(refused(r#"{"cpu":"NaN"}"#).starts_with("cpu: \"NaN\": parsing quantity"));
}

#[test]
fn too_much_is_refused() {
    let list = |names: usize| {
        let entries: Vec<String> = (0..names).map(|n| format!("\"example.com/n{n}\":1")).collect();
        format!("{{{}}}", entries.join(","))
    };
    assert_eq!(read(&list(64)).unwrap().len(), 64);
    assert_eq!(read(&list(65)), Err(Refusal::TooMany));
    let large = format!("{{\"cpu\":\"{}\"}}", "1".repeat(1 << 20));
    assert_eq!(read(&large), Err(Refusal::TooLarge { bytes: large.len() }));
    let long = format!("{{\"{}\":1}}", "a".repeat(MAX_ANSWER - 6));
    assert!(matches!(read(&long), Err(Refusal::IllegalName { name }) if name.len() <= 60));
    let deep = "[".repeat(MAX_ANSWER);
    assert!(matches!(read(&deep), Err(Refusal::NotJson(_))));
    let deep = format!("{{\"cpu\":{}", "[".repeat(MAX_ANSWER - 7));
    assert!(matches!(read(&deep), Err(Refusal::NotJson(_))));
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let rules = Rules::default();
    for bytes in [&b"{\"cpu\":\"\xff\"}"[..], b"{\"\xc3\x28\":1}", b"\xff", b"\0"] {
        assert!(
            matches!(charge_of(bytes, &rules, &Charge::default()), Err(Refusal::NotJson(_))),
            "{bytes:?}"
        );
    }
}

#[test]
fn control_characters_are_not_repeated() {
    let shown = refused(r#"{"a\u001b[2J\nb":1}"#);
    assert!(shown.starts_with("a\\u001b[2J\\u000ab: "), "{shown}");
}

#[test]
fn an_answer_below_the_floor_is_refused() {
    let native = charge(&[("cpu", "1"), ("pods", "1")]);
    let with = |floor, strategy, json: &str| {
        charge_of(json.as_bytes(), &Rules { floor, strategy, keys: None }, &native).map(|_| ())
    };
    for nothing in ["null", "{}", r#"{"cpu":"0"}"#] {
        assert_eq!(with(Floor::Positive, Kind::Replace, nothing), Err(Refusal::Nothing), "{nothing}");
        assert_eq!(with(Floor::None, Kind::Replace, nothing), Ok(()), "{nothing}");
        assert!(matches!(with(Floor::Native, Kind::Replace, nothing), Err(Refusal::BelowNative { .. })));
        assert_eq!(with(Floor::Native, Kind::Retain, nothing), Ok(()), "{nothing}");
    }
    assert_eq!(with(Floor::Native, Kind::Replace, r#"{"requests.cpu":1,"pods":1}"#), Ok(()));
    let below = with(Floor::Native, Kind::Replace, r#"{"cpu":"999m","pods":1}"#).unwrap_err().to_string();
    assert_eq!(below, "cpu: 999m: less than Kubernetes counts, 1, and floor is Native");
}

#[test]
fn only_allowed_keys_are_charged() {
    let keys = Some(BTreeSet::from([Resource::from_quota_key("example.com/license"), Resource::Cpu]));
    let rules = Rules { keys, ..Rules::default() };
    let read = |json: &str| charge_of(json.as_bytes(), &rules, &Charge::default());
    assert_eq!(read(r#"{"example.com/license":1}"#).unwrap(), charge(&[("example.com/license", "1")]));
    assert!(read(r#"{"requests.cpu":1}"#).is_ok(), "another name of an allowed key");
    assert_eq!(read(r#"{"pods":1}"#), Err(Refusal::NotAllowed { name: "pods".into() }));
}

#[test]
fn charges_of_several_are_summed_in_any_order() {
    let native = charge(&[("cpu", "1"), ("pods", "1")]);
    let (one, two) = (charge(&[("cpu", "2")]), charge(&[("cpu", "3"), ("example.com/license", "1")]));
    let sum = |list: &[(Kind, &Charge)]| combine(&native, list.iter().copied());
    assert_eq!(sum(&[]), None);
    assert_eq!(sum(&[(Kind::Replace, &one)]), Some(one.clone()));
    assert_eq!(sum(&[(Kind::Retain, &one)]), Some(charge(&[("cpu", "3"), ("pods", "1")])));
    let both = Some(charge(&[("cpu", "5"), ("example.com/license", "1")]));
    assert_eq!(sum(&[(Kind::Replace, &one), (Kind::Replace, &two)]), both);
    assert_eq!(sum(&[(Kind::Replace, &two), (Kind::Replace, &one)]), both);
    let retained = Some(charge(&[("cpu", "6"), ("example.com/license", "1"), ("pods", "1")]));
    assert_eq!(sum(&[(Kind::Retain, &one), (Kind::Replace, &two)]), retained);
    assert_eq!(sum(&[(Kind::Retain, &one), (Kind::Retain, &two)]), retained, "Kubernetes' count once");
    assert_eq!(
        sum(&[(Kind::Replace, &Charge::default())]),
        Some(Charge::default()),
        "exempt is not unmatched"
    );
}

/// Texts near to answers: pieces of right and wrong ones in any order.
fn answers() -> impl Strategy<Value = Vec<u8>> {
    let pieces = proptest::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\",
        "\"cpu\":",
        "\"requests.cpu\":",
        "\"pods\":",
        "\"example.com/l\":",
        "null",
        "true",
        "1",
        "-1",
        "\"1\"",
        "\"2Gi\"",
        "1e30",
        "\"1e999999\"",
        "\"-0\"",
        "0",
        "\"a b\":",
        "\u{0}",
        "\u{202e}",
        " ",
        "\"\\ud800\"",
        "1.5",
        "e",
        "NaN",
    ]);
    let near = proptest::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat().into_bytes());
    let objects = proptest::collection::vec(
        (
            proptest::sample::select(vec![
                "cpu",
                "requests.cpu",
                "pods",
                "memory",
                "example.com/a",
                "b/",
                "x",
            ]),
            "\"[0-9]{0,30}(\\.[0-9]{0,12})?(m|k|Ki|E|Ei|e-?[0-9]{1,3})?\"|-?[0-9]{1,30}",
        ),
        0..6,
    )
    .prop_map(|entries| {
        let entries: Vec<String> = entries.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        format!("{{{}}}", entries.join(",")).into_bytes()
    });
    prop_oneof![near, objects, proptest::collection::vec(any::<u8>(), 0..64)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10_000),
        ..ProptestConfig::default()
    })]

    /// Any bytes are a charge that keeps all promises, or a refusal that can be shown.
    #[test]
    fn any_answer_is_charged_or_refused(json in answers(), floor in 0_usize..3, retain: bool) {
        let floor = [Floor::None, Floor::Positive, Floor::Native][floor];
        let strategy = if retain { Kind::Retain } else { Kind::Replace };
        let native = charge(&[("cpu", "1"), ("pods", "1")]);
        match charge_of(&json, &Rules { strategy, floor, keys: None }, &native) {
            Ok(charge) => {
                prop_assert!(!charge.is_negative() && charge.len() <= 64);
                prop_assert!(charge.iter().all(|(_, amount)| *amount <= Amount::LIMIT));
                let total = combine(&native, [(strategy, &charge)]).unwrap();
                prop_assert!(total.covers(&charge));
                match floor {
                    Floor::None => {}
                    Floor::Positive => prop_assert!(charge.iter().any(|(_, amount)| *amount > Amount::ZERO)),
                    Floor::Native => prop_assert!(
                        native.iter().all(|(resource, least)| total.get(resource).unwrap_or(Amount::ZERO) >= *least)
                    ),
                }
            }
            Err(refusal) => {
                let shown = refusal.to_string();
                prop_assert!(shown.len() <= 300 && !shown.chars().any(char::is_control), "{}", shown);
            }
        }
    }
}
