//! Values of Kubernetes' API in a file of options, read exactly: the types of Kubernetes ignore a field that they do not
//! know, which would have no effect, unseen.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A value of Kubernetes' API, an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Exact<T>(pub T);

impl<'de, T: DeserializeOwned + Serialize> Deserialize<'de> for Exact<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Value::deserialize(deserializer)?;
        let read: T = serde_json::from_value(given.clone()).map_err(D::Error::custom)?;
        let known = serde_json::to_value(&read).map_err(D::Error::custom)?;
        match unknown(&given, &known) {
            None => Ok(Self(read)),
            Some(field) => Err(D::Error::custom(format!("unknown field `{field}`"))),
        }
    }
}

/// The chart hands it on as it is; what is wrong in it the operator and the API server say.
impl<T> JsonSchema for Exact<T> {
    fn schema_name() -> Cow<'static, str> {
        "Object".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

/// The first field of what is given that the read one does not have.
fn unknown(given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), known) => {
            given.iter().filter(|(_, value)| !value.is_null()).find_map(|(key, value)| match known.get(key) {
                None => Some(key.clone()),
                Some(known) => unknown(value, known),
            })
        }
        (Value::Array(given), Value::Array(known)) => {
            given.iter().zip(known).find_map(|(given, known)| unknown(given, known))
        }
        _ => None,
    }
}
