//! Programs out of Debian's packages: unpacked into the cache, not installed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::artifacts::{cache_dir, say};

/// Prometheus' programs.
#[derive(Clone, Debug)]
pub struct Prometheus {
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

/// A browser and what drives it.
#[derive(Clone, Debug)]
pub struct Chromium {
    pub browser: PathBuf,
    /// Speaks WebDriver.
    pub driver: PathBuf,
    /// What both need in their environment.
    pub environment: Vec<(String, String)>,
}

impl Chromium {
    fn in_folder(folder: &Path) -> Option<Self> {
        let (browser, driver) = (folder.join("chromium"), folder.join("chromedriver"));
        (browser.is_file() && driver.is_file()).then_some(Self { browser, driver, environment: Vec::new() })
    }

    /// As the packages have it, with the libraries and fonts that were unpacked beside it.
    fn unpacked(root: &Path) -> Option<Self> {
        let (browser, driver) = (root.join("usr/lib/chromium/chromium"), root.join("usr/bin/chromedriver"));
        let libraries = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        // PulseAudio's client finds the rest of itself by an entry of the linker's cache, which what is unpacked has not.
        let libraries = format!("{}:{}", libraries.display(), libraries.join("pulseaudio").display());
        let data = root.join("usr/share").display().to_string();
        let environment = vec![("LD_LIBRARY_PATH".to_owned(), libraries), ("XDG_DATA_HOME".to_owned(), data)];
        (browser.is_file() && driver.is_file()).then_some(Self { browser, driver, environment })
    }
}

/// Prometheus as it is in `PATH`, or else of Debian's package in the version that apt offers, which is kept by its version.
///
/// # Errors
/// When there is neither.
pub fn prometheus() -> anyhow::Result<Prometheus> {
    let programs = Packages { first: "prometheus", others: &[], with_libraries: false };
    programs.get(Prometheus::in_folder, |root| Prometheus::in_folder(&root.join("usr/bin"))).context(
        "fetching Debian's package prometheus: install Prometheus and promtool, and put both in one folder of PATH",
    )
}

/// Chromium as it is in `PATH`, or else of Debian's packages, with the libraries that are not installed.
///
/// # Errors
/// When there is neither.
pub fn chromium() -> anyhow::Result<Chromium> {
    let others = &["chromium-driver", "fonts-dejavu-core"];
    let programs = Packages { first: "chromium", others, with_libraries: true };
    programs.get(Chromium::in_folder, Chromium::unpacked).context(
        "fetching Debian's packages chromium and chromium-driver: install them, and put both in PATH",
    )
}

/// Packages that are unpacked together.
struct Packages {
    /// Whose version names what is kept.
    first: &'static str,
    others: &'static [&'static str],
    /// What they need and is not installed comes with them.
    with_libraries: bool,
}

impl Packages {
    /// What is in a folder of `PATH`, or else in the cache, where it is fetched to.
    fn get<T>(
        &self,
        in_folder: impl Fn(&Path) -> Option<T>,
        unpacked: impl Fn(&Path) -> Option<T>,
    ) -> anyhow::Result<T> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if let Some(installed) = std::env::split_paths(&path).find_map(|folder| in_folder(&folder)) {
            return Ok(installed);
        }
        let cache = cache_dir()?;
        fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
        let lock = File::create(cache.join(format!("{}.lock", self.first))).context("creating the lock")?;
        lock.lock().context("waiting for another process that fetches it")?;
        if let Some(kept) = self.kept(&cache)?.iter().find_map(|entry| unpacked(entry)) {
            return Ok(kept);
        }
        let entry = self.fetch(&cache)?;
        unpacked(&entry)
            .with_context(|| format!("the package {} has not the programs that it should have", self.first))
    }

    /// What is kept, the highest version first.
    fn kept(&self, cache: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(cache).with_context(|| format!("listing {}", cache.display()))? {
            entries.push(entry?.path());
        }
        entries.retain(|entry| {
            let name = entry.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.strip_prefix(self.first).is_some_and(|rest| rest.starts_with('-'))
        });
        entries.sort();
        entries.reverse();
        Ok(entries)
    }

    fn fetch(&self, cache: &Path) -> anyhow::Result<PathBuf> {
        let fresh = tempfile::Builder::new().prefix("fetching-").tempdir_in(cache)?;
        if self.download(fresh.path()).is_err() {
            // Perhaps its lists are old, or there are none.
            run(Command::new("apt-get").arg("update"))?;
            self.download(fresh.path())?;
        }
        let unpacked = fresh.path().join("unpacked");
        let mut version = None;
        for entry in fs::read_dir(fresh.path())? {
            let package = entry?.path();
            if package.extension().is_none_or(|extension| extension != "deb") {
                continue;
            }
            run(Command::new("dpkg-deb").arg("--extract").args([&package, &unpacked]))?;
            let name =
                package.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let mut parts = name.split('_');
            if parts.next() == Some(self.first) {
                version = parts.next().map(|version| version.replace("%3a", ":"));
            }
        }
        let version =
            version.with_context(|| format!("apt-get wrote no package {} with a version", self.first))?;
        let entry = cache.join(format!("{}-{version}", self.first));
        fs::rename(&unpacked, &entry).with_context(|| format!("installing {}", entry.display()))?;
        say(&format!("fetched {} {version} of Debian", self.first));
        Ok(entry)
    }

    fn download(&self, folder: &Path) -> anyhow::Result<()> {
        let mut command = Command::new("apt-get");
        if self.with_libraries {
            fs::create_dir_all(folder.join("partial"))?;
            let mut archives = OsString::from("Dir::Cache::archives=");
            archives.push(folder);
            // It writes nothing but the packages, so it needs no right to install them.
            command
                .args(["install", "--download-only", "--no-install-recommends", "--yes", "-o"])
                .arg(archives);
            command.args(["-o", "Debug::NoLocking=1"]);
        } else {
            command.arg("download").current_dir(folder);
        }
        run(command.arg(self.first).args(self.others))
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed ({}): {}", output.status, said.trim());
    Ok(())
}
