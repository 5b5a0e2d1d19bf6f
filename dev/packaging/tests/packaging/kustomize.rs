use std::path::Path;

use serde_json::{Value, json};
use sluice_manifests::{
    InstallOptions, Installation, IssuerRef, Monitoring, Naming, OptionsFile, Platform, crds, install_objects,
};
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
        object
    });
    assert_same(overlay(deploy.path(), kustomization), labelled.collect(), "overlay");
}

/// The operator ends with a sentence when it runs under another account than `sluice-operator`, and a prefix of names is
/// seen by that: it changes the account, and leaves the names in the rights as they are.
#[test]
fn a_prefix_of_names_changes_the_account_by_which_the_operator_refuses_it() {
    let deploy = deploy();
    for (change, account) in
        [("namePrefix: team-", "team-sluice-operator"), ("nameSuffix: -a", "sluice-operator-a")]
    {
        let built = overlay(deploy.path(), &format!("resources: [../kustomize/operator]\n{change}\n"));
        let operator = built.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let pod = &operator["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], account);
        let environment = pod["containers"][0]["env"].as_array().unwrap();
        let name = environment.iter().find(|variable| variable["name"] == "POD_NAME").unwrap();
        assert_eq!(name["valueFrom"]["fieldRef"]["fieldPath"], "metadata.name", "it knows its pod");
    }
}

/// The options that components add are files of their own: the same as one file that says all of it.
fn assert_options(built: &mut [Value], expected: &mut [Value]) {
    let data = |objects: &mut [Value]| -> Value {
        let map = objects.iter_mut().find(|object| object["kind"] == "ConfigMap").unwrap();
        map["data"].take()
    };
    let read = |data: Value| {
        let mut files: Vec<_> = data.as_object().unwrap().clone().into_iter().collect();
        files.sort_by_key(|(name, _)| name == "options.yaml");
        let texts = files.iter().map(|(_, text)| OptionsFile::parse(text.as_str().unwrap()).unwrap());
        texts.fold(InstallOptions::default(), |options, file| file.over(options).unwrap())
    };
    assert_eq!(read(data(built)), read(data(expected)));
}

#[test]
fn components_are_the_options_of_their_names() {
    let deploy = deploy();
    let issuer = IssuerRef {
        name: "sluice".to_owned(),
        kind: "Issuer".to_owned(),
        group: "cert-manager.io".to_owned(),
    };
    let monitoring = Monitoring { service_monitor: true, rules: true, ..Monitoring::default() };
    let openshift = InstallOptions { platform: Platform::Openshift, ..options() };
    let cert_manager = InstallOptions { cert_manager: Some(issuer), ..options() };
    let prometheus = InstallOptions { monitoring, ..options() };
    let all = InstallOptions {
        platform: Platform::Openshift,
        cert_manager: cert_manager.cert_manager.clone(),
        monitoring: prometheus.monitoring.clone(),
        ..options()
    };
    for (components, options) in [
        (&["openshift"][..], openshift),
        (&["cert-manager"], cert_manager),
        (&["prometheus"], prometheus),
        (&["aaq-installs"], InstallOptions { installation: Installation::Cr, ..options() }),
        (&["aaq-names"], InstallOptions { naming: Naming::Aaq, ..options() }),
        (&["prometheus", "openshift", "cert-manager"], all),
    ] {
        let list: String =
            components.iter().map(|name| format!("- ../kustomize/components/{name}\n")).collect();
        let kustomization = format!("resources: [../kustomize/operator]\ncomponents:\n{list}");
        let (mut built, mut expected) = (overlay(deploy.path(), &kustomization), install_objects(&options));
        // Only what is in the manifest says so: the operator has no part in it.
        if !components.contains(&"prometheus") {
            assert_options(&mut built, &mut expected);
        }
        for objects in [&mut built, &mut expected] {
            objects.retain(|object| object["kind"] != "ConfigMap");
        }
        assert_same(built, expected, &components.join(" "));
    }
}

#[test]
fn the_component_for_rancher_adds_its_rights() {
    let deploy = deploy();
    let kustomization = "resources: [../kustomize/operator]\ncomponents: [../kustomize/components/rancher]\n";
    let added = overlay(deploy.path(), kustomization).len() - install_objects(&options()).len();
    assert_eq!(added, sluice_manifests::rancher_objects(&options()).len());
}
