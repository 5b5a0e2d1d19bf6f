//! Programs out of Debian's packages: unpacked into the cache, not installed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::artifacts::{cache_dir, say};

const PACKAGE: &str = "prometheus";

/// Prometheus' programs.
#[derive(Clone, Debug)]
pub struct Prometheus {
    /// The server.
    pub server: PathBuf,
    /// What checks and tests rules.
    pub promtool: PathBuf,
}

impl Prometheus {
    fn in_folder(folder: &Path) -> Option<Self> {
        let found = Self { server: folder.join("prometheus"), promtool: folder.join("promtool") };
        (found.server.is_file() && found.promtool.is_file()).then_some(found)
    }
}

/// Prometheus as it is in `PATH`, or else of Debian's package in the version that apt offers, which is kept by its version.
///
/// # Errors
/// When there is neither.
pub fn prometheus() -> anyhow::Result<Prometheus> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(installed) = std::env::split_paths(&path).find_map(|folder| Prometheus::in_folder(&folder)) {
        return Ok(installed);
    }
    let cache = cache_dir()?;
    fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    let lock = File::create(cache.join(format!("{PACKAGE}.lock"))).context("creating the lock")?;
    lock.lock().context("waiting for another process that fetches Prometheus")?;
    match kept(&cache)? {
        Some(kept) => Ok(kept),
        None => fetch(&cache).context(
            "fetching Debian's package prometheus: install Prometheus and promtool, and put both in one folder of PATH",
        ),
    }
}

/// The one of the highest version that is kept.
fn kept(cache: &Path) -> anyhow::Result<Option<Prometheus>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(cache).with_context(|| format!("listing {}", cache.display()))? {
        entries.push(entry?.path());
    }
    let is_ours = |entry: &&PathBuf| {
        let name = entry.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.strip_prefix(PACKAGE).is_some_and(|rest| rest.starts_with('-'))
    };
    entries.sort();
    Ok(entries.iter().rev().filter(is_ours).find_map(|entry| Prometheus::in_folder(&entry.join("usr/bin"))))
}

fn fetch(cache: &Path) -> anyhow::Result<Prometheus> {
    let fresh = tempfile::Builder::new().prefix("fetching-").tempdir_in(cache)?;
    let download = || run(Command::new("apt-get").args(["download", PACKAGE]).current_dir(fresh.path()));
    if download().is_err() {
        // Perhaps its lists are old, or there are none.
        run(Command::new("apt-get").arg("update"))?;
        download()?;
    }
    let package = fs::read_dir(fresh.path())?.next().context("apt-get download wrote no file")??.path();
    let name = package.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let version = name.split('_').nth(1).context("the file of the package has no version in its name")?;
    let version = version.replace("%3a", ":");
    let unpacked = fresh.path().join("unpacked");
    run(Command::new("dpkg-deb").arg("--extract").args([&package, &unpacked]))?;
    let entry = cache.join(format!("{PACKAGE}-{version}"));
    fs::rename(&unpacked, &entry).with_context(|| format!("installing {}", entry.display()))?;
    say(&format!("fetched Prometheus {version} of Debian"));
    Prometheus::in_folder(&entry.join("usr/bin"))
        .context("the package has no prometheus or no promtool in usr/bin")
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed ({}): {}", output.status, said.trim());
    Ok(())
}
