//! `xtask image`: the static binary in an otherwise empty image, without a container engine.

mod archive;
mod elf;
mod packages;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sluice_manifests::InstallOptions;

use crate::shell::{cargo, installed, root, run as run_command};

/// Version of cargo-auditable.
const AUDITABLE: &str = "0.7.7";

/// The program, which needs nothing besides itself.
pub(crate) struct Program {
    pub(crate) bytes: Vec<u8>,
    /// In the words of the image specification, and of Go.
    pub(crate) architecture: &'static str,
}

impl Program {
    /// Builds it for this machine.
    pub(crate) fn build() -> anyhow::Result<Self> {
        let platform = Platform::host()?;
        let path = build(platform)?;
        let bytes = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
        elf::require_static(&bytes).with_context(|| format!("{} runs nowhere but here", path.display()))?;
        Ok(Self { bytes, architecture: platform.architecture })
    }
}

/// Builds and writes `target/image/sluice.tar`, and beside it the list of what is in it.
pub(crate) fn run() -> anyhow::Result<()> {
    let platform = Platform::host()?;
    let reference = InstallOptions::default().image;
    let packages = packages::of_program(platform)?;
    let content = archive::Content {
        binary: &Program::build()?.bytes,
        license: &text("LICENSE")?,
        third_party: &packages::licences(&packages)?,
    };
    let image = archive::image(&content, &reference, platform)?;
    let folder = root().join("target/image");
    fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
    write(&folder.join("sluice.tar"), &image.bytes)?;
    let bill = packages::bill_of_materials(&packages, &reference);
    write(&folder.join("sluice.cdx.json"), format!("{bill:#}\n").as_bytes())?;
    println!("target/image/sluice.tar: {reference}, {} MiB", image.bytes.len().div_ceil(1024 * 1024));
    println!("target/image/sluice.cdx.json: its {} packages, by CycloneDX", packages.len());
    let name = reference.trim_start_matches("localhost/");
    println!("digest {}: once it is pushed, pin it with", image.digest);
    println!("  sluice render --image REGISTRY/{}@{}", name, image.digest);
    println!("load it with one of");
    println!("  docker load --input target/image/sluice.tar");
    println!("  podman load --input target/image/sluice.tar");
    println!("  ctr --namespace k8s.io images import target/image/sluice.tar");
    Ok(())
}

fn text(name: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(name)).with_context(|| format!("could not read {name}"))
}

/// A reader never sees half a file.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let partial = path.with_extension("tmp");
    fs::write(&partial, bytes).with_context(|| format!("could not write {}", partial.display()))?;
    fs::rename(&partial, path).with_context(|| format!("could not write {}", path.display()))
}

/// What the image runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Platform {
    target: &'static str,
    /// In the words of the image specification.
    architecture: &'static str,
}

impl Platform {
    fn host() -> anyhow::Result<Self> {
        Ok(match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", "x86_64") => Self { target: "x86_64-unknown-linux-gnu", architecture: "amd64" },
            ("linux", "aarch64") => Self { target: "aarch64-unknown-linux-gnu", architecture: "arm64" },
            (os, architecture) => bail!(
                "no image can be built on {os} {architecture}: build on Linux on x86_64 or aarch64, or with the Dockerfile"
            ),
        })
    }
}

fn build(platform: Platform) -> anyhow::Result<PathBuf> {
    let root = root();
    let mut flags = "-C target-feature=+crt-static".to_owned();
    // The binary must not tell where it was built, and must be the same wherever it is.
    let cargo_home =
        std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    if let Ok(cargo_home) = cargo_home {
        flags.push_str(&format!(" --remap-path-prefix={cargo_home}=/cargo"));
    }
    flags.push_str(&format!(" --remap-path-prefix={}=/sluice", root.display()));
    // With `--target` the flags do not reach procedural macros, which cannot be static.
    // The list of packages is in the program too, for scanners that have only that.
    run_command(
        cargo()
            .env("PATH", auditable()?)
            .args(["auditable", "build", "--release", "--locked", "--package", "sluice", "--bin", "sluice"])
            .args(["--target", platform.target])
            .env("RUSTFLAGS", flags)
            .env_remove("CARGO_ENCODED_RUSTFLAGS"),
    )?;
    Ok(root.join("target").join(platform.target).join("release/sluice"))
}

/// The paths of commands, with that of cargo-auditable.
fn auditable() -> anyhow::Result<std::ffi::OsString> {
    let program = installed("cargo-auditable", AUDITABLE)?;
    let folder = program.parent().unwrap_or_else(|| Path::new(".")).to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(folder).chain(std::env::split_paths(&others));
    std::env::join_paths(paths).context("could not add cargo-auditable to PATH")
}
