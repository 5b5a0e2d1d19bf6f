//! What is kept of an object. What is not named here is dropped, so a new field of Kubernetes stays out until it is added.

mod keep;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use sluice_api::{Endpoint, names};

pub use keep::{Keep, keep};

/// Stands for what was taken out.
pub const REDACTED: &str = "REDACTED";

/// Fields of `metadata` that are kept; of annotations only those of [`OWN_ANNOTATIONS`].
const METADATA: [&str; 13] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// Beginnings of keys of annotations that are Sluice's or tell who applies its objects.
const OWN_ANNOTATIONS: [&str; 9] = [
    "quota.sluice.dev/",
    "aaq.kubevirt.io/",
    "operator.aaq.kubevirt.io/",
    "auth.openshift.io/certificate-",
    "deployment.kubernetes.io/revision",
    "meta.helm.sh/release-",
    names::MIGRATION_NAME_ANNOTATION,
    names::PENDING_TIMEOUT_ANNOTATION,
    names::EVEN_EMULATOR_ANNOTATION,
];

/// Fields that hold a secret where somebody has put one, as lists; a label may have the same name.
const OF_CONTAINERS: [&str; 4] = ["args", "command", "env", "envFrom"];

/// What is kept of a container of an evaluator.
const SIDECAR: [&str; 5] = ["image", "imagePullPolicy", "name", "ports", "resources"];

/// `object` without what may be a secret, or explains no quota.
pub fn reduce(kind: &str, object: &Value) -> Value {
    let mut kept = Map::new();
    for field in ["apiVersion", "kind"] {
        kept.extend(
            object.get(field).filter(|value| value.is_string()).map(|it| (field.to_owned(), it.clone())),
        );
    }
    if let Some(metadata) = object.get("metadata") {
        kept.extend(pick(metadata, &METADATA).map(|metadata| ("metadata".to_owned(), metadata)));
    }
    match keep(kind) {
        Keep::Whole => {
            let rest = object.as_object().into_iter().flatten();
            let rest =
                rest.filter(|(field, _)| !["apiVersion", "kind", "metadata"].contains(&field.as_str()));
            kept.extend(rest.map(|(field, value)| (field.clone(), value.clone())));
        }
        Keep::Fields(paths) => {
            if let Some(Value::Object(fields)) = pick(object, paths) {
                kept.extend(fields);
            }
        }
        Keep::Identity => {}
    }
    let mut kept = Value::Object(kept);
    let own_arguments = kind == "Deployment";
    scrub(&mut kept, own_arguments);
    match kind {
        "ConfigMap" => kept_data(object, &mut kept),
        "Evaluator" => reduce_examples(&mut kept),
        "AAQ" => reduce_sidecars(&mut kept),
        _ => {}
    }
    kept
}

