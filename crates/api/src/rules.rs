//! Validation that the API server does for us: bounds, and rules in CEL with messages that say what to do.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::{JsonSchema as _, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Most keys that a map of amounts may have: rules that look at each of them must stay cheap.
pub(crate) const MAX_KEYS: u32 = 64;
/// Longest key of a quota: a DNS subdomain, a slash and a name.
pub(crate) const MAX_QUOTA_KEY: u32 = 317;
/// Longest expression of a rule (`crates/rules/src/bounds.rs`).
pub(crate) const MAX_EXPRESSION: u32 = 2048;
/// Most keys that a rule charges (`crates/rules/src/bounds.rs`).
pub(crate) const MAX_CHARGES: u32 = 16;
/// Most expressions, and most values of an expression, of a label selector.
const MAX_EXPRESSIONS: u32 = 32;
/// Longest label key: a DNS subdomain, a slash and a name.
const MAX_LABEL_KEY: u32 = 317;

/// An amount is an integer or a text; the schema's pattern has made sure that the text is a quantity.
pub(crate) fn not_negative() -> Value {
    json!({
        "rule": "self.all(key, type(self[key]) == int ? self[key] >= 0 : !self[key].startsWith('-'))",
        "message": "an amount must not be negative; leave out keys that get nothing",
        "reason": "FieldValueInvalid",
    })
}

/// The keys of ResourceQuotas that pods consume.
pub(crate) fn pod_keys() -> Value {
    json!({
        "rule": "self.all(key, key in ['cpu', 'memory', 'ephemeral-storage', 'pods', 'count/pods', \
            'limits.cpu', 'limits.memory', 'limits.ephemeral-storage'] \
            || key.startsWith('hugepages-') || (key.startsWith('requests.') && key != 'requests.storage'))",
        "message": "only keys that pods consume: cpu, memory, ephemeral-storage, each also with requests. or limits. \
            before it, pods, count/pods, hugepages-<size>, requests.hugepages-<size>, \
            requests.<extended resource>",
        "reason": "FieldValueInvalid",
    })
}

/// Amounts go with the modes that have some, a percentage with amounts of each namespace, bounds of a namespace with a pool.
pub(crate) fn budget() -> Value {
    let is_set = |field: &str| format!("has(self.{field}) && size(self.{field}) > 0");
    let (resources, per_namespace) = (is_set("resources"), is_set("perNamespace"));
    let rule = |rule: String, field: &str, reason: &str, message: &str| {
        json!({
            "rule": rule, "message": message, "fieldPath": format!(".{field}"), "reason": reason,
        })
    };
    json!([
        rule(
            format!(
                "self.mode == 'Unlimited' || ({resources}) || (self.mode == 'PerNamespace' && has(self.percent))"
            ),
            "resources",
            "FieldValueRequired",
            "modes PerNamespace and Pool need resources: name at least one key, such as requests.memory, give a percent \
             with mode PerNamespace, or choose mode Unlimited",
        ),
        rule(
            format!("self.mode != 'Unlimited' || !({resources})"),
            "resources",
            "FieldValueForbidden",
            "mode Unlimited has no resources: remove them, or choose mode PerNamespace or Pool",
        ),
        rule(
            "self.mode == 'PerNamespace' || !has(self.percent)".to_owned(),
            "percent",
            "FieldValueForbidden",
            "percent is of the quotas of one namespace: remove it, or choose mode PerNamespace",
        ),
        rule(
            format!("self.mode == 'Pool' || !({per_namespace})"),
            "perNamespace",
            "FieldValueForbidden",
            "perNamespace bounds what one namespace takes of a pool: remove it, or choose mode Pool",
        ),
        rule(
            // The same resource under its other name counts; `requests.` has nine characters.
            format!(
                "!({per_namespace}) || !({resources}) || self.perNamespace.all(key, key in self.resources \
                 || ('requests.' + key) in self.resources \
                 || (key.startsWith('requests.') && key.substring(9) in self.resources))"
            ),
            "perNamespace",
            "FieldValueInvalid",
            "a key of perNamespace is not in resources, so there is no pool of it: add it to resources, or remove it",
        ),
    ])
}

/// An object of which every field is kept.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of such objects.
pub(crate) fn any_objects(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": any_object(generator) })
}

/// An expression of a rule.
pub(crate) fn expression() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": MAX_EXPRESSION })
}

