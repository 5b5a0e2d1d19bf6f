//! Text to quantity: one pass over at most 1024 bytes, no allocation (`docs/quota-semantics.md`, *Reading*).

use super::{Format, NANOS_PER_UNIT, Quantity, QuantityError};

/// Longest text that is looked at. A cluster is described by fewer digits.
const MAX_TEXT: usize = 1024;
/// Largest magnitude of a decimal exponent; beyond it nothing fits 128-bit nano-units anyway.
const MAX_EXPONENT: i64 = 40;
/// Kubernetes caps binary quantities, and only those, here.
const BINARY_CAP: u128 = i64::MAX as u128 * NANOS_PER_UNIT as u128;
/// With more integer digits than this a binary quantity is above the cap whatever its suffix.
const BINARY_CAP_DIGITS: usize = 19;

/// The factor that a suffix stands for.
#[derive(Clone, Copy)]
enum Scale {
    /// 10 to this power, in the given format.
    Ten(i64, Format),
    /// 2 to this power.
    Two(u32),
}

/// A number taken apart; `integer` has no leading zeros.
struct Number<'t> {
    negative: bool,
    has_digits: bool,
    integer: &'t [u8],
    fraction: &'t [u8],
}

pub(super) const fn check_len(text: &str) -> Result<(), QuantityError> {
    if text.len() > MAX_TEXT { Err(QuantityError::TooLong) } else { Ok(()) }
}

pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    check_len(text)?;
    if text.is_empty() {
        return Err(QuantityError::Malformed);
    }
    let (number, rest) = split_number(text.as_bytes());
    let scale = scale_of(check_suffix_shape(rest)?)?;
    if !number.has_digits {
        return no_digits(scale);
    }
    let magnitude = match scale {
        Scale::Ten(exponent, _) => decimal_nanos(&number, exponent)?,
        Scale::Two(exponent) => binary_nanos(&number, exponent),
    };
    let nanos = i128::try_from(magnitude).map_err(|_| QuantityError::TooLarge)?;
    let format = match scale {
        Scale::Ten(_, format) => format,
        // A binary amount below one unit can only be printed in decimal; Kubernetes changes it at once.
        Scale::Two(_) if nanos > 0 && nanos < NANOS_PER_UNIT => Format::DecimalSi,
        Scale::Two(_) => Format::BinarySi,
    };
    Ok(Quantity::from_nanos(if number.negative { -nanos } else { nanos }, format))
}

fn split_number(bytes: &[u8]) -> (Number<'_>, &[u8]) {
    let (negative, rest) = match bytes.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, bytes),
    };
    let (zeros, rest) = split_while(rest, |b| b == b'0');
    let (integer, rest) = split_while(rest, |b| b.is_ascii_digit());
    let (fraction, rest) = match rest.split_first() {
        Some((b'.', rest)) => split_while(rest, |b| b.is_ascii_digit()),
        _ => (&[][..], rest),
    };
    let has_digits = !(zeros.is_empty() && integer.is_empty() && fraction.is_empty());
    (Number { negative, has_digits, integer, fraction }, rest)
}

fn split_while(bytes: &[u8], keep: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|b| !keep(*b)).unwrap_or(bytes.len());
    bytes.split_at_checked(end).unwrap_or((bytes, &[]))
}

/// Letters, an optional sign and digits, up to the end.
fn check_suffix_shape(suffix: &[u8]) -> Result<&[u8], QuantityError> {
    let (_, rest) = split_while(suffix, |b| b"eEinumkKMGTP".contains(&b));
    let rest = match rest.split_first() {
        Some((b'+' | b'-', rest)) => rest,
        _ => rest,
    };
    if rest.iter().all(u8::is_ascii_digit) { Ok(suffix) } else { Err(QuantityError::Malformed) }
}

