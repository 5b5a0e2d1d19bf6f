//! Inputs that are made to hurt: the answer is a clear error or the exact result.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use sluice_engine::charge::Amount;
use sluice_engine::pod::{ChargeRules, Container, PodInput, Resources, pod_charge};
use sluice_engine::quantity::{Format, Quantity, QuantityError};
use sluice_engine::resource::Resource;

#[test]
fn absurd_exponents_are_errors() {
    for text in [
        "1e2147483648",
        "2E6024865272343",
        "1e9223372036854775807",
        "1e-2147483647",
        "0e999999999",
        "1e41",
        "1e-41",
    ] {
        assert_eq!(Quantity::parse(text), Err(QuantityError::Exponent), "{text}");
    }
    assert_eq!(Quantity::parse("1e99999999999999999999"), Err(QuantityError::Suffix));
    assert_eq!(Quantity::parse("1e-40").unwrap().to_string(), "1e-9");
    assert_eq!(Quantity::parse("1e40"), Err(QuantityError::TooLarge));
}

#[test]
fn endless_texts_are_refused_by_their_length() {
    for part in ["9", "0", "1", "k", "e", " ", "-", ".", "é"] {
        let text = part.repeat(1 << 20);
        assert_eq!(Quantity::parse(&text), Err(QuantityError::TooLong), "{part}");
        assert_eq!(Quantity::parse_json_text(&text), Err(QuantityError::TooLong), "{part}");
        assert_eq!(Quantity::parse(&format!("0.{text}Ei")), Err(QuantityError::TooLong), "{part}");
    }
}

#[test]
fn long_texts_are_exact_or_too_large() {
    assert_eq!(Quantity::parse(&format!("{}7", "0".repeat(1_000))).unwrap().to_string(), "7");
    assert_eq!(Quantity::parse(&format!("-0.{}", "3".repeat(1_000))).unwrap().to_string(), "-333333334n");
    assert_eq!(Quantity::parse(&format!("0.{}1", "0".repeat(1_000))).unwrap().to_string(), "1n");
    assert_eq!(Quantity::parse(&format!("1.{}Ki", "0".repeat(1_000))).unwrap().to_string(), "1Ki");
    // 2^60 · 0.999…9 is the next whole nano-unit, and that is 2^60 itself.
    assert_eq!(Quantity::parse(&format!("0.{}Ei", "9".repeat(1_000))).unwrap().to_string(), "1Ei");
    assert_eq!(Quantity::parse(&"9".repeat(1_000)), Err(QuantityError::TooLarge));
    assert_eq!(Quantity::parse(&format!("{}e-40", "9".repeat(70))), Err(QuantityError::TooLarge));
    let capped = Quantity::parse(&format!("{}Ki", "9".repeat(1_000))).unwrap();
    assert_eq!(capped.to_string(), "9223372036854775807");
}

#[test]
fn the_largest_quantity_can_be_written() {
    let most = i128::MAX;
    let text = format!("{most}n");
    assert_eq!(Quantity::parse(&text).unwrap().nanos(), most);
    assert_eq!(Quantity::parse(&format!("-{text}")).unwrap().nanos(), -most);
    assert_eq!(Quantity::parse(&format!("{}n", most.unsigned_abs() + 1)), Err(QuantityError::TooLarge));
    for format in [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent] {
        for nanos in [i128::MIN, -most, most] {
            assert!(Quantity::from_nanos(nanos, format).to_string().len() < 50);
        }
    }
}

#[test]
fn absurd_requests_are_charged_at_the_limit_so_that_sums_stay_exact() {
    let huge = Quantity::from_nanos(i128::MAX, Format::DecimalSi);
    let list = || [("cpu", huge)].into_iter().collect();
    let container = Container {
        name: "a",
        resources: Resources { requests: list(), limits: list() },
        ..Container::default()
    };
    let pod = PodInput {
        containers: vec![container.clone(), container.clone()],
        init_containers: vec![container],
        overhead: list(),
        ..PodInput::default()
    };
    let charge = pod_charge(&pod, ChargeRules::for_minor(36), 0);
    assert_eq!(charge.get(&Resource::Cpu), Some(Amount::LIMIT));
    let sum = (0..8_000_000_i128).try_fold(Amount::ZERO, |sum, _| sum.checked_add(Amount::LIMIT));
    assert_eq!(sum.map(Amount::nanos), Amount::LIMIT.nanos().checked_mul(8_000_000));
}

#[test]
fn many_containers_with_many_names_are_summed_exactly() {
    let names: Vec<String> = (0..20_000).rev().map(|n| format!("example.com/r{n}")).collect();
    let one = Quantity::from_units(1, Format::DecimalSi);
    let containers = names.iter().map(|name| Container {
        name,
        resources: Resources {
            requests: [(name.as_str(), one), ("cpu", one)].into_iter().collect(),
            ..Resources::default()
        },
        ..Container::default()
    });
    let pod = PodInput { containers: containers.collect(), ..PodInput::default() };
    for minor in [36, 37] {
        let charge = pod_charge(&pod, ChargeRules::for_minor(minor), 0);
        assert_eq!(charge.len(), 20_000 + 3);
        assert_eq!(charge.get(&Resource::Cpu).map(Amount::nanos), Some(20_000 * one.nanos()));
    }
}
