//! Literals, exact.

use cel::common::ast::LiteralValue;
use sluice_engine::Quantity;

use crate::node::Kind;
use crate::refusal::Refusal;

pub(crate) fn read(literal: &LiteralValue) -> Result<Kind, Refusal> {
    Ok(match literal {
        LiteralValue::Null => Kind::Null,
        LiteralValue::Boolean(value) => Kind::Bool(*value.inner()),
        LiteralValue::Int(value) => Kind::Int(*value.inner()),
        LiteralValue::String(value) => Kind::Text(value.inner().into()),
        LiteralValue::Double(value) => Kind::Amount(fraction(*value.inner())?),
        LiteralValue::UInt(_) => {
            return Err(Refusal::Literal { what: "an unsigned number", remedy: "leave out the u" });
        }
        LiteralValue::Bytes(_) => {
            return Err(Refusal::Literal { what: "a literal of bytes", remedy: "leave out the b" });
        }
    })
}

/// A number with a point, exact: its shortest text is what was written, if that has at most 15 digits.
fn fraction(value: f64) -> Result<Quantity, Refusal> {
    let text = value.to_string();
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let fractional = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    // Beyond nano-units a quantity would be rounded up.
    if digits > 15 || fractional > 9 {
        return Err(Refusal::Literal {
            what: "a number of more than 15 digits, or of more than 9 behind the point",
            remedy: "write fewer, or quantity('…')",
        });
    }
    Quantity::parse(&text)
        .map_err(|_| Refusal::Literal { what: "a number without end", remedy: "write quantity('…')" })
}
