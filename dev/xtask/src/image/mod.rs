//! `xtask image`: the static binary in an otherwise empty image, without a container engine.

mod archive;
mod elf;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sluice_manifests::InstallOptions;

use crate::shell::{cargo, root, run as run_command};

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

/// Builds and writes `target/image/sluice.tar`.
pub(crate) fn run() -> anyhow::Result<()> {
    let platform = Platform::host()?;
    let reference = InstallOptions::default().image;
    let image = archive::image(&Program::build()?.bytes, &reference, platform)?;
    let path = root().join("target/image/sluice.tar");
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    // A reader never sees half an archive.
    let partial = path.with_extension("tar.tmp");
    fs::write(&partial, &image).with_context(|| format!("could not write {}", partial.display()))?;
    fs::rename(&partial, &path).with_context(|| format!("could not write {}", path.display()))?;
    println!("target/image/sluice.tar: {reference}, {} MiB", image.len().div_ceil(1024 * 1024));
    println!("load it with one of");
    println!("  docker load --input target/image/sluice.tar");
    println!("  podman load --input target/image/sluice.tar");
    println!("  ctr --namespace k8s.io images import target/image/sluice.tar");
    Ok(())
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
    run_command(
        cargo()
            .args(["build", "--release", "--locked", "--package", "sluice", "--bin", "sluice"])
            .args(["--target", platform.target])
            .env("RUSTFLAGS", flags)
            .env_remove("CARGO_ENCODED_RUSTFLAGS"),
    )?;
    Ok(root.join("target").join(platform.target).join("release/sluice"))
}
