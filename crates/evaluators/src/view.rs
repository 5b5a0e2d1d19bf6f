//! What is sent of a pod, and the hash that tells whether it has changed.
//!
//! The API server's own text is sent, so that fields survive that nobody here knows. Left out is what Go's
//! `json.Marshal` of an informer's pod does not have (`kind`, `apiVersion`), what changes without a change of the pod
//! (`managedFields`), and the gates of the evaluated pod, as application-aware-quota's controller leaves them out
//! (`execute` of its `aaq-gate-controller.go`).

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A pod as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its JSON.
    pub json: Bytes,
    /// Hash of it without resourceVersion, generation and gates: these change with each write, and by a release.
    pub hash: u128,
}

/// Why there is no view of a text.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// It is not a JSON object with objects `metadata` and `spec`.
    #[error("reading the JSON of a pod: {0}")]
    NotAPod(#[from] serde_json::Error),
    /// There is no random number for the key.
    #[error("making the key of hashes: the system has no random numbers")]
    NoKey,
}

/// Makes views. Hashes are compared only with those of the same `Views`: their key is random, so that nobody can write
/// two pods with one hash.
#[derive(Debug)]
pub struct Views(hmac::Key);

impl Views {
    /// With a new key.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new() -> Result<Self, ViewError> {
        let key =
            hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| ViewError::NoKey)?;
        Ok(Self(key))
    }

    /// The view of a pod that is to be evaluated, of the API server's text.
    ///
    /// # Errors
    /// When the text is not a pod.
    pub fn evaluated(&self, text: &[u8]) -> Result<View, ViewError> {
        self.view(text, Gates::Dropped)
    }

    /// The view of another pod of its namespace: with its gates, which are not part of the hash either.
    ///
    /// # Errors
    /// When the text is not a pod.
    pub fn other(&self, text: &[u8]) -> Result<View, ViewError> {
        self.view(text, Gates::Kept)
    }

    fn view(&self, text: &[u8], gates: Gates) -> Result<View, ViewError> {
        let pod: Object<'_> = serde_json::from_slice(text)?;
        let mut writer =
            Writer { json: Vec::with_capacity(text.len()), hash: hmac::Context::with_key(&self.0) };
        writer.object(&pod, |key, value, writer| {
            match key {
                "kind" | "apiVersion" => {}
                "metadata" => writer.nested(key, &serde_json::from_str(value)?, |key| match key {
                    "managedFields" => Fate::Dropped,
                    "resourceVersion" | "generation" => Fate::Sent,
                    _ => Fate::Hashed,
                }),
                "spec" => writer.nested(key, &serde_json::from_str(value)?, |key| match (key, gates) {
                    ("schedulingGates", Gates::Dropped) => Fate::Dropped,
                    ("schedulingGates", Gates::Kept) => Fate::Sent,
                    _ => Fate::Hashed,
                }),
                _ => writer.field(key, value, Fate::Hashed),
            }
            Ok(())
        })?;
        let mut hash = [0; 16];
        let tag = writer.hash.sign();
        hash.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        Ok(View { json: writer.json.into(), hash: u128::from_be_bytes(hash) })
    }
}

#[derive(Clone, Copy)]
enum Gates {
    Dropped,
    Kept,
}

/// What becomes of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Dropped,
    Sent,
    Hashed,
}

/// Writes a JSON object; values are copied as they are.
struct Writer {
    json: Vec<u8>,
    hash: hmac::Context,
}

impl Writer {
    fn object(
        &mut self,
        object: &Object<'_>,
        mut write: impl FnMut(&str, &str, &mut Self) -> Result<(), serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        self.json.push(b'{');
        for (key, value) in &object.0 {
            write(key, value.get(), self)?;
        }
        self.json.push(b'}');
        Ok(())
    }

    fn nested(&mut self, key: &str, object: &Object<'_>, fate: impl Fn(&str) -> Fate) {
        self.key(key);
        self.hash.update(b"{");
        self.json.push(b'{');
        for (key, value) in &object.0 {
            self.field(key, value.get(), fate(key));
        }
        self.json.push(b'}');
        self.hash.update(b"}");
    }

    fn field(&mut self, key: &str, value: &str, fate: Fate) {
        if fate == Fate::Dropped {
            return;
        }
        if fate == Fate::Sent {
            self.write_key(key);
        } else {
            self.key(key);
            self.hash.update(value.as_bytes());
        }
        self.json.extend_from_slice(value.as_bytes());
    }