fn scale_of(suffix: &[u8]) -> Result<Scale, QuantityError> {
    let si = |exponent| Ok(Scale::Ten(exponent, Format::DecimalSi));
    match suffix {
        b"" => si(0),
        b"n" => si(-9),
        b"u" => si(-6),
        b"m" => si(-3),
        b"k" => si(3),
        b"M" => si(6),
        b"G" => si(9),
        b"T" => si(12),
        b"P" => si(15),
        b"E" => si(18),
        b"Ki" => Ok(Scale::Two(10)),
        b"Mi" => Ok(Scale::Two(20)),
        b"Gi" => Ok(Scale::Two(30)),
        b"Ti" => Ok(Scale::Two(40)),
        b"Pi" => Ok(Scale::Two(50)),
        b"Ei" => Ok(Scale::Two(60)),
        [b'e' | b'E', exponent @ ..] => {
            let exponent = std::str::from_utf8(exponent).ok().and_then(|text| text.parse::<i64>().ok());
            let exponent = exponent.ok_or(QuantityError::Suffix)?;
            if exponent.unsigned_abs() > MAX_EXPONENT.unsigned_abs() {
                return Err(QuantityError::Exponent);
            }
            Ok(Scale::Ten(exponent, Format::DecimalExponent))
        }
        _ => Err(QuantityError::Suffix),
    }
}

/// Kubernetes takes a suffix without digits for zero where its integer path is taken, and refuses it
/// where the big-number path is.
fn no_digits(scale: Scale) -> Result<Quantity, QuantityError> {
    match scale {
        Scale::Ten(exponent, format) if exponent >= -9 => Ok(Quantity::from_nanos(0, format)),
        Scale::Two(exponent) if exponent <= 40 => Ok(Quantity::from_nanos(0, Format::BinarySi)),
        _ => Err(QuantityError::NoDigits),
    }
}

/// Nano-units of `number` × 10^`exponent`, rounded away from zero.
fn decimal_nanos(number: &Number<'_>, exponent: i64) -> Result<u128, QuantityError> {
    let integer_digits = i64::try_from(number.integer.len()).map_err(|_| QuantityError::TooLarge)?;
    // So many leading digits are whole nano-units; the rest only decides the rounding.
    let whole = usize::try_from(integer_digits + exponent + 9).unwrap_or(0);
    let mut digits = number.integer.iter().chain(number.fraction).map(|b| u128::from(b - b'0'));
    let mut nanos: u128 = 0;
    for _ in 0..whole {
        let digit = digits.next().unwrap_or(0);
        nanos = nanos.checked_mul(10).and_then(|n| n.checked_add(digit)).ok_or(QuantityError::TooLarge)?;
    }
    let round_up = digits.any(|digit| digit != 0);
    nanos.checked_add(u128::from(round_up)).ok_or(QuantityError::TooLarge)
}

/// Nano-units of `number` × 2^`exponent`, rounded away from zero and capped.
fn binary_nanos(number: &Number<'_>, exponent: u32) -> u128 {
    if number.integer.len() > BINARY_CAP_DIGITS {
        return BINARY_CAP;
    }
    // At most 10^19 · 2^60 < 2^124.
    let units = number.integer.iter().fold(0_u128, |sum, b| sum * 10 + u128::from(b - b'0')) << exponent;
    if units > i64::MAX as u128 {
        return BINARY_CAP;
    }
    // Long multiplication of the fraction's digits, last digit first; what is left of the point is
    // carried out, what stays right of it only decides the rounding. carry < factor < 2^90.
    let factor = (NANOS_PER_UNIT as u128) << exponent;
    let mut carry = 0_u128;
    let mut round_up = false;
    for digit in number.fraction.iter().rev() {
        let product = u128::from(digit - b'0') * factor + carry;
        carry = product / 10;
        round_up |= !product.is_multiple_of(10);
    }
    (units * NANOS_PER_UNIT as u128 + carry + u128::from(round_up)).min(BINARY_CAP)
}
