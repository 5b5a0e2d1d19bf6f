//! What `cargo metadata` says, as far as it is needed.

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::shell::cargo;

/// The packages of this workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

/// A package and what its manifest asks for.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a package's manifest.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None`, `"build"` or `"dev"`.
    pub(crate) kind: Option<String>,
    pub(crate) path: Option<String>,
}

impl Metadata {
    pub(crate) fn load() -> anyhow::Result<Self> {
        let output = cargo()
            .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
            .output()
            .context("could not start cargo metadata")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed: {errors}");
        serde_json::from_slice(&output.stdout).context("could not read the answer of cargo metadata")
    }
}
