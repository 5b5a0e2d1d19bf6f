//! The `sluice` program under test.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, ensure};

/// The path of the `sluice` program, built (once per process) from the sources as they are.
///
/// `SLUICE_BINARY` names another one, for example a release build.
///
/// # Errors
/// When it does not build.
pub fn sluice() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(given) = std::env::var_os("SLUICE_BINARY") {
        return Ok(given.into());
    }
    if let Some(built) = BUILT.get() {
        return Ok(built.clone());
    }
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "workspace-hack", "--package", "sluice"]);
    cargo.args(["--manifest-path", manifest]).stdin(Stdio::null());
    let status = cargo.status().context("could not run cargo to build sluice")?;
    ensure!(status.success(), "could not build sluice: cargo ended with {status}");
    let target = target_dir()?;
    Ok(BUILT.get_or_init(|| target.join("debug").join("sluice")).clone())
}

fn target_dir() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR") {
        return Ok(dir.into());
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(root.ancestors().nth(2).context("this crate is not two folders deep")?.join("target"))
}
