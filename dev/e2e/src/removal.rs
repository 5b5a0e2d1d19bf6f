//! `sluice uninstall` on a bed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "helpers of tests, which fail by panicking"
)]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use sluice_testbed::Bed;
use tokio::process::Command;

use crate::build;
use crate::call::get;

/// The whole command; 3,000 pods that wait take most of it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Kinds of which `sluice uninstall` leaves no object with Sluice's label; CRDs have none.
pub const OURS: [&str; 15] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/coordination.k8s.io/v1/leases",
    "/api/v1/serviceaccounts",
    "/api/v1/secrets",
    "/api/v1/resourcequotas",
];

/// Further kinds with no object left. Others write in their objects too, as the controllers of Kubernetes do.
const FURTHER: [&str; 6] = [
    "/apis/apps/v1/deployments",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/services",
    "/api/v1/configmaps",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
];
/// No object at all is left here: charges have no label.
const CHARGES: &str = "/apis/quota.sluice.dev/v1alpha1/clusterquotacharges";

/// The command, with its report as JSON.
#[must_use]
pub fn command(kubeconfig: &Path) -> Command {
    let mut command = Command::new(build::sluice().unwrap());
    command.args(["uninstall", "--output", "json", "--kubeconfig"]).arg(kubeconfig);
    command.env_remove("POD_NAMESPACE").kill_on_drop(true);
    command
}

/// Runs the command to its end, which has to have this code; returns what it reports.
pub async fn uninstall(bed: &Bed, code: i32, arguments: &[&str]) -> Value {
    let mut command = command(bed.admin_kubeconfig());
    let running = command.args(arguments).output();
    let output = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    let (stdout, stderr) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{}{stderr}", String::from_utf8_lossy(stdout));
    serde_json::from_slice(stdout).unwrap()
}

/// Starts the command and kills it after this time, wherever it is.
pub async fn killed_after(bed: &Bed, time: Duration) {
    let mut command = command(bed.admin_kubeconfig());
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    if tokio::time::timeout(time, running.wait()).await.is_err() {
        running.kill().await.unwrap();
    }
}

/// Nothing with Sluice's label is left of [`OURS`] and of what the operator and the controller make besides.
pub async fn assert_nothing_of_ours(client: &Client) {
    for kind in OURS.iter().chain(&FURTHER) {
        let list =
            get(client, &format!("{kind}?labelSelector=app.kubernetes.io/part-of=sluice")).await.unwrap();
        // Before Kubernetes 1.36 there are no policies that mutate.
        let is_unknown = list.code == 404 && kind.contains("mutatingadmission");
        assert!(is_unknown || items(&list.body) == 0, "{kind}: {:#}", list.body);
    }
    let charges = get(client, CHARGES).await.unwrap();
    assert_eq!(items(&charges.body), 0, "{CHARGES}: {:#}", charges.body);
}

/// How many items a list has.
#[must_use]
pub fn items(list: &Value) -> usize {
    list["items"].as_array().map_or(usize::MAX, Vec::len)
}

/// The rows of a report with this action.
#[must_use]
pub fn rows<'r>(report: &'r Value, action: &str) -> Vec<&'r Value> {
    report["rows"].as_array().unwrap().iter().filter(|row| row["action"] == action).collect()
}
