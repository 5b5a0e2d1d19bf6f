//! From what is to what should be, as JSON patches.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_operator::default_namespace_selector;

use super::observe::{Configuration, Kind, Webhook, World};

/// The names that are ours; a webhook that somebody else adds is left alone.
const OURS: [&str; 5] = [
    names::WEBHOOK_GATER,
    names::WEBHOOK_QUOTA,
    names::WEBHOOK_GATE_GUARD,
    names::WEBHOOK_AAQ,
    names::WEBHOOK_POD_IDENTITY,
];

/// A change of one configuration. It applies to the version it was planned for, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HookPatch {
    pub(super) kind: Kind,
    /// JSON patch.
    pub(super) operations: Value,
}

/// The changes that are needed. What is not known is not touched.
pub(super) fn plan(world: &World) -> Vec<HookPatch> {
    let selector = world.selector.as_ref();
    let selector = selector.map(|chosen| chosen.clone().unwrap_or_else(default_namespace_selector));
    [&world.mutating, &world.validating]
        .into_iter()
        .flatten()
        .filter_map(|configuration| patch(configuration, world.bundle.as_deref(), selector.as_ref()))
        .collect()
}

fn patch(
    configuration: &Configuration,
    bundle: Option<&[u8]>,
    selector: Option<&LabelSelector>,
) -> Option<HookPatch> {
    let ours = || {
        let all = configuration.webhooks.iter().enumerate();
        all.filter(|(_, webhook)| OURS.contains(&webhook.name.as_str()))
    };
    let mut operations = Vec::new();
    if let Some(bundle) = bundle {
        for (index, _) in ours().filter(|(_, webhook)| webhook.ca_bundle != bundle) {
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            operations.push(json!({ "op": "add", "path": path, "value": ByteString(bundle.to_vec()) }));
        }
    }
    // Apart from the bundle and after it: a selector that the API server refuses must not stop a rotation.
    if let Some(selector) = selector.filter(|_| operations.is_empty()) {
        for (index, _) in ours().filter(|(_, webhook)| selects_wrongly(webhook, selector)) {
            let path = format!("/webhooks/{index}/namespaceSelector");
            operations.push(json!({ "op": "add", "path": path, "value": selector }));
        }
    }
    if operations.is_empty() {
        return None;
    }
    let unchanged =
        json!({ "op": "test", "path": "/metadata/resourceVersion", "value": configuration.resource_version });
    operations.insert(0, unchanged);
    Some(HookPatch { kind: configuration.kind, operations: Value::Array(operations) })
}

/// Only the gate follows the `AAQ`; the other webhooks see all namespaces.
fn selects_wrongly(webhook: &Webhook, wanted: &LabelSelector) -> bool {
    let is = webhook.namespace_selector.clone().unwrap_or_default();
    webhook.name == names::WEBHOOK_GATER && normal(&is) != normal(wanted)
}

/// Absent and empty mean the same.
fn normal(selector: &LabelSelector) -> LabelSelector {
    let expressions = selector.match_expressions.clone().filter(|list| !list.is_empty());
    let expressions = expressions.map(|list| {
        let normal = list.into_iter().map(|mut expression| {
            expression.values = expression.values.filter(|values| !values.is_empty());
            expression
        });
        normal.collect()
    });
    LabelSelector {
        match_expressions: expressions,
        match_labels: selector.match_labels.clone().filter(|labels| !labels.is_empty()),
    }
}
