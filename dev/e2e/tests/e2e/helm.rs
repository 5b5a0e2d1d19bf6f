//! The chart in `deploy/helm`, by Helm itself, on a cluster: installed, upgraded, rolled back and uninstalled.

use std::process::Output;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};
use sluice_api::names;
use sluice_e2e::objects::TARGETED;
use sluice_manifests::uninstall::{Part, inventory};
use sluice_testbed::{Bed, BedOptions, artifacts, wait};

use crate::context::{SOON, kubectl, kubectl_tries, manifest};
use crate::existence::{end_with_deployment, there, until_gated};
use crate::install;
use crate::team::Team;
use crate::why::said;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/sluice");
const CRDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds.yaml");
/// Those of application-aware-quota, and who writes them there.
const UPSTREAMS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/application-aware-quota/definitions.yaml");
const UPSTREAM: &str = "aaq-operator";
/// Groups of kinds that the bed does not have.
const OF_OTHERS: [&str; 2] = ["cert-manager.io", "monitoring.coreos.com"];
const RELEASE: &str = "sluice";
/// As `docs/install.md` says.
const INSTALL: [&str; 8] = [
    "install",
    RELEASE,
    CHART,
    "--create-namespace",
    "--set",
    "image.registry=registry.example.com",
    "--set",
    "image.repository=sluice",
];

async fn helm_tries(bed: &Bed, arguments: &[&str]) -> Output {
    let program = tokio::task::spawn_blocking(artifacts::helm).await.unwrap().unwrap();
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).args(["--namespace", names::INSTALL_NAMESPACE]).kill_on_drop(true);
    command.env("KUBECONFIG", bed.admin_kubeconfig());
    for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(folder, bed.dir().join(folder));
    }
    tokio::time::timeout(Duration::from_secs(120), command.output()).await.unwrap().unwrap()
}

/// What Helm prints, which has to succeed.
async fn helm(bed: &Bed, arguments: &[&str]) -> String {
    let output = helm_tries(bed, arguments).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "helm {arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until the operator's Deployment has so many replicas, all of them available.
async fn until_replicas(client: &Client, replicas: i32) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), names::INSTALL_NAMESPACE);
    let what = format!("{replicas} replicas of the operator");
    let has = |deployment: Option<&Deployment>| {
        let spec = deployment.and_then(|deployment| deployment.spec.replicas);
        let status = deployment.and_then(|deployment| deployment.status.as_ref()?.available_replicas);
        (spec, status) == (Some(replicas), Some(replicas))
    };
    wait::wait_for(&deployments, names::OPERATOR, SOON, &what, has).await.unwrap();
}

/// What the API server counts as changes of the release's objects.
async fn generations(bed: &Bed) -> String {
    let release = manifest(bed, "release.yaml", &helm(bed, &["get", "manifest", RELEASE]).await);
    let columns = "--output=custom-columns=KIND:.kind,NAME:.metadata.name,GENERATION:.metadata.generation";
    kubectl(bed, &["get", columns, "--filename", &release]).await
}

/// Definitions as application-aware-quota leaves them, with a quota of a user.
async fn left_by_upstream(bed: &Bed, name: &str) -> Team {
    let manager = format!("--field-manager={UPSTREAM}");
    kubectl(bed, &["create", &manager, "--filename", UPSTREAMS]).await;
    kubectl(bed, &["wait", "--for=condition=Established", "--timeout=1m", "--filename", UPSTREAMS]).await;
    let team = Team::with(bed, name, TARGETED).await;
    team.quota("none", &[("pods", "0")]).await;
    team
}

/// Waits until the gate of the release holds a pod.
async fn holds(bed: &Bed, team: &Team) {
    kubectl(bed, &["wait", "--for=create", "--timeout=2m", "aaq/aaq"]).await;
    until_gated(team, true).await;
    team.pod("held", &[]).await;
    assert_eq!(team.held().await, ["held"]);
}

