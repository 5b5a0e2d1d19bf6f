//! Runs cargo in the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use sluice_testbed::artifacts::cache_dir;

/// The workspace's root directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The cargo that runs this program, in the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // `cargo run` tells its program about xtask's package; the cargo we start must not take that for its own.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs `command` with our output, and fails if it does.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = shown(command);
    eprintln!("+ {shown}");
    let status = command.status().with_context(|| format!("could not start {shown}"))?;
    ensure!(status.success(), "{shown} failed with {status}");
    Ok(())
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The path of a command of cargo, which is installed for this and later runs if it is not there.
pub(crate) fn installed(name: &str, version: &str) -> anyhow::Result<PathBuf> {
    let folder = cache_dir()?.join(format!("tools/{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        eprintln!("installing {name} {version} for this and later runs, about two minutes");
        let mut install = cargo();
        install
            .args(["install", "--locked", "--debug", "--version", version, "--root"])
            .arg(&folder)
            .arg(name);
        // A build directory of its own, without debug information: a third of the time of the release profile.
        install.env_remove("CARGO_TARGET_DIR").env("CARGO_PROFILE_DEV_DEBUG", "0");
        run(&mut install)?;
    }
    Ok(program)
}
