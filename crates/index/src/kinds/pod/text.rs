//! A pod's JSON as the API server sent it: what evaluators are sent of it, and the key of that.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::watcher::Event;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::PodWire;

/// A pod together with its JSON. It is decoded twice, so it is watched only where evaluators are configured.
///
/// In an event of a watch the JSON can be kept because API servers send `type` before `object`
/// (`k8s.io/apimachinery/pkg/apis/meta/v1/watch.go`).
#[derive(Clone, Debug)]
pub struct PodWithText {
    pub wire: PodWire,
    pub text: Box<RawValue>,
}

impl PodWithText {
    /// The event of the pod, and its JSON where the event has one that says how the pod is.
    #[must_use]
    pub fn split(event: Event<Self>) -> (Event<PodWire>, Option<Box<RawValue>>) {
        match event {
            Event::Init => (Event::Init, None),
            Event::InitDone => (Event::InitDone, None),
            Event::InitApply(pod) => (Event::InitApply(pod.wire), Some(pod.text)),
            Event::Apply(pod) => (Event::Apply(pod.wire), Some(pod.text)),
            Event::Delete(pod) => (Event::Delete(pod.wire), None),
        }
    }
}

impl<'de> Deserialize<'de> for PodWithText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let wire = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Self { wire, text })
    }
}

impl Resource for PodWithText {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        Pod::kind(&())
    }
    fn group((): &()) -> std::borrow::Cow<'_, str> {
        Pod::group(&())
    }
    fn version((): &()) -> std::borrow::Cow<'_, str> {
        Pod::version(&())
    }
    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        Pod::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.wire.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.wire.metadata
    }
}

/// What evaluators are sent of a pod.
#[derive(Clone, Debug)]
pub struct PodView {
    /// The API server's own JSON without `kind`, `apiVersion`, `metadata.managedFields` and `spec.schedulingGates`. Fields
    /// that are not known here are kept.
    pub json: String,
    /// Equal, within a process, for equal content: that is `json` without `metadata.resourceVersion` and
    /// `metadata.generation`. So neither a release nor an update of managedFields changes it. The hash has a
    /// random key, so a tenant cannot search for a pod with the hash of another one.
    pub hash: u64,
    pub labels: BTreeMap<String, String>,
    pub uid: String,
    /// `spec.schedulingGates` as it is written, and the place in `json` where it was left out.
    gates: Option<(usize, Box<str>)>,
}

impl PodView {
    /// The JSON as the other pods of a namespace are sent: with `spec.schedulingGates`, which says that a pod does not run
    /// yet; `None`: it has none, so that is [`Self::json`].
    #[must_use]
    pub fn json_with_gates(&self) -> Option<String> {
        let (at, gates) = self.gates.as_ref()?;
        let (before, after) = self.json.split_at_checked(*at)?;
        let comma = if before.ends_with('{') { "" } else { "," };
        Some(format!("{before}{comma}\"schedulingGates\":{gates}{after}"))
    }
}

/// The key of the hashes of a process: nobody can write a pod that is taken for another.
#[derive(Clone, Debug, Default)]
pub struct ViewKey(RandomState);

impl ViewKey {
    /// What is sent of the pod with this JSON.
    ///
    /// # Errors
    /// When it is no object, or its metadata or spec is none.
    pub fn view(&self, text: &str) -> serde_json::Result<PodView> {
        let mut json = String::with_capacity(text.len());
        let mut hasher = self.0.build_hasher();
        let (mut labels, mut uid, mut gates) = (BTreeMap::new(), String::new(), None);
        let mut write = |path: &str, is_hashed: bool, value: &str| {
            if is_hashed {
                for part in [path, value] {
                    // Lengths keep apart what follows each other.
                    hasher.write_usize(part.len());
                    hasher.write(part.as_bytes());
                }
            }
        };
        let mut gates_at = 0;
        json.push('{');
        for (name, value) in fields(text)? {
            let is_left_out: fn(&str) -> bool = match &*name {
                "kind" | "apiVersion" => continue,
                "metadata" => |name| name == "managedFields",
                "spec" => |name| name == "schedulingGates",
                _ => {
                    write(&name, true, value.get());
                    push(&mut json, &name, value.get());
                    continue;
                }
            };
            let is_metadata = name == "metadata";
            let mut inner = String::with_capacity(value.get().len());
            inner.push('{');
            for (field, value) in fields(value.get())? {
                if is_left_out(&field) {
                    gates =
                        gates.or_else(|| (!is_metadata && value.get() != "null").then(|| value.get().into()));
                    continue;
                }
                if is_metadata && field == "labels" {
                    labels = serde_json::from_str::<Option<_>>(value.get())?.unwrap_or_default();
                }
                if is_metadata && field == "uid" {
                    uid = serde_json::from_str::<Option<_>>(value.get())?.unwrap_or_default();
                }
                let is_hashed = !is_metadata || !matches!(&*field, "resourceVersion" | "generation");
                write(if is_metadata { "metadata" } else { "spec" }, is_hashed, &field);
                write(&field, is_hashed, value.get());
                push(&mut inner, &field, value.get());
            }
            inner.push('}');
            push(&mut json, &name, &inner);
            if !is_metadata {
                // In front of the bracket that ends the specification.
                gates_at = json.len() - 1;
            }
        }
        json.push('}');
        let hash = hasher.finish();
        let gates = gates.map(|gates| (gates_at, gates));
        Ok(PodView { json, hash, labels, uid, gates })
    }
}

