//! What the derived schemas need so that clients see what upstream's CRDs show them (`docs/predecessors.md`, *API
//! of AAQ*).
//!
//! The derive knows types and documentation; it does not know list types, atomic maps and the pattern of a
//! quantity, and it marks every optional field as nullable, which upstream's are not.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::json;

/// The pattern Kubernetes' own tools put on a quantity.
const QUANTITY: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
);

/// Objects that are replaced as a whole by a server-side apply.
const ATOMIC_OBJECTS: [&str; 13] = [
    "configMapKeyRef",
    "configMapRef",
    "fieldRef",
    "fileKeyRef",
    "namespaceSelector",
    "labelSelector",
    "labels",
    "podSelector",
    "preference",
    "resourceFieldRef",
    "resourceQuotaSelector",
    "scopeSelector",
    "secretKeyRef",
];

/// Lists whose items have keys.
const KEYED_LISTS: [(&str, &[&str]); 5] = [
    ("claims", &["name"]),
    ("env", &["name"]),
    ("ports", &["containerPort", "protocol"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
];

/// Fields whose types come from Kubernetes' pod API: their documentation is Kubernetes', and long.
const FOREIGN: [&str; 3] = ["affinity", "sidecarEvaluators", "tolerations"];

/// What upstream allows to be null: field, the field that it is in, and its type.
const NULLABLE: [(&str, &str, &str); 8] = [
    ("custom", "tlsSecurityProfile", "object"),
    ("intermediate", "tlsSecurityProfile", "object"),
    ("modern", "tlsSecurityProfile", "object"),
    ("old", "tlsSecurityProfile", "object"),
    ("annotations", "selector", "object"),
    ("labels", "selector", "object"),
    ("namespaces", "status", "array"),
    ("creationTime", "status", "string"),
];

/// Upstream's kind of the mirrors of cluster quotas.
const MIRROR: &str = "ApplicationAwareAppliedClusterResourceQuota";
/// Kinds whose `status` is a field like any other: a mirror's, as upstream has it, and the answer that a review gets.
const WITHOUT_SUBRESOURCE: [&str; 2] = [MIRROR, crate::names::QUOTA_REVIEW];
/// Kinds that upstream's schema requires to have metadata.
const WITH_METADATA: [&str; 2] = ["ApplicationAwareClusterResourceQuota", MIRROR];

/// Where in a schema a node is.
#[derive(Clone, Copy)]
struct Place<'a> {
    field: &'a str,
    parent: &'a str,
    /// Inside a type of Kubernetes' pod API.
    foreign: bool,
}

/// Completes a derived CRD.
pub(crate) fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let names = &mut crd.spec.names;
    names.list_kind = Some(format!("{}List", names.kind));
    for version in &mut crd.spec.versions {
        if WITHOUT_SUBRESOURCE.contains(&names.kind.as_str()) {
            version.subresources = None;
        }
        let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) else {
            continue;
        };
        root.title = None;
        visit(root, Place { field: "", parent: "", foreign: false });
        let properties = root.properties.get_or_insert_default();
        properties.insert("apiVersion".to_owned(), of_type("string"));
        properties.insert("kind".to_owned(), of_type("string"));
        properties.insert("metadata".to_owned(), of_type("object"));
        if names.kind == "Evaluator" {
            root.x_kubernetes_validations = serde_json::from_value(crate::rules::name_of_container()).ok();
        }
        if WITH_METADATA.contains(&names.kind.as_str()) {
            root.required.get_or_insert_default().insert(0, "metadata".to_owned());
        }
    }
    crd
}

fn of_type(name: &str) -> JSONSchemaProps {
    JSONSchemaProps { type_: Some(name.to_owned()), ..JSONSchemaProps::default() }
}

fn visit(node: &mut JSONSchemaProps, place: Place<'_>) {
    let named = (place.field, place.parent, node.type_.as_deref().unwrap_or_default());
    node.nullable = NULLABLE.contains(&named).then_some(true);
    if node.x_kubernetes_int_or_string == Some(true) {
        int_or_string(node, place);
    }
    if node.type_.as_deref() == Some("array") {
        list_type(node, place);
    }
    if is_atomic(node, place) {
        node.x_kubernetes_map_type = Some("atomic".to_owned());
    }
    if place.foreign {
        node.description = None;
        node.default = default_of(place);
    }
    children(node, place);
}

fn children(node: &mut JSONSchemaProps, place: Place<'_>) {
    for (name, child) in node.properties.iter_mut().flatten() {
        let inner = Place { field: name, parent: place.field, foreign: place.foreign };
        if FOREIGN.contains(&name.as_str()) && !place.foreign {
            let description = child.description.take();
            visit(child, Place { foreign: true, ..inner });
            child.description = description;
        } else {
            visit(child, inner);
        }
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut node.items {
        visit(item, place);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut node.additional_properties {
        visit(value, place);
    }
}

/// A quantity, or a port by number or name.
fn int_or_string(node: &mut JSONSchemaProps, place: Place<'_>) {
    node.any_of = Some(vec![of_type("integer"), of_type("string")]);
    if place.field == "port" {
        return;
    }
    node.pattern = Some(QUANTITY.to_owned());
    node.description = (!place.foreign).then(|| "A quantity: 2, 500m, 4Gi.".to_owned());
}

fn list_type(node: &mut JSONSchemaProps, place: Place<'_>) {
    // Types of our own say it themselves.
    if node.x_kubernetes_list_type.is_some() {
        return;
    }
    // Lists of upstream's own types have no list type; lists of the types it borrows do.
    let own = ["conditions", "ciphers", "podsInJobQueue", "sidecarEvaluators"];
    if own.contains(&place.field)
        || (place.field == "tolerations" && ["infra", "workload"].contains(&place.parent))
        || (place.field, place.parent) == ("namespaces", "status")
    {
        return;
    }
    let keyed = KEYED_LISTS.iter().find(|(name, _)| place.foreign && *name == place.field);
    if let Some((_, keys)) = keyed {
        node.x_kubernetes_list_type = Some("map".to_owned());
        node.x_kubernetes_list_map_keys = Some(keys.iter().map(|key| (*key).to_owned()).collect());
        return;
    }
    let set = place.foreign && place.parent == "exitCodes";
    node.x_kubernetes_list_type = Some(if set { "set" } else { "atomic" }.to_owned());
}

fn is_atomic(node: &JSONSchemaProps, place: Place<'_>) -> bool {
    if node.type_.as_deref() != Some("object") {
        return false;
    }
    let has = |name: &str| node.properties.as_ref().is_some_and(|p| p.contains_key(name));
    ATOMIC_OBJECTS.contains(&place.field)
        || (place.foreign && (has("nodeSelectorTerms") || place.field == "secretRef"))
        || (place.field == "nodeSelectorTerms" && has("matchFields"))
}

/// Defaults of Kubernetes' types that a list key needs or that upstream's schema shows.
fn default_of(place: Place<'_>) -> Option<JSON> {
    let reference = ["configMapKeyRef", "configMapRef", "secretKeyRef", "secretRef"];
    match place.field {
        "protocol" if place.parent == "ports" => Some(JSON(json!("TCP"))),
        "service" if place.parent == "grpc" => Some(JSON(json!(""))),
        "name" if reference.contains(&place.parent) => Some(JSON(json!(""))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