/// The parts of `value` below `paths`, whose names are separated by dots. Lists are passed through.
fn pick(value: &Value, paths: &[&str]) -> Option<Value> {
    if paths.contains(&"") {
        return Some(value.clone());
    }
    match value {
        Value::Object(fields) => {
            let field = |(name, field): (&String, &Value)| {
                let below: Vec<&str> = paths.iter().filter_map(|path| below(path, name)).collect();
                if below.is_empty() { None } else { Some((name.clone(), pick(field, &below)?)) }
            };
            let kept: Map<_, _> = fields.iter().filter_map(field).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept: Vec<_> = items.iter().filter_map(|item| pick(item, paths)).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

/// What of `path` is left below the field `name`.
fn below<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(name)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}

/// Takes out, at any depth, what no kind needs. It holds for what is kept whole, and once more for the rest.
fn scrub(value: &mut Value, own_arguments: bool) {
    match value {
        Value::Object(fields) => {
            let keeps_arguments = own_arguments && has_own_arguments(fields);
            fields.retain(|name, field| {
                let of_container = OF_CONTAINERS.contains(&name.as_str()) && field.is_array();
                let is_kept = keeps_arguments && name == "args";
                name != "managedFields" && (!of_container || is_kept)
            });
            // Those of alerts are no metadata.
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                keep_own_annotations(metadata);
            }
            if let Some(config) = fields.get_mut("clientConfig") {
                hide_paths(config);
            }
            fields.values_mut().for_each(|field| scrub(field, own_arguments));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| scrub(item, own_arguments)),
        _ => {}
    }
}

fn keep_own_annotations(metadata: &mut Map<String, Value>) {
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return };
    annotations.retain(|key, _| OWN_ANNOTATIONS.iter().any(|own| key.starts_with(own)));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Flags of Sluice's own containers say how it was installed, and none takes a secret.
fn has_own_arguments(container: &Map<String, Value>) -> bool {
    let name = container.get("name").and_then(Value::as_str);
    name.is_some_and(is_own_container)
}

/// Whether a container of Sluice's pods runs Sluice.
pub fn is_own_container(name: &str) -> bool {
    [names::CONTROLLER, names::WEBHOOK, names::OPERATOR].contains(&name)
}

fn hide_paths(config: &mut Value) {
    let hide = |value: &mut Value, begin: usize| {
        if let Some(text) = value.as_str() {
            let (origin, path) = text.split_at(begin.min(text.len()));
            *value = json!(format!("{origin}{}", hidden(path)));
        }
    };
    if let Some(path) = config.pointer_mut("/service/path") {
        hide(path, 0);
    }
    if let Some(url) = config.get_mut("url") {
        let begin = url.as_str().map_or(0, path_of_url);
        hide(url, begin);
    }
}

/// Where the path of a URL begins; at its end without one.
fn path_of_url(url: &str) -> usize {
    let host = url.find("://").map_or(0, |at| at + 3);
    url.get(host..).and_then(|rest| rest.find('/')).map_or(url.len(), |at| host + at)
}

/// The path of an endpoint without what is in front of it: only API servers may know that.
fn hidden(path: &str) -> String {
    match split_secret(path) {
        (None, path) => path.to_owned(),
        (Some(_), path) => format!("/{REDACTED}{path}"),
    }
}

/// The secret in front of a path, and the path behind it; of a path that is no endpoint's, all is secret.
fn split_secret(path: &str) -> (Option<&str>, &str) {
    let known = Endpoint::ALL
        .iter()
        .find_map(|endpoint| Some((path.strip_suffix(endpoint.path())?, endpoint.path())));
    match known {
        Some((before, path)) => (Some(before.trim_matches('/')).filter(|secret| !secret.is_empty()), path),
        None => (Some(path.trim_matches('/')).filter(|secret| !secret.is_empty()), ""),
    }
}

/// The secret segments that a webhook configuration names.
pub fn secret_segments(configuration: &Value) -> Vec<String> {
    let webhooks = configuration.get("webhooks").and_then(Value::as_array);
    let configs = webhooks.into_iter().flatten().filter_map(|webhook| webhook.get("clientConfig"));
    let mut secrets: Vec<String> = configs
        .filter_map(|config| {
            let of_service = config.pointer("/service/path").and_then(Value::as_str);
            let of_url = || config.get("url")?.as_str().and_then(|url| url.get(path_of_url(url)..));
            split_secret(of_service.or_else(of_url)?).0.map(str::to_owned)
        })
        .collect();
    secrets.sort();
    secrets.dedup();
    secrets
}

/// Of ConfigMaps only Sluice's own have contents: the options, and the public authorities.
fn kept_data(object: &Value, kept: &mut Value) {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    let is_kept = |key: &str| match name {
        Some(names::OPERATOR) => key.ends_with(".yaml"),
        _ => key == "ca-bundle.crt",
    };
    let data = object.get("data").and_then(Value::as_object).into_iter().flatten();
    let data: Map<_, _> =
        data.filter(|(key, _)| is_kept(key)).map(|(key, text)| (key.clone(), text.clone())).collect();
    if let Some(fields) = kept.as_object_mut().filter(|_| !data.is_empty()) {
        fields.insert("data".to_owned(), Value::Object(data));
    }
}

/// Containers of evaluators are others': probes and hooks may carry tokens as variables do.
fn reduce_sidecars(aaq: &mut Value) {
    let sidecars = aaq.pointer_mut("/spec/configuration/sidecarEvaluators").and_then(Value::as_array_mut);
    for sidecar in sidecars.into_iter().flatten() {
        *sidecar = pick(sidecar, &SIDECAR).unwrap_or_default();
    }
}

/// Examples are pods like any other.
fn reduce_examples(evaluator: &mut Value) {
    let examples = evaluator.pointer_mut("/spec/examples").and_then(Value::as_array_mut);
    for pod in examples.into_iter().flatten().filter_map(|example| example.get_mut("pod")) {
        *pod = reduce("Pod", pod);
    }
}
