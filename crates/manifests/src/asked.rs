//! What `AAQ` or `MTQ` ask of the pods of controller and webhook.

use serde_json::{Map, Value, json};

use crate::object::set;
use crate::of_evaluator::OfEvaluator;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// Where a pod runs, by the paths in its specification, which are those of `spec.infra` too. Each is one value to the API
/// server (`k8s.io/api/core/v1/types.go`).
const PLACEMENT: [&[&str]; 8] = [
    &["nodeSelector"],
    &["affinity", "nodeAffinity", REQUIRED],
    &["affinity", "nodeAffinity", PREFERRED],
    &["affinity", "podAffinity", REQUIRED],
    &["affinity", "podAffinity", PREFERRED],
    &["affinity", "podAntiAffinity", REQUIRED],
    &["affinity", "podAntiAffinity", PREFERRED],
    &["tolerations"],
];

/// What is asked of the pods; what is not asked, the options of the installation say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AskedOfPods {
    /// `spec.infra`: where they run. Null: nothing is asked.
    pub infra: Value,
    /// `spec.imagePullPolicy`.
    pub image_pull_policy: Option<String>,
    /// `spec.priorityClass`, if the cluster has it: otherwise no pod could be made.
    pub priority_class: Option<String>,
    /// `spec.configuration.sidecarEvaluators`: containers beside the controller. Null: there are none.
    pub sidecars: Value,
    /// Further ones, which `Evaluator`s name: what [`Self::find_places`] has found a place for.
    pub of_evaluators: Vec<OfEvaluator>,
}

impl AskedOfPods {
    /// Makes the specification of a pod what is asked. What `infra` says replaces all of the placement: what it does not
    /// say is null, by which server-side apply takes away what others have set.
    pub(crate) fn set(&self, pod: &mut Value) {
        let asked = PLACEMENT.map(|path| (path, find(&self.infra, path).cloned().unwrap_or_default()));
        if asked.iter().any(|(_, value)| !is_nothing(value)) {
            for (path, value) in asked {
                put(pod, path, if is_nothing(&value) { Value::Null } else { value });
            }
        }
        if let Some(class) = &self.priority_class {
            set(pod, "priorityClassName", json!(class));
        }
        if let Some(policy) = &self.image_pull_policy {
            let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
            containers.into_iter().flatten().for_each(|each| set(each, "imagePullPolicy", json!(policy)));
        }
    }
}

fn find<'v>(infra: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(infra, |at, name| at.get(name))
}

/// An empty selector or list asks for nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn put(at: &mut Value, path: &[&str], value: Value) {
    match path {
        [] => {}
        [last] => set(at, last, value),
        [first, rest @ ..] => {
            let inner = at.as_object_mut().map(|fields| fields.entry(*first));
            if let Some(inner) = inner {
                put(inner.or_insert_with(|| Value::Object(Map::new())), rest, value);
            }
        }
    }
}
