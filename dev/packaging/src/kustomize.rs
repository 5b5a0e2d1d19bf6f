//! Bases and components for kustomize.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;
use sluice_manifests::{
    InstallOptions, Installation, IssuerRef, Monitoring, Naming, cert_manager_rights, crds, install_objects,
    monitoring_objects, naming_rights, rancher_objects, removal_rights,
};

use crate::yaml::HEADER;
use crate::{Files, documents, name};

const BASE: &str = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";
const COMPONENT: &str = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n";

/// Where objects of ours have the name of the namespace besides `metadata.namespace` and subjects of bindings: `namespace:`
/// of a kustomization renames the Namespace, and these follow.
const REFERENCES: &str = "\
nameReference:
- kind: Namespace
  version: v1
  fieldSpecs:
  - path: rules/resourceNames
    kind: ClusterRole
";

/// Users and groups of the operator are left to the range of the namespace; it makes its operands so.
const OPENSHIFT: &str = "\
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: remove, path: /spec/template/spec/securityContext/runAsUser}
    - {op: remove, path: /spec/template/spec/securityContext/runAsGroup}
    - {op: remove, path: /spec/template/spec/securityContext/fsGroup}
- target: {kind: ConfigMap, name: sluice-operator}
  patch: |-
    - {op: add, path: /data/openshift.yaml, value: 'platform: openshift'}
";

/// Each component has a file of its own among the options, so that several can be used.
const CERT_MANAGER: &str = "\
# The Issuer `sluice` of the namespace, which you make. Another one: say certManager.issuerRef in options.yaml, which wins.
patches:
- target: {kind: ConfigMap, name: sluice-operator}
  patch: |-
    - {op: add, path: /data/cert-manager.yaml, value: 'certManager: {issuerRef: {name: sluice, kind: Issuer}}'}
";

/// With the rights that this takes.
const AAQ_INSTALLS: &str = "\
patches:
- target: {kind: ConfigMap, name: sluice-operator}
  patch: |-
    - {op: add, path: /data/aaq-installs.yaml, value: 'installation: cr'}
";

/// For the test suite of application-aware-quota.
const AAQ_NAMES: &str = "\
# With `namespace: aaq`.
patches:
- target: {kind: Deployment, name: sluice-operator}
  options: {allowNameChange: true}
  patch: |-
    - {op: replace, path: /metadata/name, value: aaq-operator}
- target: {kind: ConfigMap, name: sluice-operator}
  patch: |-
    - {op: add, path: /data/aaq-names.yaml, value: 'names: aaq'}
";

/// The namespace of what it grants to is rewritten by `namespace:`, and so is that of the account that is impersonated.
const RANCHER_NOTE: &str =
    "# Without `namespace:` only: its Role belongs to kube-system. For another namespace apply the output of
# `sluice render --only rancher --namespace NAME` beside the kustomization.
";

pub(crate) fn files() -> anyhow::Result<Files> {
    // All objects are in the namespace of the installation, so that `namespace:` may replace it.
    let options = InstallOptions { reads_leases_everywhere: true, ..InstallOptions::default() };
    let folder = Path::new("kustomize");
    let renamed = InstallOptions { naming: Naming::Aaq, ..options.clone() };
    let by_aaq = InstallOptions { installation: Installation::Cr, ..options.clone() };
    let issuer = IssuerRef {
        name: "sluice".to_owned(),
        kind: "Issuer".to_owned(),
        group: "cert-manager.io".to_owned(),
    };
    let with_issuer = InstallOptions { cert_manager: Some(issuer), ..options.clone() };
    let monitoring = Monitoring { service_monitor: true, rules: true, ..Monitoring::default() };
    let monitored = InstallOptions { monitoring, ..options.clone() };
    Ok(Files::from([
        (PathBuf::from("crds/kustomization.yaml"), with_resources(BASE, &crd_files()?)),
        (folder.join("crds/kustomization.yaml"), with_resources(BASE, &["../../crds".to_owned()])),
        (
            folder.join("operator/kustomization.yaml"),
            format!(
                "{}configurations: [references.yaml]\n",
                with_resources(BASE, &["operator.yaml".to_owned()])
            ),
        ),
        (folder.join("operator/references.yaml"), format!("{HEADER}{REFERENCES}")),
        (folder.join("operator/operator.yaml"), documents(&install_objects(&options))?),
        (folder.join("components/openshift/kustomization.yaml"), format!("{HEADER}{COMPONENT}{OPENSHIFT}")),
        (
            folder.join("components/aaq-installs/kustomization.yaml"),
            format!("{}{AAQ_INSTALLS}", with_resources(COMPONENT, &["rights.yaml".to_owned()])),
        ),
        (folder.join("components/aaq-installs/rights.yaml"), documents(&removal_rights(&by_aaq))?),
        (
            folder.join("components/aaq-names/kustomization.yaml"),
            format!("{}{AAQ_NAMES}", with_resources(COMPONENT, &["rights.yaml".to_owned()])),
        ),
        (folder.join("components/aaq-names/rights.yaml"), documents(&naming_rights(&renamed))?),
        (
            folder.join("components/cert-manager/kustomization.yaml"),
            format!("{}{CERT_MANAGER}", with_resources(COMPONENT, &["rights.yaml".to_owned()])),
        ),
        (folder.join("components/cert-manager/rights.yaml"), documents(&cert_manager_rights(&with_issuer))?),
        (
            folder.join("components/prometheus/kustomization.yaml"),
            with_resources(COMPONENT, &["monitoring.yaml".to_owned()]),
        ),
        (folder.join("components/prometheus/monitoring.yaml"), documents(&monitoring_objects(&monitored))?),
        (
            folder.join("components/rancher/kustomization.yaml"),
            format!("{}{RANCHER_NOTE}", with_resources(COMPONENT, &["rancher.yaml".to_owned()])),
        ),
        (folder.join("components/rancher/rancher.yaml"), documents(&rancher_objects(&options))?),
    ]))
}

fn crd_files() -> anyhow::Result<Vec<String>> {
    let file = |crd: &Value| -> anyhow::Result<String> {
        Ok(format!("{}.yaml", name(crd).context("a CRD has no name")?))
    };
    crds().iter().map(file).collect()
}

fn with_resources(kind: &str, resources: &[String]) -> String {
    let resources: String = resources.iter().map(|file| format!("- {file}\n")).collect();
    format!("{HEADER}{kind}resources:\n{resources}")
}
