//! A managed quota as it is, of either kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sluice_api::names;
use sluice_engine::{Quantity, Uid};
use sluice_index::{ClusterResourceQuotaRecord, ResourceQuotaRecord};

use super::kind::ManagedKind;

/// What is used, by key.
pub(super) type Used = BTreeMap<Arc<str>, Quantity>;

/// An object with the name of a managed quota.
#[derive(Clone, Debug)]
pub(super) struct Existing {
    /// It, as far as it says what a ResourceQuota says.
    pub quota: Arc<ResourceQuotaRecord>,
    cluster: Option<Arc<ClusterResourceQuotaRecord>>,
}

impl From<Arc<ResourceQuotaRecord>> for Existing {
    fn from(quota: Arc<ResourceQuotaRecord>) -> Self {
        Self { quota, cluster: None }
    }
}

impl From<Arc<ClusterResourceQuotaRecord>> for Existing {
    fn from(cluster: Arc<ClusterResourceQuotaRecord>) -> Self {
        Self { quota: Arc::new(cluster.total()), cluster: Some(cluster) }
    }
}

impl Existing {
    const fn kind(&self) -> ManagedKind {
        match self.cluster {
            None => ManagedKind::ResourceQuota,
            Some(_) => ManagedKind::ClusterResourceQuota,
        }
    }

    /// The namespaces that it selects.
    pub fn selector(&self) -> &Value {
        self.cluster.as_ref().map_or(&Value::Null, |cluster| &cluster.selector)
    }

    /// What it says is used in each namespace; `None` of a ResourceQuota.
    pub fn namespaces(&self) -> Option<&BTreeMap<Arc<str>, Used>> {
        self.cluster.as_ref().map(|cluster| &cluster.namespaces)
    }

    /// Whether it belongs to the quota: the quota of this name is its controller, or it has no controller and has the label.
    pub fn is_ours(&self, quota: &str) -> bool {
        match &self.quota.owner {
            Some(owner) => {
                let group = owner.api_version.split('/').next();
                group == Some(names::GROUP) && *owner.kind == *self.kind().owner() && *owner.name == *quota
            }
            None => self.quota.labels.get(names::MANAGED_LABEL).is_some(),
        }
    }

    /// Whether the quota with this uid is its controller, and it has the label.
    pub fn is_marked(&self, uid: &Uid) -> bool {
        self.quota.labels.get(names::MANAGED_LABEL) == Some("true")
            && self.quota.owner.as_ref().is_some_and(|owner| {
                owner.uid == *uid && owner.blocks && *owner.api_version == *names::API_VERSION
            })
    }
}

/// Whether two selectors say the same: what is empty or null is as if it were not there.
pub(super) fn is_same_selector(one: &Value, other: &Value) -> bool {
    stripped(one) == stripped(other)
}

fn stripped(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let fields = fields.iter().filter_map(|(key, value)| Some((key.clone(), stripped(value)?)));
            Some(Value::Object(fields.collect())).filter(|value| *value != Value::Object(Default::default()))
        }
        Value::Array(items) => (!items.is_empty()).then(|| items.iter().filter_map(stripped).collect()),
        other => Some(other.clone()),
    }
}
