//! The few fields of a pod that the pod endpoints look at.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use sluice_api::names;

use super::nullable;

/// A pod, narrowed.
#[derive(Debug, Deserialize)]
pub struct PodView<'a> {
    #[serde(default)]
    pub metadata: Option<Metadata>,
    #[serde(default, borrow)]
    pub spec: Option<PodSpec<'a>>,
}

/// `metadata`, narrowed.
#[derive(Debug, Default, Deserialize)]
pub struct Metadata {
    #[serde(default)]
    pub annotations: Option<Annotations>,
}

/// `spec`, narrowed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec<'a> {
    #[serde(default, borrow)]
    pub scheduling_gates: Option<Vec<SchedulingGate<'a>>>,
    /// Empty when the scheduler is to choose.
    #[serde(default, deserialize_with = "nullable")]
    pub node_name: String,
}

/// An item of `spec.schedulingGates`.
#[derive(Debug, Deserialize)]
pub struct SchedulingGate<'a> {
    #[serde(default, borrow)]
    pub name: Cow<'a, str>,
}

/// What is kept of `metadata.annotations`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Value of the identity stamp.
    pub created_by: Option<String>,
    /// Whether the pod says that it is the mirror of a static pod.
    pub mirror: bool,
    /// Bytes of all keys and values without the stamp, as the API server counts them against its limit.
    pub other_bytes: usize,
}

impl PodView<'_> {
    /// Whether the pod carries Sluice's gate.
    pub fn is_gated(&self) -> bool {
        let gates = self.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_deref()).unwrap_or_default();
        gates.iter().any(|gate| gate.name == names::GATE)
    }

    /// The annotations, if the pod has the field.
    pub fn annotations(&self) -> Option<&Annotations> {
        self.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref())
    }

    /// The identity stamp, if the pod has one.
    pub fn created_by(&self) -> Option<&str> {
        self.annotations().and_then(|annotations| annotations.created_by.as_deref())
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnnotationsVisitor)
    }
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
        let mut found = Annotations::default();
        while let Some((Text(key), Text(value))) = map.next_entry::<Text<'de>, Text<'de>>()? {
            if key == names::CREATED_BY_ANNOTATION {
                found.created_by = Some(value.into_owned());
                continue;
            }
            found.mirror |= key == names::MIRROR_ANNOTATION;
            found.other_bytes = found.other_bytes.saturating_add(key.len()).saturating_add(value.len());
        }
        Ok(found)
    }
}

/// A string that is borrowed from the body unless it contains escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
