//! From the JSON of an answer to amounts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::refusal::Refusal;
use super::text::one_line;
use super::{MAX_ANSWER, MAX_NAMES};
use crate::charge::Amount;
use crate::quantity::Quantity;
use crate::resource::{Resource, consumed_by_pods, is_qualified_name};

/// Most bytes of a name and of a value that a refusal repeats.
const SHOWN: usize = 60;

/// One amount per resource. Memory is bounded by the size of the text.
pub(super) fn amounts(
    json: &[u8],
    keys: Option<&BTreeSet<Resource>>,
) -> Result<BTreeMap<Resource, Amount>, Refusal> {
    if json.len() > MAX_ANSWER {
        return Err(Refusal::TooLarge { bytes: json.len() });
    }
    let mut list = List { keys, names: BTreeSet::new(), amounts: BTreeMap::new(), refusal: None };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let read = deserializer.deserialize_any(&mut list).and_then(|()| deserializer.end());
    match (list.refusal, read) {
        (Some(refusal), _) => Err(refusal),
        (None, Ok(())) => Ok(list.amounts),
        (None, Err(error)) => Err(Refusal::NotJson(one_line(&error.to_string(), SHOWN).into_owned())),
    }
}

struct List<'k> {
    keys: Option<&'k BTreeSet<Resource>>,
    names: BTreeSet<String>,
    amounts: BTreeMap<Resource, Amount>,
    /// serde carries texts only.
    refusal: Option<Refusal>,
}

impl List<'_> {
    fn add(&mut self, name: String, value: &RawValue) -> Result<(), Refusal> {
        let shown = || one_line(&name, SHOWN).into_owned();
        if self.names.len() >= MAX_NAMES {
            return Err(Refusal::TooMany);
        }
        if !is_qualified_name(&name) {
            return Err(Refusal::IllegalName { name: shown() });
        }
        if !consumed_by_pods(&name) {
            return Err(Refusal::NotOfPods { name: shown() });
        }
        let resource = Resource::from_quota_key(&name);
        if self.keys.is_some_and(|keys| !keys.contains(&resource)) {
            return Err(Refusal::NotAllowed { name: shown() });
        }
        if self.names.contains(&name) {
            return Err(Refusal::Twice { name: shown() });
        }
        let amount = amount(shown(), value.get())?;
        self.names.insert(name);
        // `cpu` and `requests.cpu` are one number. The larger answer counts, so that no quota is charged too little.
        self.amounts.entry(resource).and_modify(|it| *it = amount.max(*it)).or_insert(amount);
        Ok(())
    }
}

fn amount(name: String, json: &str) -> Result<Amount, Refusal> {
    let value = || one_line(json, SHOWN).into_owned();
    let text = match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(json).map_err(|error| error.to_string()),
        Some(b'-' | b'0'..=b'9') => Ok(json.to_owned()),
        _ => Err("expected a string or a number".to_owned()),
    };
    let quantity = text.and_then(|text| Quantity::parse_json_text(&text).map_err(|error| error.to_string()));
    let quantity = match quantity {
        Ok(quantity) => quantity,
        Err(why) => return Err(Refusal::NotAQuantity { value: value(), name, why }),
    };
    if quantity.is_negative() {
        return Err(Refusal::Negative { value: value(), name });
    }
    let amount = Amount::from(quantity);
    if amount > Amount::LIMIT { Err(Refusal::AboveLimit { value: value(), name }) } else { Ok(amount) }
}

impl<'de> Visitor<'de> for &mut List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of quantities, or null")
    }

    /// Go writes an empty list as `null`.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            if let Err(refusal) = self.add(name, value) {
                self.refusal = Some(refusal);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}
