//! OpenShift's ClusterResourceQuotas, as far as they are managed ones by their names.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sluice_api::names;
use sluice_engine::Quantity;

use super::resource_quota::{ResourceQuotaRecord, ResourceQuotaState, ResourceQuotaStatusWire};
use crate::quota_spec::QuotaSpecWire;
use crate::store::{Affected, Indexed, Key, Record, Store};

/// A ClusterResourceQuota with its amounts as they are in the API.
#[derive(Clone, Debug, Deserialize)]
pub struct ClusterResourceQuotaWire {
    /// Name, uid, version, times, labels and ownerReferences.
    #[serde(deserialize_with = "crate::meta::owned")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "nullable")]
    pub spec: ClusterResourceQuotaSpecWire,
    /// What is enforced and used.
    #[serde(default, deserialize_with = "nullable")]
    pub status: ClusterResourceQuotaStatusWire,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct ClusterResourceQuotaSpecWire {
    #[serde(default, deserialize_with = "nullable")]
    pub quota: QuotaSpecWire,
    /// The namespaces, as it is written.
    #[serde(default)]
    pub selector: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct ClusterResourceQuotaStatusWire {
    /// Over all namespaces.
    #[serde(default, deserialize_with = "nullable")]
    pub total: ResourceQuotaStatusWire,
    /// In each of them.
    #[serde(default)]
    pub namespaces: Option<Vec<NamespaceStatusWire>>,
}

/// What is enforced and used in a namespace.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NamespaceStatusWire {
    #[serde(default)]
    pub namespace: String,
    #[serde(default, deserialize_with = "nullable")]
    pub status: ResourceQuotaStatusWire,
}

fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl kube::Resource for ClusterResourceQuotaWire {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ClusterResourceQuota".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        names::OPENSHIFT_QUOTA_GROUP.into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        names::CLUSTER_RESOURCE_QUOTAS.into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What is kept of a ClusterResourceQuota.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterResourceQuotaState {
    total: ResourceQuotaState,
    /// `spec.selector`, as it is written.
    pub selector: Value,
    /// What is used in each namespace, without amounts that cannot be read.
    pub namespaces: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Quantity>>,
}

pub type ClusterResourceQuotaRecord = Record<ClusterResourceQuotaState>;

impl ClusterResourceQuotaRecord {
    /// The quota as a ResourceQuota would say it.
    #[must_use]
    pub fn total(&self) -> ResourceQuotaRecord {
        Record {
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&self.name),
            uid: self.uid.clone(),
            version: self.version,
            created: self.created,
            deleting: self.deleting,
            body: self.body.total.clone(),
        }
    }
}

/// The managed ClusterResourceQuotas; those of others may have such a name too.
#[derive(Debug, Default)]
pub struct ClusterResourceQuotas {
    store: Store<ClusterResourceQuotaState>,
}

impl ClusterResourceQuotas {
    #[must_use]
    pub fn record(&self, name: &str) -> Option<&Arc<ClusterResourceQuotaRecord>> {
        self.store.get("", name)
    }
}

impl Indexed for ClusterResourceQuotas {
    type Wire = ClusterResourceQuotaWire;
    type Body = ClusterResourceQuotaState;

    fn store_mut(&mut self) -> &mut Store<ClusterResourceQuotaState> {
        &mut self.store
    }
    fn meta(wire: &ClusterResourceQuotaWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &ClusterResourceQuotaWire) -> ClusterResourceQuotaState {
        let used = |entry: &NamespaceStatusWire| {
            let amounts = entry.status.used.iter();
            let read = amounts.filter_map(|(key, text)| {
                Some((Arc::from(key.as_str()), Quantity::parse_json_text(&text.0).ok()?))
            });
            (Arc::from(entry.namespace.as_str()), read.collect())
        };
        ClusterResourceQuotaState {
            total: ResourceQuotaState::of(&wire.metadata, &wire.spec.quota, &wire.status.total),
            selector: wire.spec.selector.clone(),
            namespaces: wire.status.namespaces.iter().flatten().map(used).collect(),
        }
    }
    fn is_kept(meta: &ObjectMeta) -> bool {
        meta.name.as_deref().is_some_and(|name| name.ends_with(names::MANAGED_CLUSTER_QUOTA_SUFFIX))
    }
    fn affects(_: &Key) -> Affected {
        Affected::Everywhere
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a test stops at the first thing that is not as it must be"
    )]

    use serde_json::json;

    use super::*;
    use crate::store::{Change, Watched as _};

    fn quota(name: &str, version: &str, status: &Value) -> ClusterResourceQuotaWire {
        serde_json::from_value(json!({
            "metadata": { "name": name, "uid": name, "resourceVersion": version },
            "spec": { "quota": { "hard": { "services": "4" } }, "selector": { "labels": { "matchLabels": { "a": "b" } },
                "annotations": null } },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn those_with_the_name_of_a_managed_one_are_kept() {
        let mut quotas = ClusterResourceQuotas::default();
        let name = names::managed_cluster_quota("q");
        assert_eq!(quotas.upsert(&quota("other", "1", &Value::Null)), Change::Same);
        assert_eq!(quotas.upsert(&quota(&name, "1", &Value::Null)), Change::Added);
        assert!(quotas.record("other").is_none());
        let record = quotas.record(&name).unwrap();
        assert_eq!(record.selector["labels"]["matchLabels"]["a"], "b");
        assert_eq!(record.total().raw().spec_hard.len(), 1);
        assert!(record.namespaces.is_empty());
    }

    #[test]
    fn what_is_used_is_read_in_all_and_by_namespace() {
        let amounts =
            |services: &str| json!({ "hard": { "services": "4" }, "used": { "services": services } });
        let status = json!({ "total": amounts("3"), "namespaces": [
            { "namespace": "a", "status": amounts("2") }, { "namespace": "b", "status": amounts("many") },
            { "namespace": "c", "status": null }] });
        let (mut quotas, name) = (ClusterResourceQuotas::default(), names::managed_cluster_quota("q"));
        quotas.upsert(&quota(&name, "1", &status));
        let record = quotas.record(&name).unwrap();
        let text = |used: &BTreeMap<Arc<str>, Quantity>| used.get("services").map(ToString::to_string);
        assert_eq!(text(&record.total().native().used).as_deref(), Some("3"));
        let each: Vec<_> = record.namespaces.values().map(text).collect();
        assert_eq!(each, [Some("2".to_owned()), None, None]);
        let none = json!({ "total": amounts("3"), "namespaces": null });
        assert_eq!(quotas.upsert(&quota(&name, "2", &none)), Change::Changed);
    }
}
