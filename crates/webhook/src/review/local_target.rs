//! Whether a new pod is the target of a local migration, by what KubeVirt's controller writes into it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm};
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
    /// Whether the source of the migration runs in the same namespace and is charged to the same quotas. The same rule as in
    /// the admission policy `sluice-gate` (`local_target` in `crates/manifests/src/expressions.rs`), where its reasons are.
    pub fn is_local_target(&self) -> bool {
        let label = |key| self.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        let (Some(_), Some(machine)) = (label(names::MIGRATION_JOB_LABEL), label(names::CREATED_BY_LABEL))
        else {
            return false;
        };
        self.spec.affinity.as_ref().is_some_and(|affinity| {
            is_beside(affinity, machine) && !excludes_a_node(affinity) && !is_across_namespaces(affinity)
        })
    }
}

/// Of a longer list the policy, which cannot look into it, assumes the worst.
fn any<T>(list: Option<&Vec<T>>, rule: impl FnMut(&T) -> bool) -> bool {
    list.is_some_and(|list| list.len() > names::MOST_ITEMS || list.iter().any(rule))
}

fn is_beside(affinity: &Affinity, machine: &str) -> bool {
    let avoided = affinity.pod_anti_affinity.as_ref();
    let avoided = avoided.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    avoided.filter(|terms| terms.len() <= names::MOST_ITEMS).into_iter().flatten().any(|term| {
        let labels = term.label_selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
        labels.and_then(|labels| labels.get(names::CREATED_BY_LABEL)).is_some_and(|it| it == machine)
    })
}

fn excludes_a_node(affinity: &Affinity) -> bool {
    let nodes = affinity.node_affinity.as_ref();
    let nodes = nodes.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    any(nodes.map(|nodes| &nodes.node_selector_terms), |term| {
        any(term.match_expressions.as_ref(), |it| it.key == names::HOSTNAME_LABEL && it.operator == "NotIn")
    })
}

fn is_across_namespaces(affinity: &Affinity) -> bool {
    let (sought, avoided) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
    let is_across = |term: &PodAffinityTerm| {
        term.namespace_selector.is_some() || term.namespaces.as_ref().is_some_and(|names| !names.is_empty())
    };
    let required = [
        sought.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref()),
        avoided.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref()),
    ];
    let preferred = [
        sought.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref()),
        avoided.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref()),
    ];
    required.into_iter().any(|terms| any(terms, is_across))
        || preferred.into_iter().any(|terms| any(terms, |it| is_across(&it.pod_affinity_term)))
}