    fn key(&mut self, key: &str) {
        // A value is one JSON value, so key, length and value cannot be confused with others.
        self.hash.update(&(key.len() as u64).to_le_bytes());
        self.hash.update(key.as_bytes());
        self.write_key(key);
    }

    fn write_key(&mut self, key: &str) {
        if self.json.last() != Some(&b'{') {
            self.json.push(b',');
        }
        // A text is always JSON.
        drop(serde_json::to_writer(&mut self.json, key));
        self.json.push(b':');
    }
}

/// The fields of a JSON object in their order, unread.
struct Object<'t>(Vec<(String, &'t RawValue)>);

impl<'de: 't, 't> Deserialize<'de> for Object<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Fields).map(Object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{View, Views};

    fn pod() -> Value {
        json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": "a", "resourceVersion": "7", "generation": 1, "labels": {"app": "x"},
                "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {"fieldOfTomorrow": {"a": [1, 2.50]}, "schedulingGates": [{"name": "g"}], "containers": []},
            "status": {"phase": "Pending"},
        })
    }

    fn of(views: &Views, pod: &Value) -> View {
        views.evaluated(pod.to_string().as_bytes()).expect("a pod")
    }

    #[test]
    fn a_pod_is_sent_as_it_came_but_for_what_nobody_may_see() {
        let views = Views::new().expect("random numbers");
        let text = br#"{"kind":"Pod","metadata":{"managedFields":[1],"name":"a","resourceVersion":"7"},
            "spec":{"schedulingGates":[{"name":"g"}], "new" : {"x": 1.50}},"apiVersion":"v1","status":{}}"#;
        let sent = views.evaluated(text).expect("a pod").json;
        let expected =
            r#"{"metadata":{"name":"a","resourceVersion":"7"},"spec":{"new":{"x": 1.50}},"status":{}}"#;
        assert_eq!(sent, expected);
        let other = views.other(text).expect("a pod").json;
        let expected = r#""spec":{"schedulingGates":[{"name":"g"}],"new":{"x": 1.50}}"#;
        assert!(std::str::from_utf8(&other).expect("text").contains(expected), "{other:?}");
    }

    #[test]
    fn writes_that_change_nothing_keep_the_hash() {
        let views = Views::new().expect("random numbers");
        let before = of(&views, &pod()).hash;
        for (pointer, value) in [
            ("/metadata/resourceVersion", json!("8")),
            ("/metadata/generation", json!(2)),
            ("/metadata/managedFields", json!([])),
            ("/spec/schedulingGates", json!([])),
            ("/apiVersion", json!("v2")),
        ] {
            let mut changed = pod();
            *changed.pointer_mut(pointer).expect("a field") = value;
            assert_eq!(of(&views, &changed).hash, before, "{pointer}");
        }
        let mut released = pod();
        released.pointer_mut("/spec").and_then(Value::as_object_mut).expect("spec").remove("schedulingGates");
        assert_eq!(of(&views, &released).hash, before);
        assert_eq!(
            views.other(pod().to_string().as_bytes()).expect("a pod").hash,
            before,
            "as another's neighbour"
        );
    }

    #[test]
    fn any_other_change_changes_it() {
        let views = Views::new().expect("random numbers");
        let before = of(&views, &pod()).hash;
        for (pointer, value) in [
            ("/metadata/labels/app", json!("y")),
            ("/metadata/name", json!("b")),
            ("/spec/fieldOfTomorrow/a/0", json!(2)),
            ("/status/phase", json!("Running")),
        ] {
            let mut changed = pod();
            *changed.pointer_mut(pointer).expect("a field") = value;
            assert_ne!(of(&views, &changed).hash, before, "{pointer}");
        }
        assert_ne!(of(&Views::new().expect("random numbers"), &pod()).hash, before, "another key");
    }

    #[test]
    fn what_is_no_pod_is_refused() {
        let views = Views::new().expect("random numbers");
        for text in ["", "[]", "{", r#"{"metadata":1}"#, r#"{"spec":[]}"#, "{\"a\":\"\u{1}\"}"] {
            assert!(views.evaluated(text.as_bytes()).is_err(), "{text}");
        }
        assert!(views.evaluated(b"{\"a\":\"\xff\"}").is_err());
    }
}