/// As `docs/install.md` says for who does not let Helm take them over.
#[tokio::test(flavor = "multi_thread")]
async fn with_the_definitions_apart_a_release_leaves_upstreams_to_who_has_applied_ours_over_them() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    bed.add_nodes(2, &[("cpu", "4"), ("memory", "8Gi")]).await.unwrap();
    let client = bed.admin().unwrap();
    let team = left_by_upstream(&bed, "apart").await;
    // kubectl names the manager whose fields it would take, until that is said.
    let (is_done, _, stderr) = kubectl_tries(&bed, &["apply", "--server-side", "--filename", CRDS]).await;
    assert!(!is_done && stderr.contains("--force-conflicts") && stderr.contains(UPSTREAM), "{stderr}");
    kubectl(&bed, &["apply", "--server-side", "--force-conflicts", "--filename", CRDS]).await;
    helm(&bed, &[&INSTALL[..], &["--set", "crds.enabled=false"]].concat()).await;
    let operator = install::operator(&bed).await;
    until_replicas(&client, 2).await;
    holds(&bed, &team).await;

    let command = ["uninstall", "--keep-objects", "--namespace", names::INSTALL_NAMESPACE];
    tokio::join!(said(&bed, 0, &command), end_with_deployment(&client, names::OPERATOR, &operator));
    helm(&bed, &["uninstall", RELEASE, "--wait"]).await;
    kubectl(&bed, &["get", "--filename", CRDS]).await;
    assert!(team.quotas.get("none").await.is_ok(), "quotas stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_installed_upgraded_rolled_back_and_uninstalled() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    bed.add_nodes(2, &[("cpu", "4"), ("memory", "8Gi")]).await.unwrap();
    let client = bed.admin().unwrap();

    // Definitions that others have applied are taken over only where that is said.
    let team = left_by_upstream(&bed, "release").await;
    let refused = helm_tries(&bed, &INSTALL).await;
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("invalid ownership metadata"), "{why}");
    let notes = helm(&bed, &[&INSTALL[..], &["--take-ownership"]].concat()).await;
    assert!(notes.contains("STATUS: deployed") && notes.contains("kubectl wait"), "{notes}");
    let operator = install::operator(&bed).await;
    until_replicas(&client, 2).await;
    holds(&bed, &team).await;

    let upgrade = ["upgrade", RELEASE, CHART, "--reuse-values", "--set", "replicas=3"];
    helm(&bed, &upgrade).await;
    until_replicas(&client, 3).await;
    let before = generations(&bed).await;
    assert!(before.lines().count() > 20, "{before}");
    helm(&bed, &upgrade).await;
    assert_eq!(generations(&bed).await, before, "the same once more changes nothing");
    helm(&bed, &["rollback", RELEASE, "1"]).await;
    until_replicas(&client, 2).await;
    until_gated(&team, true).await;
    assert_eq!(team.held().await, ["held"], "nothing of it lets go what waits");

    let command = ["uninstall", "--keep-objects", "--namespace", names::INSTALL_NAMESPACE];
    tokio::join!(said(&bed, 0, &command), end_with_deployment(&client, names::OPERATOR, &operator));
    helm(&bed, &["uninstall", RELEASE, "--wait"]).await;
    assert_eq!(team.held().await, Vec::<String>::new());
    until_gated(&team, false).await;
    let is_served = |part: &Part| !OF_OTHERS.contains(&part.object.kind.group.as_str());
    let parts = inventory(names::INSTALL_NAMESPACE).into_iter().filter(is_served);
    let namespace = format!("Namespace {}", names::INSTALL_NAMESPACE);
    assert_eq!(there(&client, parts).await, [namespace], "it is no part of the release");
    kubectl(&bed, &["get", "--filename", CRDS]).await;
    assert!(team.quotas.get("none").await.is_ok(), "quotas stay");
}
