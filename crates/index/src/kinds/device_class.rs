//! DeviceClasses: which extended resources ResourceClaims are charged to as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::resource::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use crate::store::{Affected, Indexed, Key, Store};

/// A DeviceClass, as far as quotas depend on it.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = v1::DeviceClass)]
pub struct DeviceClassWire {
    /// Name, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::bare")]
    pub metadata: ObjectMeta,
    /// The part of the specification that matters here.
    #[serde(default)]
    pub spec: DeviceClassSpecWire,
}

/// The part of a DeviceClass's specification that matters here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceClassSpecWire {
    /// The extended resource that its devices are requested by too.
    #[serde(default)]
    pub extended_resource_name: Option<String>,
}

#[derive(Debug, Default)]
pub struct DeviceClasses {
    store: Store<Option<Arc<str>>>,
}

impl DeviceClasses {
    /// The extended resources that they name.
    #[must_use]
    pub fn extended_resources(&self) -> BTreeSet<Arc<str>> {
        self.store.in_namespace("").iter().filter_map(|class| class.body.clone()).collect()
    }
}

impl Indexed for DeviceClasses {
    type Wire = DeviceClassWire;
    type Body = Option<Arc<str>>;

    fn store_mut(&mut self) -> &mut Store<Option<Arc<str>>> {
        &mut self.store
    }
    fn meta(wire: &DeviceClassWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &DeviceClassWire) -> Option<Arc<str>> {
        wire.spec.extended_resource_name.as_deref().map(Arc::from)
    }
    fn affects(_: &Key) -> Affected {
        Affected::Everywhere
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::store::Watched as _;

    #[test]
    fn the_names_of_the_classes_that_are_there_are_known() {
        let class = |name: &str, version: &str, spec: Value| -> DeviceClassWire {
            let metadata = json!({ "name": name, "uid": name, "resourceVersion": version });
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
        };
        let mut classes = DeviceClasses::default();
        let names = |classes: &DeviceClasses| {
            classes.extended_resources().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let gpu = json!({ "extendedResourceName": "example.com/gpu", "selectors": [] });
        classes.apply(&Event::Apply(class("gpu", "1", gpu)));
        classes.apply(&Event::Apply(class("plain", "2", json!({ "selectors": [] }))));
        assert_eq!(names(&classes), ["example.com/gpu"]);
        classes.apply(&Event::Apply(class("gpu", "3", json!({}))));
        assert_eq!(names(&classes), Vec::<String>::new());
    }
}