/// An `Evaluator` is a rule or the policy of a sidecar, and has nothing that is of the other.
pub(crate) fn evaluator() -> Value {
    let of_sidecars = |field: &str, why: &str| {
        json!({
            "rule": format!("has(self.sidecar) || !has(self.{field})"), "fieldPath": format!(".{field}"),
            "message": format!("{field} is of sidecars: remove it, {why}"), "reason": "FieldValueForbidden",
        })
    };
    json!([
        {
            "rule": "has(self.cel) != has(self.sidecar)",
            "message": "one of cel and sidecar has to be there: a rule has cel, the policy of a sidecar has sidecar, which \
                may be {}",
            "reason": "FieldValueInvalid",
        },
        {
            "rule": "!has(self.sidecar) || !has(self.examples)", "fieldPath": ".examples",
            "message": "examples are of rules, no sidecar is asked at admission: remove them, and try the sidecar by sluice \
                evaluator check",
            "reason": "FieldValueForbidden",
        },
        of_sidecars("keys", "a rule charges the keys of cel.charge"),
        of_sidecars("onFailure", "a rule does not fail like a process"),
    ])
}

/// What a container is given goes with its image.
pub(crate) fn of_container() -> Value {
    json!(["args", "env", "resources"].map(|field| {
        json!({
            "rule": format!("has(self.image) || !has(self.{field})"), "fieldPath": format!(".{field}"),
            "message": format!("{field} is of the container that image names: name its image, or remove {field}"),
            "reason": "FieldValueForbidden",
        })
    }))
}

/// An `Evaluator` whose container runs has a name that a container, its volume and the path of its socket may have.
pub(crate) fn name_of_container() -> Value {
    json!([{
        "rule": "!has(self.spec) || !has(self.spec.sidecar) || !has(self.spec.sidecar.image) \
            || (self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$') \
            && !self.metadata.name.startsWith('refused-') \
            && !(self.metadata.name in ['sluice-controller', 'aaq-controller']))",
        "message": "metadata.name: that of an Evaluator with an image has 1 to 40 lower case letters, digits and hyphens, \
            is not the controller's own, and does not begin with refused-: choose another",
        "reason": "FieldValueInvalid",
    }])
}

/// What a container requests is at most its limit: the API server would refuse the controller's pods otherwise.
pub(crate) fn of_resources() -> Value {
    json!(["cpu", "memory"].map(|key| {
        let has = |of: &str| format!("has(self.{of}) && has(self.{of}.{key})");
        let amount = |of: &str| format!("quantity(string(self.{of}.{key}))");
        json!({
            "rule": format!(
                "!({} && {}) || {}.compareTo({}) <= 0",
                has("requests"), has("limits"), amount("requests"), amount("limits")
            ),
            "fieldPath": format!(".requests.{key}"),
            "message": format!("it is above limits.{key}: request no more than the limit"),
            "reason": "FieldValueInvalid",
        })
    }))
}

/// None is negative.
pub(crate) fn of_amounts() -> Value {
    json!(["cpu", "memory"].map(|key| {
        json!({
            "rule": format!("!has(self.{key}) || quantity(string(self.{key})).compareTo(quantity('0')) >= 0"),
            "fieldPath": format!(".{key}"),
            "message": "it is negative: write an amount that is not", "reason": "FieldValueInvalid",
        })
    }))
}

/// What else a key is, the webhook looks at: a pattern over keys without a bound would cost the API server too much.
pub(crate) fn quota_keys() -> Value {
    json!({
        "rule": format!("self.all(key, size(key) > 0 && size(key) <= {MAX_QUOTA_KEY})"),
        "message": "a key is a name with a domain, such as example.com/license, or one that pods consume, such as \
            requests.cpu, up to 317 characters",
        "reason": "FieldValueInvalid",
    })
}

/// A label selector that is bounded and that can be evaluated.
pub(crate) fn selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = LabelSelector::json_schema(generator);
    let key = json!({ "type": "string", "minLength": 1, "maxLength": MAX_LABEL_KEY });
    let value = json_schema!({ "type": "string", "maxLength": 63 });
    schema.insert("properties".to_owned(), json!({
        "matchLabels": {
            "type": "object",
            "description": "Labels that all have to be there with these values.",
            "maxProperties": MAX_EXPRESSIONS,
            "additionalProperties": value,
        },
        "matchExpressions": {
            "type": "array",
            "description": "Requirements that all have to be met.",
            "maxItems": MAX_EXPRESSIONS,
            "items": {
                "type": "object",
                "required": ["key", "operator"],
                "properties": {
                    "key": key,
                    "operator": { "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"] },
                    "values": { "type": "array", "maxItems": MAX_EXPRESSIONS, "items": value },
                },
                "x-kubernetes-validations": [{
                    "rule": "self.operator in ['In', 'NotIn'] == (has(self.values) && size(self.values) > 0)",
                    "message": "operators In and NotIn need values, Exists and DoesNotExist have none",
                    "reason": "FieldValueInvalid",
                }],
            },
        },
    }));
    schema
}