/// One more field of an object that is being written.
fn push(object: &mut String, name: &str, value: &str) {
    if object.len() > 1 {
        object.push(',');
    }
    object.push_str(&serde_json::Value::from(name).to_string());
    object.push(':');
    object.push_str(value);
}

/// The fields of an object in their order, each as it is written.
fn fields(text: &str) -> serde_json::Result<Vec<(String, &RawValue)>> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::with_capacity(map.size_hint().unwrap_or(16));
            while let Some(field) = map.next_entry()? {
                fields.push(field);
            }
            Ok(fields)
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let fields = deserializer.deserialize_map(Fields)?;
    deserializer.end()?;
    Ok(fields)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use kube::api::{ObjectList, WatchEvent};
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Value {
        json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": "p", "namespace": "team", "uid": "u", "resourceVersion": "5", "generation": 1,
                "labels": {"app": "db"}, "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {"schedulingGates": [{"name": "g"}], "containers": [{"name": "c"}], "newField": [1.50, null]},
            "status": {"phase": "Pending"},
        })
    }

    #[test]
    fn fields_of_later_versions_are_sent_and_gates_are_not() {
        let view = ViewKey::default().view(&pod().to_string()).unwrap();
        let sent: Value = serde_json::from_str(&view.json).unwrap();
        let expected = json!({
            "metadata": {
                "name": "p", "namespace": "team", "uid": "u", "resourceVersion": "5", "generation": 1,
                "labels": {"app": "db"},
            },
            "spec": {"containers": [{"name": "c"}], "newField": [1.50, null]},
            "status": {"phase": "Pending"},
        });
        assert_eq!(sent, expected);
        assert_eq!((&*view.labels["app"], &*view.uid), ("db", "u"));
    }

    #[test]
    fn beside_others_a_pod_is_sent_with_its_gates() {
        let view = |pod: &Value| ViewKey::default().view(&pod.to_string()).unwrap();
        let mut pod = pod();
        let with =
            |pod: &Value| serde_json::from_str::<Value>(&view(pod).json_with_gates().unwrap()).unwrap();
        assert_eq!(with(&pod)["spec"], pod["spec"]);
        assert_eq!(with(&pod)["metadata"].get("managedFields"), None);
        pod["spec"] = json!({"schedulingGates": [{"name": "g"}]});
        assert_eq!(with(&pod)["spec"], pod["spec"]);
        for none in [json!({}), json!({"schedulingGates": null})] {
            pod["spec"] = none;
            assert_eq!(view(&pod).json_with_gates(), None);
        }
    }

    #[test]
    fn numbers_and_escapes_are_sent_as_they_were_written() {
        let text = r#"{"spec":{"a\"b":1.500,"big":123456789012345678901234567890},"status":{"x":"é"}}"#;
        let view = ViewKey::default().view(text).unwrap();
        assert_eq!(view.json, text);
    }

    #[test]
    fn a_release_and_managed_fields_leave_the_hash_and_anything_else_changes_it() {
        let key = ViewKey::default();
        let hash = |pod: &Value| key.view(&pod.to_string()).unwrap().hash;
        let (first, mut other) = (hash(&pod()), pod());
        other["metadata"]["resourceVersion"] = json!("6");
        other["metadata"]["generation"] = json!(2);
        other["metadata"]["managedFields"] = json!([]);
        other["spec"].as_object_mut().unwrap().remove("schedulingGates");
        assert_eq!(hash(&other), first);
        for (path, value) in
            [("/metadata/labels/app", "web"), ("/status/phase", "Running"), ("/spec/containers/0/name", "d")]
        {
            let mut other = pod();
            *other.pointer_mut(path).unwrap() = json!(value);
            assert_ne!(hash(&other), first, "{path}");
        }
        assert_ne!(ViewKey::default().view(&pod().to_string()).unwrap().hash, first, "it is keyed");
    }

    #[test]
    fn what_is_moved_between_fields_is_other_content() {
        let key = ViewKey::default();
        let hash = |text: &str| key.view(text).unwrap().hash;
        assert_ne!(hash(r#"{"spec":{"a":1},"status":{}}"#), hash(r#"{"metadata":{"a":1},"status":{}}"#));
        assert_ne!(hash(r#"{"spec":{"ab":1}}"#), hash(r#"{"spec":{"a":1}}"#));
    }

    #[test]
    fn what_is_no_pod_is_an_error() {
        for text in ["", "[]", "null", r#"{"spec":[]}"#, r#"{"metadata":{"labels":3}}"#, r#"{"spec":{}"#] {
            assert!(ViewKey::default().view(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_text_of_events_and_lists_is_kept() {
        let event = format!(r#"{{"type":"ADDED","object":{}}}"#, pod());
        let WatchEvent::Added(seen) = serde_json::from_str::<WatchEvent<PodWithText>>(&event).unwrap() else {
            unreachable!()
        };
        assert_eq!((seen.text.get(), seen.wire.metadata.uid.as_deref()), (&*pod().to_string(), Some("u")));
        let list = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#, pod());
        let list: ObjectList<PodWithText> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.items[0].text.get(), pod().to_string());
    }
}
