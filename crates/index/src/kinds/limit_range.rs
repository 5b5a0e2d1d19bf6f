//! LimitRanges: what a migration's target takes may follow from them.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use crate::store::{Indexed, Key, Record, Store};
use crate::version::Version;

/// A LimitRange: that it is there, and its version.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = LimitRange)]
pub struct LimitRangeWire {
    /// Name, namespace, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::bare")]
    pub metadata: ObjectMeta,
}

/// All LimitRanges; their versions are all that is kept.
#[derive(Debug, Default)]
pub struct LimitRanges {
    store: Store<Version>,
    /// By namespace. Never shrinks: of a namespace that comes back the count goes on.
    changes: HashMap<Arc<str>, u64>,
}

impl LimitRanges {
    /// How often LimitRanges of the namespace have changed since this process began to look.
    #[must_use]
    pub fn changes(&self, namespace: &str) -> u64 {
        self.changes.get(namespace).copied().unwrap_or(0)
    }

    fn count(&mut self, namespace: &Arc<str>) {
        *self.changes.entry(Arc::clone(namespace)).or_default() += 1;
    }
}

impl Indexed for LimitRanges {
    type Wire = LimitRangeWire;
    type Body = Version;

    fn store_mut(&mut self) -> &mut Store<Version> {
        &mut self.store
    }
    fn meta(wire: &LimitRangeWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &LimitRangeWire) -> Version {
        Version::parse(wire.metadata.resource_version.as_deref())
    }
    fn link(&mut self, record: &Arc<Record<Version>>) {
        self.count(&record.namespace);
    }
    fn forget(&mut self, key: &Key) {
        self.count(&key.namespace);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::store::Watched as _;

    #[test]
    fn a_limit_range_that_is_listed_again_has_not_changed() {
        let mut ranges = LimitRanges::default();
        let range = |version: &str| -> LimitRangeWire {
            serde_json::from_value(json!({
                "metadata": { "name": "limits", "namespace": "shop", "resourceVersion": version },
            }))
            .unwrap()
        };
        ranges.apply(&Event::Apply(range("1")));
        assert_eq!(ranges.changes("shop"), 1);
        for event in [Event::Init, Event::InitApply(range("1")), Event::InitDone] {
            assert!(ranges.apply(&event).is_empty());
        }
        assert_eq!(ranges.changes("shop"), 1);
        for event in [Event::Init, Event::InitDone] {
            ranges.apply(&event);
        }
        assert_eq!(ranges.changes("shop"), 2, "it is gone");
    }
}
