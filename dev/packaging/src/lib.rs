//! The files in `deploy/`: manifests, kustomize bases and components, and the Helm chart, from the objects of
//! [`sluice_manifests`], and dashboards. `cargo xtask gen` writes them; data in, data out.

pub mod chart;
mod dashboards;
mod kustomize;
pub mod plugin;
mod yaml;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;
use sluice_manifests::{InstallOptions, crds, default_aaq, install_objects, rancher_objects};

pub use yaml::{documents, read};

/// Contents by path.
pub type Files = BTreeMap<PathBuf, String>;

/// All files by their path under `deploy/`.
///
/// # Errors
/// When an object cannot be written as YAML, or the chart cannot say what an option changes.
pub fn files() -> anyhow::Result<Files> {
    let options = InstallOptions::default();
    let mut files = Files::from([
        (PathBuf::from("install.yaml"), documents(&install_objects(&options))?),
        (PathBuf::from("crds.yaml"), documents(&crds())?),
        (PathBuf::from("aaq-cr.yaml"), documents(&[default_aaq(&options)])?),
        (PathBuf::from("rancher.yaml"), documents(&rancher_objects(&options))?),
    ]);
    for crd in crds() {
        let name = name(&crd).context("a CRD has no name")?;
        files.insert(
            PathBuf::from("crds").join(format!("{name}.yaml")),
            documents(std::slice::from_ref(&crd))?,
        );
    }
    files.extend(kustomize::files()?);
    files.extend(dashboards::files()?);
    let chart = chart::files()?.into_iter();
    files.extend(chart.map(|(path, text)| (PathBuf::from("helm/sluice").join(path), text)));
    Ok(files)
}

pub(crate) fn name(object: &Value) -> Option<&str> {
    object.pointer("/metadata/name")?.as_str()
}
