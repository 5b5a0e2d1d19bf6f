//! Whether a new pod is the target of a local migration, by what KubeVirt's controller writes into it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Affinity;
use serde::Deserialize;
use sluice_api::names;

/// A pod, narrowed to what tells targets of migrations apart. Read for pods of KubeVirt's controller alone.
#[derive(Debug, Deserialize)]
pub struct LauncherView {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    affinity: Option<Affinity>,
}

impl LauncherView {
    /// Whether the source of the migration runs in the same namespace. The same rule as in the admission policy `sluice-gate`
    /// (`local_target` in `crates/operator/src/expressions.rs`), with the places in KubeVirt.
    pub fn is_local_target(&self) -> bool {
        let label = |key| self.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        let (Some(_), Some(machine)) = (label(names::MIGRATION_JOB_LABEL), label(names::CREATED_BY_LABEL))
        else {
            return false;
        };
        let Some(affinity) = &self.spec.affinity else { return false };
        let avoided = affinity.pod_anti_affinity.as_ref();
        let mut avoided = avoided
            .and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref())
            .into_iter()
            .flatten();
        let is_beside_its_machine = avoided.any(|term| {
            let labels = term.label_selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
            labels.and_then(|labels| labels.get(names::CREATED_BY_LABEL)) == Some(machine)
        });
        let nodes = affinity.node_affinity.as_ref();
        let nodes = nodes.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = nodes.into_iter().flat_map(|nodes| &nodes.node_selector_terms);
        let mut requirements = terms.filter_map(|term| term.match_expressions.as_ref()).flatten();
        is_beside_its_machine
            && !requirements.any(|it| it.key == names::HOSTNAME_LABEL && it.operator == "NotIn")
    }
}
