//! Containers of sidecar evaluators in the controller's pod.
//!
//! As application-aware-quota's operator runs them (`pkg/aaq-operator/resources/namespaced/controller.go`), but each with a
//! directory of its own, without the pod's token, and with no rights that the controller itself has not.

use serde_json::{Value, json};
use sluice_api::{MOST_SIDECARS, REFUSED_SIDECAR, SIDECAR_SOCKETS, refused_sidecars};

use crate::object::set;
use crate::security;

/// Memory where the `AAQ` names neither limit nor request: a limit, so that an evaluator that grows ends itself
/// and not the controller's node.
const MEMORY: &str = "256Mi";
/// Bytes of the volume of a socket.
const SOCKETS: &str = "1Mi";

/// Adds the containers to the specification of the controller's pod, whose own container is the first. One that is refused
/// is left out, and asked all the same: pods wait, rather than being counted without it. `pull_policy`: of those that name
/// none.
pub(crate) fn add(pod: &mut Value, containers: &Value, pull_policy: Option<&str>) {
    let refused: Vec<usize> = refused_sidecars(containers).into_iter().map(|it| it.place).collect();
    let all = containers.as_array().map(Vec::as_slice).unwrap_or_default();
    for (place, container) in all.iter().take(MOST_SIDECARS).enumerate() {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        let (volume, directory) = (format!("sockets-{place}"), format!("{SIDECAR_SOCKETS}/{place}"));
        // What is refused because of its name has none that could be asked by.
        let asked =
            if refused.contains(&place) { format!("{REFUSED_SIDECAR}{place}") } else { name.to_owned() };
        push(pod, "/containers/0/args", json!(format!("--evaluator={asked}={directory}")));
        push(pod, "/containers/0/volumeMounts", json!({ "name": volume, "mountPath": directory }));
        let limited = json!({ "medium": "Memory", "sizeLimit": SOCKETS });
        push(pod, "/volumes", json!({ "name": volume, "emptyDir": limited }));
        if !refused.contains(&place) {
            push(pod, "/containers", sidecar(container, &volume, pull_policy));
        }
    }
}

fn sidecar(container: &Value, volume: &str, pull_policy: Option<&str>) -> Value {
    let mut container = container.clone();
    if let Some(policy) = pull_policy.filter(|_| container.get("imagePullPolicy").is_none_or(Value::is_null))
    {
        set(&mut container, "imagePullPolicy", json!(policy));
    }
    // A pod's containers begin again anyway, and before Kubernetes 1.34 only init containers may say so.
    if let Some(fields) = container.as_object_mut() {
        fields.remove("restartPolicy");
    }
    set(&mut container, "volumeMounts", json!([{ "name": volume, "mountPath": SIDECAR_SOCKETS }]));
    let mut context = security::of_container();
    // It may write files of its own, as upstream's may.
    let read_only = container.pointer("/securityContext/readOnlyRootFilesystem").cloned();
    set(&mut context, "readOnlyRootFilesystem", read_only.unwrap_or(Value::Bool(false)));
    set(&mut container, "securityContext", context);
    let limits = container.pointer("/resources/limits").cloned().unwrap_or_default();
    let mut limits = if limits.is_object() { limits } else { json!({}) };
    if limits.get("memory").is_none_or(Value::is_null) {
        // A limit below what is requested would be refused.
        let requested = container.pointer("/resources/requests/memory").filter(|it| !it.is_null()).cloned();
        set(&mut limits, "memory", requested.unwrap_or_else(|| json!(MEMORY)));
    }
    let variables = container.get_mut("env").and_then(Value::as_array_mut);
    variables.into_iter().flatten().for_each(state_defaults);
    let mut resources =
        container.get("resources").filter(|it| it.is_object()).cloned().unwrap_or_else(|| json!({}));
    set(&mut resources, "limits", limits);
    set(&mut container, "resources", resources);
    container
}

/// Those inside of what is one value to the API server: without them each look would find a difference.
fn state_defaults(variable: &mut Value) {
    for (reference, field, default) in
        [("fieldRef", "apiVersion", "v1"), ("resourceFieldRef", "divisor", "0")]
    {
        let reference = variable.pointer_mut(&format!("/valueFrom/{reference}")).filter(|it| it.is_object());
        if let Some(reference) = reference.filter(|it| it.get(field).is_none_or(Value::is_null)) {
            set(reference, field, json!(default));
        }
    }
}

fn push(pod: &mut Value, pointer: &str, item: Value) {
    if let Some(list) = pod.pointer_mut(pointer).and_then(Value::as_array_mut) {
        list.push(item);
    }
}
