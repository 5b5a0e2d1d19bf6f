//! Whether an object is kept by another program.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::names;

use super::PART_OF;

/// Label of the program that keeps an object.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Labels of the Operator Lifecycle Manager, as HyperConverged's CRDs have them: the start of one, and another.
const OF_OLM: [&str; 2] = ["operators.coreos.com/", "olm.managed"];

/// Whether it has an owner, or a label of another program: of one that keeps it, of the Operator Lifecycle Manager, or of
/// application-aware-quota's operator. Helm labels what it applies, also of this installation's chart in `namespace`.
#[must_use]
pub fn is_of_others(object: &ObjectMeta, namespace: &str) -> bool {
    let label = |name: &str| object.labels.as_ref()?.get(name).map(String::as_str);
    let release = object.annotations.as_ref().and_then(|all| all.get("meta.helm.sh/release-namespace"));
    let is_of_helm = |by: &str| by == "Helm" && release.is_some_and(|release| release == namespace);
    let is_of_operator =
        |name: &String| OF_OLM.iter().any(|start| name.starts_with(start)) || name == names::FINALIZER;
    object.owner_references.as_ref().is_some_and(|owners| !owners.is_empty())
        || label(PART_OF).is_some_and(|whole| whole != names::APP)
        || label(MANAGED_BY).is_some_and(|by| by != names::APP && !is_of_helm(by))
        || object.labels.as_ref().is_some_and(|labels| labels.keys().any(is_of_operator))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_owner_or_a_label_of_another_program_is_of_others() {
        let of_others = |metadata: Value| is_of_others(&serde_json::from_value(metadata).unwrap(), "here");
        let labelled = |name: &str, value: &str| of_others(json!({ "labels": { name: value } }));
        assert!(!of_others(json!({})));
        assert!(!labelled(PART_OF, "sluice") && !labelled(MANAGED_BY, "sluice"));
        assert!(labelled(PART_OF, "hyperconverged-cluster") && labelled(MANAGED_BY, "aaq-operator"));
        assert!(labelled("operators.coreos.com/kubevirt-hyperconverged.kubevirt-hyperconverged", ""));
        assert!(labelled("olm.managed", "true") && labelled("operator.aaq.kubevirt.io", ""));
        let helm = |at: &str| {
            let annotations = json!({ "meta.helm.sh/release-namespace": at });
            of_others(json!({ "labels": { MANAGED_BY: "Helm" }, "annotations": annotations }))
        };
        assert!(labelled(MANAGED_BY, "Helm") && helm("there") && !helm("here"));
        let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u" });
        assert!(of_others(json!({ "ownerReferences": [owner] })));
    }
}
