//! What Helm and kustomize make of `deploy/`, with each set of values and each component, is taken by an API server that
//! refuses every field that it does not know.

use std::path::{Component, Path, PathBuf};

use sluice_api::names;
use sluice_testbed::{Bed, artifacts};

use crate::context::{idle_bed, kubectl, kubectl_tries, manifest};

/// Kinds of others, which the bed does not have.
const OF_OTHERS: &str = "apiVersion: monitoring.coreos.com/";

pub fn deploy(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy")).join(path).canonicalize().unwrap()
}

/// What the program that renders prints.
async fn rendered(arguments: &[&str]) -> String {
    let program = tokio::task::spawn_blocking(artifacts::packaging).await.unwrap().unwrap();
    let output = tokio::process::Command::new(program).args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Sends it in a dry run, in which a field that is unknown or there twice is an error.
async fn is_taken(bed: &Bed, what: &str, text: &str) {
    let ours: Vec<&str> = text.split("\n---\n").filter(|object| !object.contains(OF_OTHERS)).collect();
    assert!(ours.len() > 20, "{what}: {} objects", ours.len());
    let file = manifest(bed, "rendered.yaml", &ours.join("\n---\n"));
    let arguments = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename", &file];
    let (is_done, stdout, stderr) = kubectl_tries(bed, &arguments).await;
    assert!(is_done, "{what}: {stdout}{stderr}");
}

/// The way from one folder to another: kustomize takes no absolute paths.
pub fn way(from: &Path, to: &Path) -> PathBuf {
    let up = from.components().filter(|part| matches!(part, Component::Normal(_))).map(|_| "..");
    up.collect::<PathBuf>().join(to.strip_prefix("/").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_set_of_values_and_every_component_is_taken_by_a_strict_api_server() {
    let bed = idle_bed().await;
    kubectl(&bed, &["create", "namespace", names::INSTALL_NAMESPACE]).await;
    let unknown = manifest(
        &bed,
        "unknown.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}, date: {}}",
    );
    let arguments =
        ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename", &unknown];
    let (is_done, _, stderr) = kubectl_tries(&bed, &arguments).await;
    assert!(!is_done && stderr.contains("date"), "such a field is refused: {stderr}");

    let chart = deploy("helm/sluice");
    let mut sets: Vec<PathBuf> =
        std::fs::read_dir(chart.join("ci")).unwrap().map(|entry| entry.unwrap().path()).collect();
    sets.sort();
    assert!(sets.len() >= 12, "{sets:?}");
    for values in &sets {
        let arguments = [
            "helm-template",
            chart.to_str().unwrap(),
            "sluice",
            names::INSTALL_NAMESPACE,
            "1.36",
            values.to_str().unwrap(),
        ];
        is_taken(&bed, &values.display().to_string(), &rendered(&arguments).await).await;
    }

    let overlay = bed.dir().canonicalize().unwrap().join("overlay");
    std::fs::create_dir(&overlay).unwrap();
    let base = way(&overlay, &deploy("kustomize/operator"));
    for component in std::fs::read_dir(deploy("kustomize/components")).unwrap() {
        let component = way(&overlay, &component.unwrap().path());
        let text = format!("resources: [{}]\ncomponents: [{}]\n", base.display(), component.display());
        std::fs::write(overlay.join("kustomization.yaml"), text).unwrap();
        let built = rendered(&["kustomize-build", overlay.to_str().unwrap()]).await;
        is_taken(&bed, &component.display().to_string(), &built).await;
    }
}
