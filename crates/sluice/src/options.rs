//! Options of an installation: from files, and from flags, which win.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_api::names;
use sluice_engine::NamespacePattern;
use sluice_manifests::{InstallOptions, InvalidOption, NotOptions, OptionsFile, PlatformAccounts};
use tokio_util::sync::CancellationToken;

use crate::existence::By;
use crate::gating::GatedBy;

/// How often files are looked at. A kubelet brings a changed ConfigMap within a minute.
const LOOK: Duration = Duration::from_secs(5);

/// Options that render and operator have in common.
#[derive(Clone, Debug, clap::Args)]
pub struct OptionsArgs {
    /// File with options of the installation, as the values of the chart are; or a folder of such files that end with
    /// `.yaml`, of which a later one by name wins, and `options.yaml` last. Flags win over files
    #[arg(long, value_name = "PATH")]
    options: Option<PathBuf>,
    /// What installs; without it always
    #[arg(long, value_enum, value_name = "BY")]
    installation: Option<By>,
    /// Who gates pods; without it the policy. Before Kubernetes 1.36 it is always the webhook
    #[arg(long, value_enum, value_name = "WHO")]
    gating: Option<GatedBy>,
    /// Namespaces whose pods are never gated, whatever the AAQ selects, in place of the default; `*` at the end stands for
    /// any rest. That of the installation always is one
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    exempt_namespaces: Option<Vec<NamespacePattern>>,
    /// ServiceAccounts, separated by commas, that create pods for tenants in the tenants' namespaces, in place of
    /// `cdi:cdi-sa`. Their pods may name their node, and then are not gated
    #[arg(long, value_name = "NAMESPACE:NAME")]
    platform_accounts: Option<PlatformAccounts>,
}

/// Why there are no options.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A file cannot be read.
    #[error("options: could not read {}: {error}: give a file, or a folder of files, that can be read", .path.display())]
    Read {
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file says something else.
    #[error("options: {}: {error}", .path.display())]
    Content { path: PathBuf, error: NotOptions },
    /// An option cannot be.
    #[error(transparent)]
    Option(#[from] InvalidOption),
}

impl OptionsArgs {
    /// `base` with what files and flags say.
    ///
    /// # Errors
    /// When a file cannot be read or says something that cannot be.
    pub fn over(&self, base: InstallOptions) -> Result<InstallOptions, OptionsError> {
        let mut options = over(base, &self.read()?)?;
        if let Some(by) = self.installation {
            options.installation = by.into();
        }
        if let Some(by) = self.gating {
            options.gating = by.into();
        }
        if let Some(exempt) = &self.exempt_namespaces {
            options.exempt_namespaces.clone_from(exempt);
        }
        if let Some(accounts) = &self.platform_accounts {
            options.platform_accounts = accounts.clone();
        }
        Ok(options)
    }

    /// The files as they are now.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read(&self) -> Result<Files, OptionsError> {
        self.options.as_deref().map_or_else(|| Ok(Files::default()), read)
    }

    /// Cancels everything when the files say something else than `known`, and it can be: the process is started again with
    /// that. What cannot be is logged, and what was known stays.
    pub async fn until_changed(&self, known: Files, cancel: CancellationToken) {
        let mut seen = known.clone();
        let looking = async {
            loop {
                tokio::time::sleep(LOOK).await;
                // While a ConfigMap is replaced a file may be missing.
                let Ok(now) = self.read() else { continue };
                if now == seen {
                    continue;
                }
                seen = now;
                let options = over(InstallOptions::default(), &seen);
                match options.and_then(|options| Ok(options.validate()?)) {
                    Ok(()) if seen != known => return,
                    Ok(()) => {}
                    Err(error) => tracing::error!(%error, "options changed and cannot be; the former stay"),
                }
            }
        };
        if cancel.run_until_cancelled(looking).await.is_some() {
            tracing::info!("options changed; ending, to be started with them");
            cancel.cancel();
        }
    }
}

/// Texts of files, in the order in which they count.
pub type Files = Vec<(PathBuf, String)>;

fn over(base: InstallOptions, files: &Files) -> Result<InstallOptions, OptionsError> {
    files.iter().try_fold(base, |options, (path, text)| {
        let file =
            OptionsFile::parse(text).map_err(|error| OptionsError::Content { path: path.clone(), error })?;
        Ok(file.over(options)?)
    })
}

fn read(path: &Path) -> Result<Files, OptionsError> {
    let failed = |error| OptionsError::Read { path: path.to_owned(), error };
    let mut paths = if path.is_dir() {
        let entries = std::fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let paths = entries.map_err(failed)?.into_iter().map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect()
    } else {
        vec![path.to_owned()]
    };
    paths.sort_by_key(|path| (path.ends_with(names::OPTIONS_KEY), path.clone()));
    let read = |path: PathBuf| match std::fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(error) => Err(OptionsError::Read { path, error }),
    };
    paths.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests;
