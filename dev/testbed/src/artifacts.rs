//! The programs of the test bed, built from the Go modules in `testbed/` and cached by content.
//!
//! The cache is `$SLUICE_CACHE_DIR`, by default `$HOME/.cache/sluice`; an entry's name carries a
//! hash of the module's files, the build's parameters and the Go version. The versions of Kubernetes
//! and of KubeVirt are one variable each: `SLUICE_KUBERNETES_VERSION=1.34` selects `go.1.34.mod`.

mod build;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};

pub(crate) use build::say;

use crate::program::Program;

/// Environment variable that selects the Kubernetes minor version, e.g. `1.34`.
pub const KUBERNETES_VERSION: &str = "SLUICE_KUBERNETES_VERSION";
/// Environment variable that selects the KubeVirt minor version, e.g. `1.3`.
pub const KUBEVIRT_VERSION: &str = "SLUICE_KUBEVIRT_VERSION";

/// What is built in more than one version.
struct Versioned {
    folder: &'static str,
    /// The Go module whose version it is.
    module: &'static str,
    variable: &'static str,
}

const KUBERNETES: Versioned =
    Versioned { folder: "kubernetes", module: "k8s.io/kubernetes", variable: KUBERNETES_VERSION };
const KUBEVIRT: Versioned =
    Versioned { folder: "kubevirt", module: "kubevirt.io/kubevirt", variable: KUBEVIRT_VERSION };

/// One program that is built from a Go module.
struct Artifact {
    name: String,
    version: String,
    module: PathBuf,
    modfile: PathBuf,
    package: &'static str,
    ldflags: String,
    /// About how long two cores build it with empty caches.
    minutes: u32,
}

/// Path of the control plane program (etcd, API server, controller-manager, scheduler, kubectl).
///
/// # Errors
/// When Go is missing or too old, the version is unknown or the build fails.
pub fn kubernetes() -> anyhow::Result<PathBuf> {
    kubernetes_at(KUBERNETES.selected()?)
}

/// As [`kubernetes`], of this minor version, whatever the environment selects.
///
/// # Errors
/// As [`kubernetes`].
pub fn kubernetes_of(version: &str) -> anyhow::Result<PathBuf> {
    kubernetes_at(KUBERNETES.of(version)?)
}

fn kubernetes_at((module, modfile, version): (PathBuf, PathBuf, String)) -> anyhow::Result<PathBuf> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
    let base = "k8s.io/component-base/version";
    let ldflags = format!(
        "-s -w -X {base}.gitVersion={version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={version}"
    );
    let name = "kubernetes".to_owned();
    Artifact { name, version, module, modfile, package: ".", ldflags, minutes: 4 }.ensure()
}

/// Path of the KWOK program, which plays the kubelets of simulated nodes.
///
/// # Errors
/// When Go is missing or too old or the build fails.
pub fn kwok() -> anyhow::Result<PathBuf> {
    let kwok = of_module("kwok", "kwok", "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwok")?;
    let ldflags = format!("-s -w -X sigs.k8s.io/kwok/pkg/consts.Version={}", kwok.version);
    Artifact { ldflags, ..kwok }.ensure()
}

/// Path of the program that renders Helm charts and kustomizations, without a cluster.
///
/// # Errors
/// When Go is missing or too old or the build fails.
pub fn packaging() -> anyhow::Result<PathBuf> {
    of_module("packaging", "packaging", "helm.sh/helm/v3", ".")?.ensure()
}

/// Path of Helm.
///
/// # Errors
/// When Go is missing or too old or the build fails.
pub fn helm() -> anyhow::Result<PathBuf> {
    of_module("helm", "packaging", "helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm")?.ensure()
}

/// Paths of krew, which installs plug-ins of kubectl, and of its validator of manifests.
///
/// # Errors
/// When Go is missing or too old or the build fails.
pub fn krew() -> anyhow::Result<[PathBuf; 2]> {
    let of_krew = |name, package| of_module(name, "krew", "sigs.k8s.io/krew", package)?.ensure();
    let krew = of_krew("krew", "sigs.k8s.io/krew/cmd/krew")?;
    Ok([krew, of_krew("validate-krew-manifest", "sigs.k8s.io/krew/cmd/validate-krew-manifest")?])
}

/// Path of the program that plays a sidecar evaluator of application-aware-quota.
///
/// # Errors
/// When Go is missing or too old or the build fails.
pub fn evaluator() -> anyhow::Result<PathBuf> {
    of_module("evaluator", "evaluators", "google.golang.org/grpc", ".")?.ensure()
}

