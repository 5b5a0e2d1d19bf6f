//! cargo-deny: licences, packages that are there in more than one version, where packages come from.

use std::path::PathBuf;
use std::process::Command;

use sluice_testbed::artifacts::cache_dir;

use crate::shell::{cargo, root, run};

/// The version that is installed. It has to build with the toolchain that `Cargo.toml` names.
const VERSION: &str = "0.20.2";
/// Alone: their database comes over the network and changes between two runs.
const ADVISORIES: [&str; 5] = ["--locked", "check", "--deny", "advisory-not-detected", "advisories"];
/// Without advisories.
const CHECK: [&str; 9] = [
    "--locked",
    "check",
    "--deny",
    "unmatched-skip",
    "--deny",
    "unnecessary-skip",
    "bans",
    "licenses",
    "sources",
];

/// Checks the rules of `deny.toml`; installs cargo-deny first if this version is not in the cache.
pub(crate) fn check() -> anyhow::Result<()> {
    cargo_deny(&CHECK)
}

/// Looks for advisories about the packages of `Cargo.lock`, in the database as it is now.
pub(crate) fn advisories() -> anyhow::Result<()> {
    cargo_deny(&ADVISORIES)
}

fn cargo_deny(arguments: &[&str]) -> anyhow::Result<()> {
    let program = installed()?;
    run(Command::new(program).args(arguments).current_dir(root()))
}

fn installed() -> anyhow::Result<PathBuf> {
    let folder = cache_dir()?.join(format!("tools/cargo-deny-{VERSION}"));
    let program = folder.join("bin/cargo-deny");
    if !program.is_file() {
        eprintln!("installing cargo-deny {VERSION} for this and later runs, about two minutes");
        let mut install = cargo();
        install.args(["install", "--locked", "--debug", "--version", VERSION, "--root"]);
        // A build directory of its own, without debug information: a third of the time of the release profile.
        install
            .arg(&folder)
            .arg("cargo-deny")
            .env_remove("CARGO_TARGET_DIR")
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        run(&mut install)?;
    }
    Ok(program)
}
