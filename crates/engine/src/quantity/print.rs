//! Quantity to canonical text (`docs/quota-semantics.md`, *Writing*).

use std::fmt;

use super::{Format, NANOS_PER_UNIT, Quantity};

/// Exponent of the largest decimal suffix, `E`.
const LARGEST_SI: i32 = 18;

/// The canonical text. Beyond `E` and `Ei`, where servers up to 1.37 lose the magnitude, it is what
/// 1.38 prints: `1e21`, and a plain integer for binary amounts.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos();
        if nanos == 0 {
            return f.write_str("0");
        }
        let small = nanos.unsigned_abs() < 1024 * NANOS_PER_UNIT.unsigned_abs();
        match self.format() {
            Format::BinarySi if !small && self.is_integer() => binary(nanos / NANOS_PER_UNIT, f),
            Format::BinarySi | Format::DecimalSi => decimal(nanos, f),
            Format::DecimalExponent => {
                let (mantissa, exponent) = reduce(nanos);
                exponential(mantissa, exponent, f)
            }
        }
    }
}

/// Divides out factors of 1000; the exponent stays a multiple of 3.
fn reduce(nanos: i128) -> (i128, i32) {
    let (mut mantissa, mut exponent) = (nanos, -9);
    while mantissa % 1000 == 0 {
        mantissa /= 1000;
        exponent += 3;
    }
    (mantissa, exponent)
}

fn decimal(nanos: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mantissa, exponent) = reduce(nanos);
    let suffix = match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        0 => "",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        LARGEST_SI => "E",
        _ => return exponential(mantissa, exponent, f),
    };
    write!(f, "{mantissa}{suffix}")
}

fn exponential(mantissa: i128, exponent: i32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match exponent {
        0 => write!(f, "{mantissa}"),
        _ => write!(f, "{mantissa}e{exponent}"),
    }
}

fn binary(units: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mut mantissa, mut times) = (units, 0);
    while mantissa % 1024 == 0 {
        mantissa /= 1024;
        times += 1;
    }
    let suffix = match times {
        0 => "",
        1 => "Ki",
        2 => "Mi",
        3 => "Gi",
        4 => "Ti",
        5 => "Pi",
        6 => "Ei",
        _ => return write!(f, "{units}"),
    };
    write!(f, "{mantissa}{suffix}")
}
