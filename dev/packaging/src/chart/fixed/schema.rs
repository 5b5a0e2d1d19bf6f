//! The schema of the values: closed, so that a typing error is refused.

use serde_json::{Value, json};

/// `values.schema.json`.
pub(super) fn schema() -> Value {
    let mut schema = object(json!({
        "image": image(),
        "imagePullSecrets": list(&object(json!({ "name": text() }))),
        "platform": { "enum": ["generic", "openshift"] },
        "replicas": number(1, 9),
        "resources": object(json!({
            "controller": amounts(),
            "webhook": amounts(),
            "operator": amounts(),
        })),
        "nodeSelector": { "type": "object", "additionalProperties": { "type": "string" } },
        "tolerations": list(&toleration()),
        "priorityClassName": { "type": "string" },
        "sharedNamespace": boolean(),
        "webhook": object(json!({ "port": port(), "hostNetwork": boolean() })),
        "installation": { "enum": ["always", "cr"] },
        "gating": { "enum": ["policy", "webhook"] },
        "exemptNamespaces": {
            "type": ["array", "null"],
            "minItems": 1,
            "items": { "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,62}\\*?$" },
        },
        "platformAccounts": {
            "type": ["array", "null"],
            "items": { "type": "string", "pattern": "^[a-z0-9.-]+:[a-z0-9.-]+$" },
        },
        "balancerProofs": number(0, 1000),
        "networkPolicy": object(json!({
            "apiServerPorts": { "type": "array", "minItems": 1, "items": number(1, 65535) },
        })),
        "crds": object(json!({ "enabled": boolean() })),
        "rancher": boolean(),
        // Helm sets it for the parts of a chart.
        "global": { "type": "object" },
    }));
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
    }
    schema
}

fn object(properties: Value) -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn list(items: &Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn text() -> Value {
    json!({ "type": "string", "minLength": 1 })
}

fn boolean() -> Value {
    json!({ "type": "boolean" })
}

fn number(least: u32, most: u32) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

/// Not those of probes, metrics and the controller.
fn port() -> Value {
    let mut port = number(1024, 65535);
    if let Some(fields) = port.as_object_mut() {
        fields.insert("not".to_owned(), json!({ "enum": [8081, 8444, 8445] }));
    }
    port
}

fn image() -> Value {
    object(json!({
        "registry": { "type": "string", "pattern": "^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?)?$" },
        "repository": { "type": "string", "pattern": "^[a-z0-9]+([._/-]+[a-z0-9]+)*$" },
        "tag": { "type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$" },
        "digest": { "type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$" },
        "pullPolicy": { "enum": ["Always", "IfNotPresent", "Never"] },
    }))
}

fn amounts() -> Value {
    let quantity = json!({ "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?([mkMGTP]|[KMGTP]i)?$" });
    object(json!({ "cpu": quantity, "memory": quantity }))
}

fn toleration() -> Value {
    object(json!({
        "key": text(),
        "operator": { "enum": ["Exists", "Equal"] },
        "value": { "type": "string" },
        "effect": { "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"] },
        "tolerationSeconds": { "type": "integer" },
    }))
}
