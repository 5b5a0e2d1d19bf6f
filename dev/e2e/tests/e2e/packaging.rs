//! What Helm and kustomize make of `deploy/`, with each set of values and each component, is taken by an API server that
//! refuses every field that it does not know, and applying it again changes nothing.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;
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

/// Applies it twice. A field that is unknown or there twice is an error, and the second time nothing changes.
async fn is_applied_twice(bed: &Bed, what: &str, text: &str) {
    let ours: Vec<&str> = text.split("\n---\n").filter(|object| !object.contains(OF_OTHERS)).collect();
    assert!(ours.len() > 20, "{what}: {} objects", ours.len());
    let file = manifest(bed, "rendered.yaml", &ours.join("\n---\n"));
    // The sets follow each other on one cluster, as values that a user changes do; nothing else writes these fields.
    let apply = ["apply", "--server-side", "--validate=strict", "--filename", &file];
    let mut versions = Vec::new();
    for _ in 0..2 {
        let (is_done, stdout, stderr) = kubectl_tries(bed, &apply).await;
        assert!(is_done, "{what}: {stdout}{stderr}");
        let list = kubectl(bed, &["get", "--output=json", "--filename", &file]).await;
        versions.push(versions_of(&serde_json::from_str(&list).unwrap()));
    }
    assert!(versions[0].len() > 15, "{what}: {:?}", versions[0]);
    assert_eq!(versions[1], versions[0], "{what}: the same once more changes something");
}

/// The generation of each object. Where a kind has none, its version: then nobody writes a status either.
fn versions_of(list: &Value) -> BTreeMap<String, String> {
    let items = list["items"].as_array().unwrap().iter();
    let version = |object: &Value| match &object["metadata"]["generation"] {
        Value::Null if object.get("status").is_some() => None,
        Value::Null => Some(object["metadata"]["resourceVersion"].to_string()),
        generation => Some(generation.to_string()),
    };
    let named = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    items.filter_map(|object| Some((named(object), version(object)?))).collect()
}

/// The way from one folder to another: kustomize takes no absolute paths.
pub fn way(from: &Path, to: &Path) -> PathBuf {
    let up = from.components().filter(|part| matches!(part, Component::Normal(_))).map(|_| "..");
    up.collect::<PathBuf>().join(to.strip_prefix("/").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_set_of_values_and_every_component_is_applied_twice_and_the_second_time_nothing_changes() {
    let bed = idle_bed().await;
    kubectl(&bed, &["create", "namespace", names::INSTALL_NAMESPACE]).await;
    let unknown = manifest(
        &bed,
        "unknown.yaml",
        // An older kubectl takes what begins with a bracket for JSON.
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\ndate: {}\n",
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
        is_applied_twice(&bed, &values.display().to_string(), &rendered(&arguments).await).await;
    }

    let overlay = bed.dir().canonicalize().unwrap().join("overlay");
    std::fs::create_dir(&overlay).unwrap();
    let base = way(&overlay, &deploy("kustomize/operator"));
    for component in std::fs::read_dir(deploy("kustomize/components")).unwrap() {
        let component = way(&overlay, &component.unwrap().path());
        let text = format!("resources: [{}]\ncomponents: [{}]\n", base.display(), component.display());
        std::fs::write(overlay.join("kustomization.yaml"), text).unwrap();
        let built = rendered(&["kustomize-build", overlay.to_str().unwrap()]).await;
        is_applied_twice(&bed, &component.display().to_string(), &built).await;
    }
}
