//! What runs `sluice uninstall` before Helm deletes a release: a Job, with an account of its own that goes with it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sluice_api::names;

use super::rights::{Right, of_hook};
use crate::object::{cluster_metadata, labels, metadata, set, set_in};
use crate::options::InstallOptions;
use crate::{rbac, workload};

/// Seconds that the Job may take: below Helm's own five minutes, so that its log is what is read.
const DEADLINE: u32 = 280;

/// The objects, for a chart alone: a manifest has no hooks. They leave the objects of the release to Helm.
#[must_use]
pub fn uninstall_hook_objects(options: &InstallOptions) -> Vec<Value> {
    let (at_home, of_cluster): (BTreeSet<_>, BTreeSet<_>) = of_hook(&options.namespace)
        .into_iter()
        .partition(|right| right.namespace.as_ref() == Some(&options.namespace));
    let account = rbac::account(options, names::UNINSTALL);
    let granted = [
        ("ClusterRole", cluster_metadata(names::UNINSTALL), of_cluster),
        ("Role", metadata(options, names::UNINSTALL), at_home),
    ];
    let granted = granted.into_iter().flat_map(|(kind, metadata, rights)| {
        [
            rbac::role(kind, metadata.clone(), rules(&rights)),
            rbac::binding(options, kind, metadata, names::UNINSTALL),
        ]
    });
    let mut objects: Vec<_> = std::iter::once(account).chain(granted).collect();
    for object in &mut objects {
        annotate(object, "-1");
    }
    let mut job = job(options);
    annotate(&mut job, "0");
    objects.push(job);
    objects
}

/// Helm creates them in the order of their weights and deletes them when all have succeeded. What a failed run has left is
/// deleted before the next one.
fn annotate(object: &mut Value, weight: &str) {
    let annotations = json!({
        "helm.sh/hook": "pre-delete",
        "helm.sh/hook-weight": weight,
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    });
    set_in(object, "metadata", "annotations", annotations);
}

/// One rule for all names of a resource that have the same verbs.
fn rules(rights: &BTreeSet<Right>) -> Value {
    let mut verbs: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for right in rights {
        let resource = match right.subresource {
            "" => right.resource.clone(),
            subresource => format!("{}/{subresource}", right.resource),
        };
        verbs.entry((&right.group, resource, &right.name)).or_default().insert(right.verb);
    }
    let mut names: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for ((group, resource, name), verbs) in verbs {
        let is_named = name.is_some();
        names.entry((group, resource, is_named, verbs)).or_default().extend(name.as_deref());
    }
    let rules = names.into_iter().map(|((group, resource, _, verbs), names)| {
        let mut rule = json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
        if !names.is_empty() {
            set(&mut rule, "resourceNames", json!(names));
        }
        rule
    });
    rules.collect()
}

fn job(options: &InstallOptions) -> Value {
    let arguments = ["uninstall", "--namespace=$(POD_NAMESPACE)", "--keep-objects"].map(str::to_owned);
    let container =
        workload::container_of(options, names::UNINSTALL, &arguments, &options.resources.operator);
    let mut pod = workload::pod_of(options, names::UNINSTALL, &container);
    set(&mut pod, "restartPolicy", json!("Never"));
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(options, names::UNINSTALL),
        "spec": {
            "backoffLimit": 3,
            "activeDeadlineSeconds": DEADLINE,
            // The NetworkPolicy of all pods lets it reach API servers.
            "template": { "metadata": { "labels": labels(Some(names::UNINSTALL)) }, "spec": pod },
        },
    })
}
