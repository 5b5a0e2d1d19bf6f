//! cargo-deny: licences, packages that are there in more than one version, where packages come from.

use std::process::Command;

use crate::shell::{installed, root, run};

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
    let program = installed("cargo-deny", VERSION)?;
    run(Command::new(program).args(arguments).current_dir(root()))
}
