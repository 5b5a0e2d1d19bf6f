//! What ends, once, what a managed-tenant-quota that crashed left behind: a Job with an identity of its own.

use serde_json::{Value, json};
use sluice_api::names;

use crate::options::InstallOptions;
use crate::rbac::{ADMISSION, account, binding, role, rule};
use crate::render::{cluster_metadata, labels, metadata};
use crate::workload;

/// How long the finished Job and its log are kept, in seconds.
const KEPT_SECONDS: u32 = 86_400;

/// ServiceAccount, rights and Job. Not part of an installation: applied once, and deleted afterwards.
pub fn mtq_cleanup_objects(options: &InstallOptions) -> Vec<Value> {
    let name = names::MTQ_CLEANUP;
    let status = format!("{}/status", names::VMMRQS);
    let rules = json!([
        rule("", &["namespaces"], &["get"]),
        rule("", &["resourcequotas"], &["list", "patch"]),
        rule("", &["resourcequotas/status"], &["patch"]),
        rule(names::MTQ_GROUP, &[names::VMMRQS], &["list"]),
        rule(names::MTQ_GROUP, &[&status], &["patch"]),
        // Locks have the names of their namespaces.
        rule(ADMISSION, &["validatingwebhookconfigurations"], &["list", "delete"]),
        // Whether a managed-tenant-quota is alive, in whichever namespace.
        rule("coordination.k8s.io", &["leases"], &["list"]),
    ]);
    let pod = workload::one_shot(options, name, &["mtq-leftovers", "--clean"]);
    vec![
        account(options, name),
        role("ClusterRole", cluster_metadata(name), rules),
        binding(options, "ClusterRole", cluster_metadata(name), name),
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata(options, name),
            "spec": {
                "backoffLimit": 2,
                "ttlSecondsAfterFinished": KEPT_SECONDS,
                "template": { "metadata": { "labels": labels(Some(name)) }, "spec": pod },
            },
        }),
    ]
}
