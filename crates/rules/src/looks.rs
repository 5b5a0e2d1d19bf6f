//! Which parts of a pod a rule looks at: nothing else of its JSON has to be read.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as _, Deserializer};
use serde_json::{Map, Value as Json};

use crate::node::{Does, Kind, Node};

/// The parts of a value that are looked at: all of it, or these of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    is_whole: bool,
    fields: BTreeMap<Box<str>, Self>,
}

impl Looks {
    /// Also what others look at.
    pub fn add(&mut self, others: &Self) {
        self.is_whole |= others.is_whole;
        for (field, looks) in &others.fields {
            self.fields.entry(field.clone()).or_default().add(looks);
        }
    }

    /// The pod with this JSON as far as it is looked at: what is left out makes no difference to who looks at no more.
    ///
    /// # Errors
    /// When it is no JSON. That is not found out where nothing is looked at.
    pub fn read(&self, json: &[u8]) -> serde_json::Result<Json> {
        if *self == Self::default() {
            return Ok(Json::Null);
        }
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let read = self.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(read)
    }

    pub(crate) fn find(&mut self, node: &Node) {
        if let Some(path) = path(node) {
            let mut at = self;
            for field in path {
                at = at.fields.entry(field.into()).or_default();
            }
            at.is_whole = true;
            return;
        }
        match &node.kind {
            Kind::Null | Kind::Bool(_) | Kind::Int(_) | Kind::Amount(_) | Kind::Text(_) => {}
            Kind::Pod | Kind::Native | Kind::Element(_) => {}
            Kind::Select(of, _)
            | Kind::Has(of, _)
            | Kind::Not(of)
            | Kind::Negate(of)
            | Kind::Matches(of, _) => self.find(of),
            Kind::Index(both)
            | Kind::And(both)
            | Kind::Or(both)
            | Kind::In(both)
            | Kind::Equal(both)
            | Kind::NotEqual(both)
            | Kind::Compare(_, both)
            | Kind::Arithmetic(_, both) => both.iter().for_each(|node| self.find(node)),
            Kind::If(three) => three.iter().for_each(|node| self.find(node)),
            Kind::List(nodes) | Kind::Call(_, nodes) => nodes.iter().for_each(|node| self.find(node)),
            Kind::Macro(it) => {
                self.find(&it.over);
                match &it.does {
                    Does::Exists(test) | Does::All(test) | Does::ExistsOne(test) => self.find(test),
                    Does::Collect { takes, makes } => {
                        takes.iter().chain([makes]).for_each(|node| self.find(node));
                    }
                }
            }
        }
    }
}

/// The fields by which a part of the pod is found, if the expression is one.
fn path(node: &Node) -> Option<Vec<&str>> {
    let further = |of, field| {
        let mut path = path(of)?;
        path.push(field);
        Some(path)
    };
    match &node.kind {
        Kind::Pod => Some(Vec::new()),
        Kind::Select(of, field) | Kind::Has(of, field) => further(of, field),
        Kind::Index(both) => match both.as_ref() {
            [of, Node { kind: Kind::Text(field), .. }] => further(of, field),
            _ => None,
        },
        _ => None,
    }
}

impl<'de> DeserializeSeed<'de> for &Looks {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        if self.is_whole { Json::deserialize(deserializer) } else { deserializer.deserialize_any(self) }
    }
}

