//! Quantities against what Kubernetes 1.36.3 answers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod common;

use common::{quantity, rows};
use sluice_engine::quantity::{Format, NANOS_PER_UNIT, Quantity, QuantityError};

fn format_name(format: Format) -> &'static str {
    match format {
        Format::DecimalSi => "DSI",
        Format::BinarySi => "BSI",
        Format::DecimalExponent => "DEX",
    }
}

fn error_name(error: QuantityError) -> &'static str {
    match error {
        QuantityError::Malformed => "ErrFormatWrong",
        QuantityError::Suffix => "ErrSuffix",
        QuantityError::NoDigits => "ErrNumeric",
        QuantityError::Exponent => "!Exponent",
        other => panic!("no vector expects {other}"),
    }
}

/// Nano-units of a plain decimal number.
fn exact_nanos(number: &str) -> i128 {
    let (sign, digits) = number.strip_prefix('-').map_or((1, number), |digits| (-1, digits));
    let (integer, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let integer: i128 = integer.parse().unwrap();
    let fraction: i128 = format!("{fraction:0<9}").parse().unwrap();
    sign * (integer * NANOS_PER_UNIT + fraction)
}

#[test]
fn texts_are_read_and_printed_as_kubernetes_does() {
    let rows = rows("quantity_parse.tsv");
    assert_eq!(rows.len(), 172);
    for row in rows {
        let (number, input, outcome) = (&row[0], &row[1], &row[2]);
        let own = row.get(5).map(String::as_str);
        match Quantity::parse(input) {
            Err(error) => assert_eq!(error_name(error), own.unwrap_or(outcome), "row {number}"),
            Ok(read) => {
                assert_eq!(format_name(read.format()), outcome, "row {number}");
                assert_eq!(read.to_string(), own.unwrap_or(&row[3]), "row {number}");
                assert_eq!(read.nanos(), exact_nanos(&row[4]), "row {number}");
            }
        }
    }
}

#[test]
fn json_texts_are_trimmed() {
    let rows = rows("quantity_json.tsv");
    assert_eq!(rows.len(), 11);
    for row in rows {
        match Quantity::parse_json_text(&row[0]) {
            Err(_) => assert_eq!(row[1], "!", "{row:?}"),
            Ok(read) => {
                assert_eq!(read.to_string(), row[1]);
                assert_eq!(format_name(read.format()), row[2]);
            }
        }
    }
}

#[test]
fn sums_and_differences_have_the_value_and_format_of_kubernetes() {
    let rows = rows("quantity_arithmetic.tsv");
    assert_eq!(rows.len(), 28);
    for row in rows {
        let (left, right) = (quantity(&row[0]), quantity(&row[2]));
        let result = if row[1] == "+" { left.checked_add(right) } else { left.checked_sub(right) };
        let result = result.unwrap();
        assert_eq!(result.to_string(), row[3], "{row:?}");
        assert_eq!(format!("{:?}", result.format()).to_lowercase(), row[4].to_lowercase(), "{row:?}");
    }
}

#[test]
fn a_zero_takes_the_format_of_what_is_added() {
    let zero = quantity("1Gi").checked_sub(quantity("1Gi")).unwrap();
    assert_eq!(zero.format(), Format::BinarySi);
    let sum = zero.checked_add(quantity("5k")).unwrap();
    assert_eq!((sum.to_string().as_str(), sum.format()), ("5k", Format::DecimalSi));
    let negative = Quantity::default().checked_sub(quantity("1Gi")).unwrap();
    assert_eq!((negative.to_string().as_str(), negative.format()), ("-1Gi", Format::BinarySi));
}

#[test]
fn comparison_is_by_value() {
    for row in rows("quantity_compare.tsv") {
        let sign = quantity(&row[0]).cmp(&quantity(&row[1])) as i8;
        assert_eq!(sign.to_string(), row[2], "{row:?}");
    }
}

#[test]
fn beyond_the_largest_suffix_the_magnitude_is_kept() {
    let eight = quantity("8Ei").checked_add(quantity("1")).unwrap();
    let sum = (0..128).try_fold(Quantity::ZERO, |sum, _| sum.checked_add(eight)).unwrap();
    assert_eq!(sum.to_string(), "1180591620717411303424");
    assert_eq!(quantity("1e24").checked_add(quantity("1E")).unwrap().to_string(), "1000001e18");
    assert_eq!(quantity("12000E").to_string(), "12e21");
}

#[test]
fn ten_thousand_of_the_largest_binary_quantity_add_up() {
    let largest = quantity("8Ei");
    let sum = (0..10_000).try_fold(Quantity::ZERO, |sum, _| sum.checked_add(largest)).unwrap();
    assert_eq!(sum.nanos(), i128::from(i64::MAX) * 10_000 * NANOS_PER_UNIT);
    let most = Quantity::from_nanos(i128::MAX, Format::DecimalSi);
    assert_eq!(most.checked_add(quantity("1n")), Err(QuantityError::Overflow));
}
