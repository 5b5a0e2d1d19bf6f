//! The record of a persistent bed: `state.json` in its directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::{Bed, BedOptions, Component, Ports, kubeconfig_path};
use crate::artifacts;
use crate::process::ProcessId;

/// What is known of a persistent bed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Its directory.
    pub dir: PathBuf,
    pub(crate) options: BedOptions,
    pub(crate) ports: Ports,
    /// Its processes.
    pub processes: BTreeMap<Component, ProcessId>,
}

impl State {
    pub(crate) fn new(bed: &Bed) -> Self {
        let (options, ports) = (bed.options.clone(), bed.ports.clone());
        Self { dir: bed.dir.clone(), options, ports, processes: BTreeMap::new() }
    }

    /// Directory of the persistent bed of a name: `<cache>/beds/<name>`.
    ///
    /// # Errors
    /// When the name is not a plain word or there is no cache directory.
    pub fn dir_of(name: &str) -> anyhow::Result<PathBuf> {
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        ensure!(plain, "{name:?} cannot name a bed: use letters, digits and dashes");
        Ok(artifacts::cache_dir()?.join("beds").join(name))
    }

    /// Reads the record of a bed.
    ///
    /// # Errors
    /// When there is none.
    pub fn load(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join("state.json");
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("parsing {}", path.display()))
    }

    /// The records of all beds.
    ///
    /// # Errors
    /// When the directory of beds cannot be read.
    pub fn all() -> anyhow::Result<Vec<Self>> {
        let beds = artifacts::cache_dir()?.join("beds");
        if !beds.is_dir() {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&beds).with_context(|| format!("reading {}", beds.display()))?;
        Ok(entries.flatten().filter_map(|entry| Self::load(&entry.path()).ok()).collect())
    }

    /// Adds a process; written at once, so that an interrupted start can be cleaned up.
    pub(crate) fn record(&mut self, component: Component, process: ProcessId) -> anyhow::Result<()> {
        self.processes.insert(component, process);
        let (fresh, path) = (self.dir.join("state.json.new"), self.dir.join("state.json"));
        fs::write(&fresh, serde_json::to_vec_pretty(self)?).context("writing the bed's state")?;
        fs::rename(&fresh, &path).context("writing the bed's state")
    }

    /// The bed's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The API server's address.
    #[must_use]
    pub fn server_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.server)
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        kubeconfig_path(&self.dir, "admin")
    }

    /// Kills the recorded processes (never one that merely has the same pid) and removes the
    /// directory. The API server goes before etcd.
    ///
    /// # Errors
    /// When a process does not end or the directory cannot be removed.
    pub async fn stop(&self) -> anyhow::Result<()> {
        for component in self.processes.keys().rev() {
            if let Some(process) = self.processes.get(component) {
                process.kill().await.with_context(|| format!("stopping {}", component.name()))?;
            }
        }
        fs::remove_dir_all(&self.dir).with_context(|| format!("removing {}", self.dir.display()))
    }
}