/// A program of a module in `folder`, which requires `of`: its version is that of the program.
fn of_module(name: &str, folder: &str, of: &str, package: &'static str) -> anyhow::Result<Artifact> {
    let module = modules().join(folder);
    let modfile = module.join("go.mod");
    let version = required_version(&modfile, of)?;
    let (name, ldflags) = (name.to_owned(), "-s -w".to_owned());
    Ok(Artifact { name, version, module, modfile, package, ldflags, minutes: 1 })
}

/// Path of the KubeVirt program: virt-controller, and the definitions of its kinds.
///
/// # Errors
/// When Go is missing or too old or the build fails.
pub fn kubevirt() -> anyhow::Result<PathBuf> {
    kubevirt_artifact()?.ensure()
}

/// Compiles what the KubeVirt program is made of, beside something else and with the lowest priority, unless it is built:
/// then [`kubevirt`] is quicker. What Go says goes to this file. It ends when it is dropped.
///
/// # Errors
/// When Go is missing or too old.
pub fn compile_kubevirt_beside(log: &Path) -> anyhow::Result<Option<Program>> {
    let kubevirt = kubevirt_artifact()?;
    let is_built = kubevirt.entry()?.join(&kubevirt.name).is_file();
    (!is_built).then(|| kubevirt.compile_beside(log)).transpose()
}

fn kubevirt_artifact() -> anyhow::Result<Artifact> {
    let (module, modfile, version) = KUBEVIRT.selected()?;
    let (name, ldflags) = ("kubevirt".to_owned(), "-s -w".to_owned());
    Ok(Artifact { name, version, module, modfile, package: ".", ldflags, minutes: 2 })
}

/// The version of the KubeVirt program, e.g. `v1.7.0`.
///
/// # Errors
/// When the wanted version is unknown.
pub fn kubevirt_version() -> anyhow::Result<String> {
    KUBEVIRT.selected().map(|(_, _, version)| version)
}

/// The minor number of that version.
///
/// # Errors
/// When the wanted version is unknown.
pub fn kubevirt_minor() -> anyhow::Result<u32> {
    let version = kubevirt_version()?;
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse().ok());
    minor.with_context(|| format!("{version} has no minor number"))
}

fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed")
}

/// The directory in which built programs and persistent beds live.
///
/// # Errors
/// When neither `SLUICE_CACHE_DIR` nor `HOME` is set.
pub fn cache_dir() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("SLUICE_CACHE_DIR") {
        return Ok(dir.into());
    }
    let home =
        std::env::var_os("HOME").context("neither SLUICE_CACHE_DIR nor HOME is set: set one of them")?;
    Ok(Path::new(&home).join(".cache/sluice"))
}

impl Versioned {
    /// The Go module of the program, its go.mod and the version that this requires.
    fn selected(&self) -> anyhow::Result<(PathBuf, PathBuf, String)> {
        self.of(&std::env::var(self.variable).unwrap_or_default())
    }

    /// The same for a minor version; empty: the usual one.
    fn of(&self, wanted: &str) -> anyhow::Result<(PathBuf, PathBuf, String)> {
        let modfile = self.modfile(wanted.trim().trim_start_matches('v'))?;
        let version = required_version(&modfile, self.module)?;
        Ok((modules().join(self.folder), modfile, version))
    }

    /// `go.mod` when it is of the wanted minor version (or none is wanted), else `go.<minor>.mod`.
    fn modfile(&self, wanted: &str) -> anyhow::Result<PathBuf> {
        let folder = modules().join(self.folder);
        let usual = folder.join("go.mod");
        let version = required_version(&usual, self.module)?;
        if wanted.is_empty() || version.trim_start_matches('v').starts_with(&format!("{wanted}.")) {
            return Ok(usual);
        }
        let other = folder.join(format!("go.{wanted}.mod"));
        ensure!(
            !wanted.contains('/') && other.is_file(),
            "{}={wanted}: no such version here; give a minor version with a file {}/go.<minor>.mod",
            self.variable,
            folder.display()
        );
        Ok(other)
    }
}

/// The version of a module that a go.mod file requires, e.g. `v1.36.3`.
fn required_version(modfile: &Path, module: &str) -> anyhow::Result<String> {
    let text = fs::read_to_string(modfile).with_context(|| format!("reading {}", modfile.display()))?;
    find_required(&text, module).with_context(|| format!("{} does not require {module}", modfile.display()))
}

