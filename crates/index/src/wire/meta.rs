//! Object metadata without the parts that no reader here needs.
//!
//! The tree of `managedFields` is the larger part of what decoding an object costs, so it is skipped, and annotations
//! are too, except the few that are read.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, Time};
use serde::{Deserialize, Deserializer};
use sluice_api::names;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BareMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
}

impl From<BareMeta> for ObjectMeta {
    fn from(bare: BareMeta) -> Self {
        Self {
            name: bare.name,
            namespace: bare.namespace,
            uid: bare.uid,
            resource_version: bare.resource_version,
            generation: bare.generation,
            creation_timestamp: bare.creation_timestamp,
            deletion_timestamp: bare.deletion_timestamp,
            deletion_grace_period_seconds: bare.deletion_grace_period_seconds,
            ..Self::default()
        }
    }
}

/// For `#[serde(deserialize_with)]`: name, uid, version, generation and times.
pub(super) fn bare<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    BareMeta::deserialize(deserializer).map(Into::into)
}

#[derive(Deserialize)]
struct LabelledMeta {
    #[serde(flatten)]
    bare: BareMeta,
    labels: Option<BTreeMap<String, String>>,
}

/// For `#[serde(deserialize_with)]`: as [`bare`], and the labels.
pub(super) fn labelled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let meta = LabelledMeta::deserialize(deserializer)?;
    Ok(ObjectMeta { labels: meta.labels, ..meta.bare.into() })
}

/// The annotations that anything here looks at.
#[derive(Deserialize)]
struct KnownAnnotations {
    #[serde(rename = "quota.sluice.dev/skip-headroom")]
    own_opt_out: Option<String>,
    #[serde(rename = "harvesterhci.io/skipResourceQuotaAutoScaling")]
    harvester_opt_out: Option<String>,
}

impl KnownAnnotations {
    fn map(self) -> BTreeMap<String, String> {
        let known =
            [(names::OWN_OPT_OUT, self.own_opt_out), (names::HARVESTER_OPT_OUT, self.harvester_opt_out)];
        known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

#[derive(Deserialize)]
struct AnnotatedMeta {
    #[serde(flatten)]
    bare: BareMeta,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<KnownAnnotations>,
}

/// For `#[serde(deserialize_with)]`: as [`labelled`], and the annotations that matter for head-room.
pub(super) fn annotated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let meta = AnnotatedMeta::deserialize(deserializer)?;
    let annotations = meta.annotations.map(KnownAnnotations::map);
    Ok(ObjectMeta { labels: meta.labels, annotations, ..meta.bare.into() })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedMeta {
    #[serde(flatten)]
    bare: BareMeta,
    managed_fields: Option<Vec<Writer>>,
}

/// An entry of `managedFields` without the tree of fields.
#[derive(Deserialize)]
struct Writer {
    manager: Option<String>,
    subresource: Option<String>,
    time: Option<Time>,
}

/// For `#[serde(deserialize_with)]`: as [`bare`], and who wrote which subresource when.
pub(super) fn managed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let meta = ManagedMeta::deserialize(deserializer)?;
    let entry = |Writer { manager, subresource, time }| ManagedFieldsEntry {
        manager,
        subresource,
        time,
        ..Default::default()
    };
    let managed_fields = meta.managed_fields.map(|entries| entries.into_iter().map(entry).collect());
    Ok(ObjectMeta { managed_fields, ..meta.bare.into() })
}
