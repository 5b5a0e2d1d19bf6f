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
    pub processes: BTreeMap<Component, ProcessId>,
    /// What runs Sluice and the simulated node agents on it.
    #[serde(default)]
    pub agent: Option<ProcessId>,
}

impl State {
    pub(crate) fn new(bed: &Bed) -> Self {
        let (options, ports) = (bed.options.clone(), bed.ports.clone());
        Self { dir: bed.dir.clone(), options, ports, processes: BTreeMap::new(), agent: None }
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
        self.save()
    }

    /// Ends the agent there was, if there was one, and remembers that there is none.
    ///
    /// # Errors
    /// When it does not end, or the record cannot be written.
    pub async fn end_agent(&mut self) -> anyhow::Result<()> {
        if let Some(agent) = self.agent.take() {
            agent.end().await.context("stopping what runs on the bed")?;
        }
        self.save()
    }

    /// Remembers what runs on the bed, to be ended with it.
    ///
    /// # Errors
    /// When there is no such process, or the record cannot be written.
    pub fn set_agent(&mut self, pid: u32) -> anyhow::Result<()> {
        self.agent = Some(ProcessId::of(pid)?);
        self.save()
    }

    /// Whether the bed has KubeVirt.
    #[must_use]
    pub const fn has_kubevirt(&self) -> bool {
        self.options.kubevirt
    }

    fn save(&self) -> anyhow::Result<()> {
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
        format!("https://{}", self.options.host(self.ports.server))
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
        if let Some(agent) = &self.agent {
            agent.end().await.context("stopping what runs on the bed")?;
        }
        for component in self.processes.keys().rev() {
            if let Some(process) = self.processes.get(component) {
                process.kill().await.with_context(|| format!("stopping {}", component.name()))?;
            }
        }
        fs::remove_dir_all(&self.dir).with_context(|| format!("removing {}", self.dir.display()))
    }
}
