//! Object metadata without what nobody here reads.
//!
//! The tree of `managedFields` is the larger part of what decoding an object costs (`rust.md` §1.2), so it is
//! skipped, and annotations are too.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BareMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
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
            creation_timestamp: bare.creation_timestamp,
            deletion_timestamp: bare.deletion_timestamp,
            deletion_grace_period_seconds: bare.deletion_grace_period_seconds,
            ..Self::default()
        }
    }
}

/// For `#[serde(deserialize_with)]`: name, uid, version and times.
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
