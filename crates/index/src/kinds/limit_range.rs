//! LimitRanges: what a migration's target takes may follow from them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use crate::store::{Indexed, Store};
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
}

impl LimitRanges {
    /// Stands for the LimitRanges of the namespace: another number once one of them has changed.
    #[must_use]
    pub fn fingerprint(&self, namespace: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        for record in self.store.in_namespace(namespace) {
            (&record.name, record.version).hash(&mut hasher);
        }
        hasher.finish()
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
        let none = ranges.fingerprint("shop");
        ranges.apply(&Event::Apply(range("1")));
        let one = ranges.fingerprint("shop");
        for event in [Event::Init, Event::InitApply(range("1")), Event::InitDone] {
            assert!(ranges.apply(&event).is_empty());
        }
        assert_eq!(ranges.fingerprint("shop"), one);
        ranges.apply(&Event::Apply(range("2")));
        let two = ranges.fingerprint("shop");
        for event in [Event::Init, Event::InitDone] {
            ranges.apply(&event);
        }
        assert!(one != none && two != none && one != two);
        assert_eq!(ranges.fingerprint("shop"), none, "it is gone");
    }
}
