//! The identity of an API object, kept small.

use std::fmt;

/// A `metadata.uid`.
///
/// Real API servers hand out UUIDs, which fit in 16 bytes; anything else is kept as it came. There is one of each pod, so it
/// is bytes and not a `u128`, which begins at multiples of 16.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Uid {
    /// A lower-case UUID in the usual 8-4-4-4-12 form.
    Uuid([u8; 16]),
    /// Any other text.
    Text(Box<str>),
}

impl Uid {
    /// Takes over a uid from the API.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        parse_uuid(text).map_or_else(|| Self::Text(text.into()), Self::from_number)
    }

    /// The UUID that is written as this number.
    #[must_use]
    pub const fn from_number(number: u128) -> Self {
        Self::Uuid(number.to_be_bytes())
    }
}

/// Only the exact text that [`fmt::Display`] gives back is taken as a UUID, so that no uid changes on
/// its way through.
fn parse_uuid(text: &str) -> Option<u128> {
    if text.len() != 36 {
        return None;
    }
    let mut value: u128 = 0;
    for (position, byte) in text.bytes().enumerate() {
        if matches!(position, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        value = (value << 4) | u128::from(digit);
    }
    Some(value)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(bytes) => {
                let value = u128::from_be_bytes(*bytes);
                write!(
                    f,
                    "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                    value >> 96,
                    (value >> 80) & 0xffff,
                    (value >> 64) & 0xffff,
                    (value >> 48) & 0xffff,
                    value & 0xffff_ffff_ffff
                )
            }
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_uuid_is_kept_in_sixteen_bytes() {
        let text = "0fea47ca-d9c6-4b0f-94cc-8bc03350d09a";
        assert!(matches!(Uid::parse(text), Uid::Uuid(_)));
        assert_eq!(Uid::parse(text).to_string(), text);
    }

    proptest! {
        #[test]
        fn no_text_changes(
            text in "[0-9a-fA-F-]{0,40}|.{0,40}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
        ) {
            prop_assert_eq!(Uid::parse(&text).to_string(), text);
        }

        #[test]
        fn uuids_are_ordered_as_their_text(a in any::<u128>(), b in any::<u128>()) {
            let (a, b) = (Uid::from_number(a), Uid::from_number(b));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }
}
