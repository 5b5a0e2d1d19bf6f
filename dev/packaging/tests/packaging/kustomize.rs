use std::path::Path;

use serde_json::{Value, json};
use sluice_operator::{InstallOptions, Platform, crds, install_objects};
use sluice_packaging::read;

use crate::{assert_same, deploy, packaging, write};

fn build(directory: &Path) -> Vec<Value> {
    read(&packaging(&["kustomize-build", directory.to_str().unwrap()]).unwrap()).unwrap()
}

/// What a kustomization beside the bases makes.
fn overlay(deploy: &Path, kustomization: &str) -> Vec<Value> {
    let directory = deploy.join("overlay");
    write(&directory.join("kustomization.yaml"), kustomization);
    build(&directory)
}

fn options() -> InstallOptions {
    InstallOptions { reads_leases_everywhere: true, ..InstallOptions::default() }
}

#[test]
fn the_bases_are_the_rendered_objects() {
    let deploy = deploy();
    assert_same(build(&deploy.path().join("kustomize/crds")), crds(), "crds");
    assert_same(build(&deploy.path().join("kustomize/operator")), install_objects(&options()), "operator");
}

#[test]
fn namespace_images_and_labels_work() {
    let deploy = deploy();
    let kustomization = "\
resources: [../kustomize/operator]
namespace: quota-system
images:
- {name: localhost/sluice, newName: registry.example.com/sluice, newTag: '2'}
labels:
- pairs: {team: platform}
";
    let options = InstallOptions {
        namespace: "quota-system".to_owned(),
        image: "registry.example.com/sluice:2".to_owned(),
        ..options()
    };
    let labelled = install_objects(&options).into_iter().map(|mut object| {
        object["metadata"]["labels"]["team"] = json!("platform");
        // Kustomize takes these kinds, which it does not know, for kinds with a namespace. API servers drop it
        // (`k8s.io/apiserver/pkg/registry/rest/create.go`, `BeforeCreate`).
        if ["FlowSchema", "PriorityLevelConfiguration"].map(Some).contains(&object["kind"].as_str()) {
            object["metadata"]["namespace"] = json!("quota-system");
        }
        object
    });
    assert_same(overlay(deploy.path(), kustomization), labelled.collect(), "overlay");
}

#[test]
fn the_component_for_openshift_is_the_platform_of_that_name() {
    let deploy = deploy();
    let kustomization =
        "resources: [../kustomize/operator]\ncomponents: [../kustomize/components/openshift]\n";
    let expected = install_objects(&InstallOptions { platform: Platform::Openshift, ..options() });
    assert_same(overlay(deploy.path(), kustomization), expected, "openshift");
}

#[test]
fn the_component_for_rancher_adds_its_rights() {
    let deploy = deploy();
    let kustomization = "resources: [../kustomize/operator]\ncomponents: [../kustomize/components/rancher]\n";
    let added = overlay(deploy.path(), kustomization).len() - install_objects(&options()).len();
    assert_eq!(added, sluice_operator::rancher_objects(&options()).len());
}
