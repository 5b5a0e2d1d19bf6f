//! What `cargo metadata` says, as far as it is needed.

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::shell::cargo;

/// All packages for the platforms that are shipped.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

/// One version of one package.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    /// `None` for packages of this workspace.
    pub(crate) source: Option<String>,
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
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let output = cargo()
            .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", &target])
            .output()
            .context("could not start cargo metadata")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed: {errors}");
        serde_json::from_slice(&output.stdout).context("could not read the answer of cargo metadata")
    }

    /// The packages of this workspace.
    pub(crate) fn own(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_none())
    }
}
