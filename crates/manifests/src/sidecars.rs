//! Containers of sidecar evaluators in the controller's pod.
//!
//! As application-aware-quota's operator runs them (`pkg/aaq-operator/resources/namespaced/controller.go`), but each with a
//! directory of its own, without the pod's token, and with no rights that the controller itself has not.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluice_api::{MOST_SIDECARS, REFUSED_SIDECAR, SIDECAR_SOCKETS, refused_sidecars};

use crate::asked::AskedOfPods;
use crate::object::{set, set_in};
use crate::of_evaluator::{OF_OBJECT, OfEvaluator, name};
use crate::security;

/// Memory where the `AAQ` names neither limit nor request: a limit, so that an evaluator that grows ends itself
/// and not the controller's node.
const MEMORY: &str = "256Mi";
/// Bytes of the volume of a socket.
const SOCKETS: &str = "1Mi";
/// Until a pod has run for so long, one of before does not go: a container that ends at once looks like one that works, for
/// a moment.
const PROVEN_AFTER: u32 = 10;
const OF_AAQ: &str = "--evaluator=";
/// Most bytes of all containers. etcd takes objects of 1.5 MiB, and a dry run does not ask it.
const MOST_BYTES: usize = 1 << 20;

impl AskedOfPods {
    /// Takes these, the eldest first, as long as there are places beside those of the `AAQ`. Those that would make the
    /// Deployment too large do not run. That of the `AAQ` runs of two with one name.
    pub fn find_places(&mut self, eldest_first: Vec<OfEvaluator>) -> NoPlace {
        let of_aaq = of_aaq(&self.sidecars);
        let left = MOST_SIDECARS.saturating_sub(of_aaq.len());
        let taken: BTreeSet<String> =
            of_aaq.iter().filter(|(_, is_refused)| !is_refused).map(|(it, _)| name(it).to_owned()).collect();
        let mut others = eldest_first;
        others.retain(|it| !taken.contains(it.name()));
        let without = others.split_off(left.min(others.len()));
        let too_many = without.iter().map(|it| it.name().to_owned()).collect();
        let (mut bytes, mut too_large) = (stored(&self.sidecars), Vec::new());
        for it in others.iter_mut().filter(|it| it.runs) {
            let with_it = bytes + stored(&it.container);
            it.runs = with_it <= MOST_BYTES;
            if it.runs {
                bytes = with_it;
            } else {
                too_large.push(it.name().to_owned());
            }
        }
        // Whichever is the eldest, the pods stay as they are.
        others.sort_by(|one, other| one.name().cmp(other.name()));
        self.of_evaluators = others;
        NoPlace { too_many, too_large }
    }
}

/// Names of containers that do not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoPlace {
    /// More run than may: they are not asked either.
    pub too_many: Vec<String>,
    /// They are asked: pods that they select wait.
    pub too_large: Vec<String>,
}

/// Bytes of it in the Deployment. Names of variables are in `managedFields` too, as a text in a text.
fn stored(containers: &Value) -> usize {
    Value::String(containers.to_string()).to_string().len()
}

/// Each with whether it is refused.
fn of_aaq(sidecars: &Value) -> Vec<(&Value, bool)> {
    let refused: Vec<usize> = refused_sidecars(sidecars).into_iter().map(|it| it.place).collect();
    let all = sidecars.as_array().into_iter().flatten().take(MOST_SIDECARS).enumerate();
    all.map(|(place, it)| (it, refused.contains(&place))).collect()
}

/// Adds the containers to the controller's Deployment, whose own container is the first.
///
/// One that is refused is left out, and asked all the same: pods wait, rather than being counted without it. Of an `AAQ` all
/// of them wait, of an `Evaluator` those that it selects.
pub(crate) fn add(deployment: &mut Value, asked: &AskedOfPods) {
    let of_aaq = of_aaq(&asked.sidecars);
    if of_aaq.is_empty() && asked.of_evaluators.is_empty() {
        return;
    }
    let Some(pod) = deployment.pointer_mut("/spec/template/spec") else { return };
    let pull_policy = asked.image_pull_policy.as_deref();
    let mut place = |flag: &str, name: &str, at: &str, volume: &str, container: Option<&Value>| {
        let directory = format!("{SIDECAR_SOCKETS}/{at}");
        push(pod, "/containers/0/args", json!(format!("{flag}{name}={directory}")));
        push(pod, "/containers/0/volumeMounts", json!({ "name": volume, "mountPath": directory }));
        let limited = json!({ "medium": "Memory", "sizeLimit": SOCKETS });
        push(pod, "/volumes", json!({ "name": volume, "emptyDir": limited }));
        if let Some(container) = container {
            push(pod, "/containers", sidecar(container, volume, pull_policy));
        }
    };
    for (number, (container, is_refused)) in of_aaq.into_iter().enumerate() {
        // What is refused because of its name has none that could be asked by.
        let asked_by =
            if is_refused { format!("{REFUSED_SIDECAR}{number}") } else { name(container).to_owned() };
        let volume = format!("sockets-{number}");
        place(OF_AAQ, &asked_by, &number.to_string(), &volume, (!is_refused).then_some(container));
    }
    for it in &asked.of_evaluators {
        let volume = format!("evaluator-{}", it.name());
        place(OF_OBJECT, it.name(), &volume, &volume, it.runs.then_some(&it.container));
    }
    set_in(deployment, "spec", "minReadySeconds", json!(PROVEN_AFTER));
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
