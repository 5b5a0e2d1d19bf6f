//! Exact decimal amounts with Kubernetes' text form (`docs/quota-semantics.md`, *Quantities*).

mod parse;
mod print;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// Nano-units in one unit.
pub const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// `n u m k M G T P E`: powers of 1000.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`: powers of 1024.
    BinarySi,
    /// `e3`, `e-3`: decimal exponents.
    DecimalExponent,
}

/// Why a text is not a quantity, or an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text has not the shape of a number with a suffix.
    #[error("parsing quantity: expected a number with an optional suffix, like 500m, 1.5 or 2Gi")]
    Malformed,
    /// The number stands before an unknown suffix.
    #[error(
        "parsing quantity: unknown suffix, use one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e<number>"
    )]
    Suffix,
    /// A suffix without any digit before it.
    #[error("parsing quantity: no digits before the suffix")]
    NoDigits,
    /// The decimal exponent is outside ±40.
    #[error("parsing quantity: the exponent must be between -40 and 40")]
    Exponent,
    /// The value does not fit 128-bit nano-units (about ±1.7e29 units).
    #[error("parsing quantity: the value is too large, the limit is about 1.7e29")]
    TooLarge,
    /// The text is longer than any sensible number.
    #[error("parsing quantity: the text is longer than 1024 bytes, write fewer digits")]
    TooLong,
    /// A sum or difference does not fit 128-bit nano-units.
    #[error("adding quantities: the result is too large, the limit is about 1.7e29")]
    Overflow,
}

/// An exact amount: a whole number of nano-units and the format it is written in.
///
/// `==`, ordering and hashing look at the value only, so `1` equals `1000m`; the format only decides
/// how the amount is printed. The verbatim text that the API keeps for some inputs is not kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Nothing, printed as `0`.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// A quantity of `nanos` nano-units.
    #[must_use]
    pub const fn from_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos, format }
    }

    /// A quantity of whole units.
    #[must_use]
    pub const fn from_units(units: i64, format: Format) -> Self {
        Self { nanos: units as i128 * NANOS_PER_UNIT, format }
    }

    /// Reads a text exactly as Kubernetes does (`docs/quota-semantics.md`, *Reading*), without allocating and in
    /// bounded time. White space is an error.
    ///
    /// Stricter than Kubernetes in three cases, each with its own error: exponents outside ±40,
    /// values outside 128-bit nano-units, texts of more than 1024 bytes.
    ///
    /// # Errors
    /// See [`QuantityError`].
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse::parse(text)
    }

    /// Reads the text of a JSON string or number: white space around it is ignored.
    ///
    /// # Errors
    /// See [`QuantityError`].
    pub fn parse_json_text(text: &str) -> Result<Self, QuantityError> {
        parse::check_len(text)?;
        parse::parse(text.trim())
    }

    /// The value in nano-units.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The format the quantity is written in.
    #[must_use]
    pub const fn format(self) -> Format {
        self.format
    }

    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the value is below 0.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether the value has no fraction.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// The exact sum, in the format of `self`, or of `other` if `self` is zero.
    ///
    /// # Errors
    /// [`QuantityError::Overflow`] outside 128-bit nano-units.
    pub fn checked_add(self, other: Self) -> Result<Self, QuantityError> {
        let nanos = self.nanos.checked_add(other.nanos).ok_or(QuantityError::Overflow)?;
        Ok(Self { nanos, format: self.result_format(other) })
    }

    /// The exact difference, with the format rule of [`Quantity::checked_add`].
    ///
    /// # Errors
    /// [`QuantityError::Overflow`] outside 128-bit nano-units.
    pub fn checked_sub(self, other: Self) -> Result<Self, QuantityError> {
        let nanos = self.nanos.checked_sub(other.nanos).ok_or(QuantityError::Overflow)?;
        Ok(Self { nanos, format: self.result_format(other) })
    }

    const fn result_format(self, other: Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}
