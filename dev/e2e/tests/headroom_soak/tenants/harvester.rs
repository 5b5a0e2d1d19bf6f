//! The first field report of `docs/predecessors.md`: scenarios A to F, each without and with Rancher's webhook.
//!
//! Quotas, usage, requests and messages are those of the report to the byte. Its pods came from KubeVirt 0.54 (B to E) and
//! 1.1 (A, F); KubeVirt 1.7 adds more overhead, so the machines here are smaller by the difference:
//!
//! | scenario | machine of the report (limit, request) | here | overhead then, now | pod (limit, request) |
//! | --- | --- | --- | --- | --- |
//! | A, F | 4 cores, 8Gi, 5461Mi | 8166Mi, 5461Mi | 266Mi, 292Mi | 8940039936 |
//! | B | 2 cores, 4Gi, 2730Mi | 4236361505, 2804006689 | 220Mi, 276Mi | 4531245057, 3098890241 |
//! | C, D | 1 core, 2Gi, 1365Mi | 2088877857, 1372700449 | 212Mi, 268Mi | 2372577281, 1656399873 |
//! | E | 1 core, 1Gi, 682Mi | 1015136031, 656523039 | 212Mi, 268Mi | 1297436672, 916820Ki |
//!
//! The overhead depends on the request too (1/512 of it), hence the odd numbers; Kubernetes prints sums of such requests in
//! bytes where the report has Ki (E: 916820Ki is 938823680). In B to E the container of the serial console is left out (15m,
//! 60M): KubeVirt 0.54 had none. KubeVirt's limits of parallel migrations (5 and 2 in the report) are lifted, except in
//! `at_a_time`, `node_by_node` and `mtq::many`: all machines of D ask for their room at once. D's quota is what its four
//! machines use; that of the report had 30 cores and 60Gi, which stop no migration.

mod at_a_time;
mod beside;
mod customer;
mod evacuation;
mod node_by_node;
mod test1sub1;

use serde_json::json;
use sluice_e2e::tenant::Tenant;
use sluice_testbed::kubevirt::VmBuilder;

use crate::tenants::scene::{Amounts, amounts, machine};

/// The quota of scenarios B to E.
const QUOTA: &str = "default-gn4d2";

/// B: 2 cores, 4Gi.
fn two_cores(tenant: &Tenant<'_>, name: &str) -> VmBuilder {
    without_console(machine(tenant, name, (2, "4236361505"), ("125m", "2804006689")))
}

/// C and D: 1 core, 2Gi.
fn one_core(tenant: &Tenant<'_>, name: &str) -> VmBuilder {
    without_console(machine(tenant, name, (1, "2088877857"), ("62m", "1372700449")))
}

/// E: 1 core, 1Gi.
fn small(tenant: &Tenant<'_>, name: &str) -> VmBuilder {
    without_console(machine(tenant, name, (1, "1015136031"), ("62m", "656523039")))
}

/// A and F: 4 cores, 8Gi.
fn four_cores(tenant: &Tenant<'_>, name: &str) -> VmBuilder {
    machine(tenant, name, (4, "8166Mi"), ("250m", "5461Mi"))
}

fn without_console(machine: VmBuilder) -> VmBuilder {
    machine.spec(json!({ "domain": { "devices": { "logSerialConsole": false } } }))
}

/// The thirteen keys of [`QUOTA`], with these amounts instead of those of B.
fn thirteen_keys(changed: &[(&str, &str)]) -> Amounts {
    let mut all = amounts(&[
        ("configmaps", "15"),
        ("limits.cpu", "30"),
        ("limits.memory", "60Gi"),
        ("persistentvolumeclaims", "75"),
        ("pods", "50"),
        ("replicationcontrollers", "50"),
        ("requests.cpu", "30"),
        ("requests.memory", "60Gi"),
        ("requests.storage", "320Gi"),
        ("secrets", "65"),
        ("services", "15"),
        ("services.loadbalancers", "1"),
        ("services.nodeports", "15"),
    ]);
    all.extend(amounts(changed));
    all
}

/// What else the quota counts: volumes of these sizes and secrets.
async fn add_volumes_and_secrets(tenant: &Tenant<'_>, sizes: &[&str], secrets: usize) {
    let volumes = sizes.iter().enumerate().map(|(number, size)| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": format!("disk-{number}"), "namespace": tenant.name() },
            "spec": {
                "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "longhorn",
                "resources": { "requests": { "storage": size } },
            },
        })
    });
    let secrets = (0..secrets).map(|number| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": format!("cloudinit-{number}"), "namespace": tenant.name() },
        })
    });
    tenant.bed.apply_objects(volumes.chain(secrets)).await.unwrap();
}
