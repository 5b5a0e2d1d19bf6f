//! The status of objects whose conditions Sluice writes.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// The status of an object, and what a write of it rests on. Two of different versions differ, so each version of the object
/// is a change to those that write conditions: a write that met a conflict is made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated<S> {
    /// `metadata.resourceVersion`, the precondition of a write.
    pub resource_version: Option<String>,
    /// `metadata.generation`, which conditions speak of.
    pub generation: Option<i64>,
    /// `status`; an absent one is empty.
    pub status: S,
}

impl<S: Clone> Stated<S> {
    /// `None` without a status that can be read.
    #[must_use]
    pub fn of(meta: &ObjectMeta, status: Option<&S>) -> Option<Arc<Self>> {
        let status = status?.clone();
        let (resource_version, generation) = (meta.resource_version.clone(), meta.generation);
        Some(Arc::new(Self { resource_version, generation, status }))
    }
}

/// For `#[serde(default)]`: the status that an object without one has.
pub(crate) fn empty<S: Default>() -> Option<S> {
    Some(S::default())
}

/// For `#[serde(deserialize_with)]`: a status that cannot be read is `None` and does not make its object unreadable.
pub(crate) fn readable<'de, D, S>(deserializer: D) -> Result<Option<S>, D::Error>
where
    D: Deserializer<'de>,
    S: DeserializeOwned + Default,
{
    let status = serde_json::Value::deserialize(deserializer)?;
    Ok(if status.is_null() { empty() } else { serde_json::from_value(status).ok() })
}
