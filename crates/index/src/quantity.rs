//! Quantities as they come: a string or a bare number (`x-kubernetes-int-or-string`).

use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The text of one quantity, not yet parsed: one that cannot be read must not make its object unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityText(pub String);

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = QuantityText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity: a string or a number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<QuantityText, E> {
                Ok(QuantityText(text.to_owned()))
            }
            fn visit_string<E: de::Error>(self, text: String) -> Result<QuantityText, E> {
                Ok(QuantityText(text))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<QuantityText, E> {
                Ok(QuantityText(number.to_string()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<QuantityText, E> {
                Ok(QuantityText(number.to_string()))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<QuantityText, E> {
                Ok(QuantityText(number.to_string()))
            }
            fn visit_unit<E: de::Error>(self) -> Result<QuantityText, E> {
                Ok(QuantityText("0".to_owned()))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A resource list in the order it came.
pub type ResourceTexts = Vec<(String, QuantityText)>;

/// For `#[serde(deserialize_with)]`: a map as a list; `null` is empty.
pub(crate) fn resource_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ResourceTexts, D::Error> {
    struct List;
    impl<'de> Visitor<'de> for List {
        type Value = ResourceTexts;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of resource names to quantities")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ResourceTexts, A::Error> {
            let mut list = Vec::with_capacity(map.size_hint().unwrap_or(4));
            while let Some(entry) = map.next_entry()? {
                list.push(entry);
            }
            Ok(list)
        }
        fn visit_unit<E: de::Error>(self) -> Result<ResourceTexts, E> {
            Ok(Vec::new())
        }
    }
    deserializer.deserialize_any(List)
}
