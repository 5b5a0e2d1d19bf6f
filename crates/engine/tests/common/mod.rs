//! Vector files, and pods written as the API writes them.
#![allow(dead_code, reason = "each suite uses its own part")]

use std::path::Path;

use serde_json::Value;
use sluice_engine::pod::{ActuatedResources, Container, ContainerStatus, PodInput, ResourceList, Resources};
use sluice_engine::quantity::Quantity;

/// The text of a file under `tests/vectors`.
pub fn vector_file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("reading {}: {e}", path.display()))
}

/// The rows of a tab-separated file; visible stand-ins for white space are replaced.
pub fn rows(name: &str) -> Vec<Vec<String>> {
    let text = vector_file(name);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let cell = |cell: &str| cell.replace('␠', " ").replace('⇥', "\t").replace("<empty>", "");
    lines.map(|line| line.split('\t').map(cell).collect()).collect()
}

/// The cases of a JSON file.
pub fn cases(name: &str) -> Vec<Value> {
    serde_json::from_str(&vector_file(name)).expect("a JSON list")
}

pub fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value.get(field).and_then(Value::as_str)
}

pub fn items<'v>(value: &'v Value, path: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

fn list(value: &Value) -> Option<ResourceList<'_>> {
    let amounts = value.as_object()?.iter();
    Some(amounts.map(|(name, amount)| (name.as_str(), quantity(amount.as_str().expect("a text")))).collect())
}

fn resources(value: &Value) -> Resources<'_> {
    let part = |name| value.get(name).and_then(list).unwrap_or_default();
    Resources { requests: part("requests"), limits: part("limits") }
}

fn container(value: &Value) -> Container<'_> {
    Container {
        name: text(value, "name").unwrap_or(""),
        resources: value.get("resources").map(resources).unwrap_or_default(),
        restartable: text(value, "restartPolicy") == Some("Always"),
    }
}

fn status(value: &Value) -> ContainerStatus<'_> {
    ContainerStatus {
        name: text(value, "name").unwrap_or(""),
        actuated: value.get("resources").map(|actuated| ActuatedResources {
            requests: actuated.get("requests").and_then(list),
            limits: actuated.get("limits").and_then(list),
        }),
        allocated: value.get("allocatedResources").and_then(list),
    }
}

fn crosses_namespaces(pod: &Value) -> bool {
    let crosses = |term: &Value| {
        let namespaces = term.get("namespaces").and_then(Value::as_array);
        namespaces.is_some_and(|names| !names.is_empty()) || term.get("namespaceSelector").is_some()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let at = format!("/spec/affinity/{kind}");
        let required = format!("{at}/requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = format!("{at}/preferredDuringSchedulingIgnoredDuringExecution");
        items(pod, &required).any(crosses)
            || items(pod, &preferred).filter_map(|term| term.get("podAffinityTerm")).any(crosses)
    })
}

/// The facts of a pod in the API's JSON; times are Unix seconds.
pub fn pod(value: &Value) -> PodInput<'_> {
    let spec = value.get("spec").expect("a spec");
    let statuses = items(value, "/status/containerStatuses")
        .chain(items(value, "/status/initContainerStatuses"))
        .map(status);
    let pending = items(value, "/status/conditions").find(|c| text(c, "type") == Some("PodResizePending"));
    PodInput {
        containers: items(spec, "/containers").map(container).collect(),
        init_containers: items(spec, "/initContainers").map(container).collect(),
        overhead: spec.get("overhead").and_then(list).unwrap_or_default(),
        pod_resources: spec.get("resources").map(resources),
        statuses: statuses.collect(),
        resize_infeasible: pending.is_some_and(|c| text(c, "reason") == Some("Infeasible")),
        phase: value.pointer("/status/phase").and_then(Value::as_str),
        deletion_timestamp: value.pointer("/metadata/deletionTimestamp").and_then(Value::as_i64),
        deletion_grace_seconds: value.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64),
        active_deadline_seconds: spec.get("activeDeadlineSeconds").and_then(Value::as_i64),
        priority_class_name: text(spec, "priorityClassName"),
        qos_class: value.pointer("/status/qosClass").and_then(Value::as_str),
        cross_namespace_affinity: crosses_namespaces(value),
    }
}