fn find_required(text: &str, module: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next().map(str::to_owned)).flatten()
    })
}

/// Major and minor number of `go1.26.8`, `1.26.0`, `go1.27rc1`.
fn go_minor(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().trim_start_matches("go").split('.');
    let major = parts.next()?.parse().ok()?;
    let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}

impl Artifact {
    /// Finds the program in the cache or builds it.
    fn ensure(&self) -> anyhow::Result<PathBuf> {
        let (cache, entry) = (cache_dir()?, self.entry()?);
        let program = entry.join(&self.name);
        if program.is_file() {
            return Ok(program);
        }
        fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
        let lock =
            File::create(cache.join(format!("{}.lock", self.name))).context("creating the build lock")?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                say(&format!("another process is building {}: waiting for it", self.name));
                lock.lock().context("waiting for the build lock")?;
            }
            Err(TryLockError::Error(error)) => return Err(error).context("taking the build lock"),
        }
        if !program.is_file() {
            self.build(&cache, &entry)?;
        }
        Ok(program)
    }

    /// The folder of the program in the cache.
    fn entry(&self) -> anyhow::Result<PathBuf> {
        let hash = self.hash(&self.go_version()?)?;
        Ok(cache_dir()?.join(format!("{}-{hash}", self.name)))
    }

    fn go_version(&self) -> anyhow::Result<String> {
        let advice =
            "install Go from https://go.dev/dl/ (or your distribution's golang package) and put it in PATH";
        let text = fs::read_to_string(&self.modfile)?;
        let needed = text.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or("1.26");
        let output = Command::new("go").args(["env", "GOVERSION"]).current_dir(&self.module).output();
        let output = output.with_context(|| {
            format!(
                "cannot run `go`, which builds the test bed's {} (Go {needed} or newer): {advice}",
                self.name
            )
        })?;
        let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(
            output.status.success() && go_minor(&found) >= go_minor(needed),
            "{} needs Go {needed} or newer, found {found:?} {complaint}: {advice}",
            self.name
        );
        Ok(found)
    }

    fn hash(&self, go: &str) -> anyhow::Result<String> {
        let mut files = vec![self.modfile.clone(), self.modfile.with_extension("sum")];
        for entry in
            fs::read_dir(&self.module).with_context(|| format!("reading {}", self.module.display()))?
        {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "go") {
                files.push(path);
            }
        }
        files.sort();
        let mut hash = Sha256::new();
        for part in [go, self.package, &self.ldflags, std::env::consts::ARCH, std::env::consts::OS] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        for file in files {
            let content = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
            hash.update(content.len().to_le_bytes());
            hash.update(content);
        }
        Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_compare_by_number() {
        assert_eq!(go_minor("go1.26.8"), Some((1, 26)));
        assert_eq!(go_minor("1.9"), Some((1, 9)));
        assert_eq!(go_minor("go1.27rc1"), Some((1, 27)));
        assert_eq!(go_minor("devel"), None);
        assert!(go_minor("go1.9") < go_minor("1.26.0"));
    }

    #[test]
    fn required_version_is_the_requirement_not_the_replacement() {
        let text = "require (\n\tk8s.io/kubernetes v1.36.3\n)\nreplace (\n\tk8s.io/kubectl => k8s.io/kubectl v0.36.3\n)";
        assert_eq!(find_required(text, "k8s.io/kubernetes").as_deref(), Some("v1.36.3"));
        assert_eq!(find_required(text, "k8s.io/api"), None);
    }

    #[test]
    fn version_is_one_variable() {
        let is = |versioned: &Versioned, wanted: &str, file: &str| {
            assert!(versioned.modfile(wanted).unwrap().ends_with(file), "{} {wanted}", versioned.folder);
        };
        is(&KUBERNETES, "", "go.mod");
        is(&KUBERNETES, "1.36", "go.mod");
        is(&KUBERNETES, "1.34", "go.1.34.mod");
        is(&KUBEVIRT, "", "go.mod");
        is(&KUBEVIRT, "1.7", "go.mod");
        is(&KUBEVIRT, "1.3", "go.1.3.mod");
        is(&KUBEVIRT, "1.8", "go.1.8.mod");
        for (versioned, unknown) in [(&KUBERNETES, "1.3"), (&KUBEVIRT, "1.36")] {
            let error = versioned.modfile(unknown).unwrap_err().to_string();
            assert!(error.contains(&format!("{}={unknown}", versioned.variable)), "{error}");
        }
    }
}
