//! A pod cut to what counting needs, where the pods of a namespace are too many to be sent whole.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The JSON of a pod without all but its names, labels, owners, resources, images, node and phase. A text that is no pod is
/// left as it is.
#[must_use]
pub fn cut_to_what_counts(json: &[u8]) -> Vec<u8> {
    let cut = serde_json::from_slice::<Cut<'_>>(json).and_then(|pod| serde_json::to_vec(&pod));
    cut.unwrap_or_else(|_| json.to_vec())
}

macro_rules! kept {
    ($name:ident: $($field:ident),+; $($nested:ident: $of:ty),*) => {
        #[derive(Deserialize, Serialize)]
        #[serde(rename_all = "camelCase")]
        struct $name<'j> {
            $(#[serde(borrow, default, skip_serializing_if = "Option::is_none")] $field: Option<&'j RawValue>,)+
            $(#[serde(borrow, default, skip_serializing_if = "Option::is_none")] $nested: Option<$of>,)*
        }
    };
}

#[derive(Deserialize, Serialize)]
struct Cut<'j> {
    #[serde(borrow, default)]
    metadata: Option<Metadata<'j>>,
    #[serde(borrow, default)]
    spec: Option<Spec<'j>>,
    #[serde(borrow, default)]
    status: Option<Status<'j>>,
}

kept!(Metadata: name, namespace, uid, labels, owner_references, creation_timestamp, deletion_timestamp,
      deletion_grace_period_seconds;);
kept!(Spec: node_name, scheduling_gates, priority_class_name, runtime_class_name, overhead, resources,
      active_deadline_seconds; containers: Vec<Container<'j>>, init_containers: Vec<Container<'j>>);
kept!(Container: name, image, resources, restart_policy;);
kept!(Status: phase, qos_class;);

#[cfg(test)]
mod tests {
    use super::cut_to_what_counts;

    #[test]
    fn cutting_leaves_what_counts() {
        let pod = serde_json::json!({
            "metadata": {"name": "p", "uid": "u", "labels": {"app": "a"}, "annotations": {"x": "long"}},
            "spec": {"nodeName": "n", "volumes": [], "schedulingGates": [{"name": "g"}], "containers": [
                {"name": "c", "image": "i", "env": [{"name": "E", "value": "v"}], "resources": {"limits": {"cpu": "1"}}},
            ]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
        });
        let expected = serde_json::json!({
            "metadata": {"name": "p", "uid": "u", "labels": {"app": "a"}},
            "spec": {"nodeName": "n", "schedulingGates": [{"name": "g"}], "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}},
            ]},
            "status": {"phase": "Running"},
        });
        let cut = cut_to_what_counts(pod.to_string().as_bytes());
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&cut).expect("JSON"), expected);
        assert_eq!(cut_to_what_counts(b"["), b"[");
    }
}