/// Of a map the fields that are looked at; anything else has none, and is what it is.
impl<'de> Visitor<'de> for &Looks {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut read = Map::new();
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.fields.get(&*key) {
                Some(looks) => drop(read.insert(key.into_owned(), map.next_value_seed(looks)?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Json::Object(read))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = seq.next_element()? {
            read.push(element);
        }
        Ok(Json::Array(read))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use std::collections::BTreeMap;

    use serde_json::json;
    use sluice_engine::Charge;

    use super::*;
    use crate::Rule;

    fn rule(matches: &str, charge: &str) -> Rule {
        Rule::compile(matches, &BTreeMap::from([("example.com/a".to_owned(), charge.to_owned())])).unwrap()
    }

    fn pod() -> Json {
        json!({
            "metadata": {"name": "a", "labels": {"x": "1", "app/y": "2"}, "annotations": {"n": "4"}},
            "spec": {"nodeName": null, "priority": 7, "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1500m"}}}, {"name": "d"},
            ]},
            "status": {"phase": "Running", "qosClass": "Burstable"},
        })
    }

    #[test]
    fn what_is_read_is_what_is_looked_at() {
        let labels = json!({"x": "1", "app/y": "2"});
        for (matches, charge, read) in [
            ("true", "1", json!(null)),
            ("'requests.cpu' in native", "1", json!(null)),
            ("has(pod.metadata.labels)", "1", json!({"metadata": {"labels": labels}})),
            ("pod.metadata.labels['app/y'] == '2'", "1", json!({"metadata": {"labels": {"app/y": "2"}}})),
            ("'x' in pod.metadata.labels", "1", json!({"metadata": {"labels": labels}})),
            ("pod.spec.priority == 7", "pod.spec.priority", json!({"spec": {"priority": 7}})),
            ("pod.status.phase.none == 1", "1", json!({"status": {"phase": "Running"}})),
            ("pod.status.none", "1", json!({"status": {}})),
            ("size(pod.spec) > 0", "1", json!({"spec": pod()["spec"]})),
            (
                "pod.spec.containers.exists(c, c.name == pod.metadata.name)",
                "1",
                json!({
                    "metadata": {"name": "a"}, "spec": {"containers": pod()["spec"]["containers"]},
                }),
            ),
            ("pod[true ? 'spec' : pod.metadata.name] == pod.status", "1", pod()),
        ] {
            let rule = rule(matches, charge);
            assert_eq!(rule.looks().read(pod().to_string().as_bytes()).unwrap(), read, "{matches}");
        }
        assert!(rule("pod.status.none", "1").looks().read(b"{\"a\":[}").is_err());
    }

    /// Outcomes and errors both.
    #[test]
    fn a_rule_says_the_same_of_what_is_read_as_of_the_whole_pod() {
        for matches in [
            "true",
            "pod.metadata.labels.x == '1'",
            "pod.metadata.labels.none == '1'",
            "has(pod.metadata.labels.none) || has(pod.spec.priority)",
            "has(pod.none.none)",
            "pod.status.phase.none == 1",
            "pod.spec.containers.name == 'c'",
            "has(pod.spec.nodeName.a)",
            "pod.spec.containers[0].resources.requests.cpu == '1500m'",
            "pod['spec']['containers'].all(c, has(c.resources))",
            "pod.metadata.labels.exists(l, pod.metadata.labels[l] == '2')",
            "pod == pod.spec",
            "size(pod.metadata) == 3 && 'x' in pod.metadata.labels",
        ] {
            for charge in ["1", "pod.spec.priority", "pod.metadata.annotations.n", "size(pod)"] {
                let rule = rule(matches, charge);
                let read = rule.looks().read(pod().to_string().as_bytes()).unwrap();
                let said = |pod| rule.evaluate(pod, &Charge::default());
                assert_eq!(said(&read), said(&pod()), "{matches} {charge}");
            }
        }
    }

    #[test]
    fn several_look_at_what_each_of_them_does() {
        let mut both = rule("pod.metadata.labels.x == '1'", "pod.spec.priority").looks().clone();
        both.add(rule("has(pod.metadata.labels)", "pod.metadata.name").looks());
        let read = both.read(pod().to_string().as_bytes()).unwrap();
        let labels = &pod()["metadata"]["labels"];
        assert_eq!(read, json!({"metadata": {"name": "a", "labels": labels}, "spec": {"priority": 7}}));
    }
}
